"""Rows: the one layout in which texts reach a model.

A row holds one text or several side by side. Attention keeps them apart by the rule "same text"; everything else in an
attention model works on each place by itself, so a packed row and a padded one give the same results.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORE_INDEX = -100  # an answer that carries no loss
T = TypeVar("T", bound="tuple[Any, ...]")


class Rows(NamedTuple):
    """Texts laid out in R rows of width W; all are (R, W)."""

    ids: Tensor  # token ids
    text: Tensor  # which text of its row a token belongs to, from 1; 0 is padding
    position: Tensor  # place of the token within its own text, from 0
    # Where texts have trees: twice the place, within the text, at which the word that governs the token's word begins, or at
    # which its own does if none governs it; of a word's further pieces, twice the place at which the word begins, and one more.
    head: Tensor | None = None


def on_each(rows: T, change: Callable[[Tensor], Tensor]) -> T:
    """The same kind of rows, each of its tensors changed; R is the first dimension of all of them."""
    changed: list[Any] = [None if values is None else change(values) for values in rows]
    return type(rows)(*changed)


def tensors(rows: tuple[Tensor | None, ...]) -> list[Tensor]:
    """Those that rows have: texts without trees have no heads."""
    return [values for values in rows if values is not None]


def padded_rows(ids: Tensor, keep: Tensor, head: Tensor | None = None) -> Rows:
    """One text a row, padded at the end. ids, keep, head (R, W), keep True at real tokens."""
    position = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
    return Rows(ids, keep.long(), position, head)


def next_tokens(rows: Rows) -> Tensor:
    """Return the token after each token of its text; IGNORE_INDEX after the last one and in padding. -> (R, W)."""
    same = (rows.text[:, 1:] == rows.text[:, :-1]) & (rows.text[:, 1:] > 0)
    return F.pad(rows.ids[:, 1:].masked_fill(~same, IGNORE_INDEX), (0, 1), value=IGNORE_INDEX)


def previous_tokens(rows: Rows) -> Tensor:
    """Return the token before each token of its text; IGNORE_INDEX before the first one and in padding. -> (R, W)."""
    same = (rows.text[:, 1:] == rows.text[:, :-1]) & (rows.text[:, 1:] > 0)
    return F.pad(rows.ids[:, :-1].masked_fill(~same, IGNORE_INDEX), (1, 0), value=IGNORE_INDEX)
