"""Rows: the one layout in which texts reach a model.

A row holds one text or several side by side. Attention keeps them apart by the rule "same text"; everything else in an
attention model works on each place by itself, so a packed row and a padded one give the same results.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

IGNORE_INDEX = -100  # an answer that carries no loss
TASKS = ("masking", "next", "order", "reorder", "distance", "capital", "document")  # what a text may be read for, by number
MODES = ("left", "right", "sequence")  # UniLM's, beside reading in both directions
SHAPES = (*TASKS, *MODES)  # all that decides what is made of a text, by number
BEGINS_WORD, BEGINS_UNIT, CAPITAL, ELSEWHERE = 1, 2, 4, 8  # bits of a token's marks
T = TypeVar("T", bound="tuple[Any, ...]")


class Rows(NamedTuple):
    """Texts laid out in R rows of width W; all are (R, W)."""

    ids: Tensor  # token ids
    text: Tensor  # which text of its row a token belongs to, from 1; 0 is padding
    position: Tensor  # place of the token within its own text, from 0
    # Where texts have trees: twice the place, within the text, at which the word that governs the token's word begins, or at
    # which its own does if none governs it; of a word's further pieces, twice the place at which the word begins, and one more.
    head: Tensor | None = None


class Passages(NamedTuple):
    """Texts to be pretrained on, in R rows of width W with room for M texts each."""

    ids: Tensor  # (R, W), as in Rows
    text: Tensor
    position: Tensor
    segment: Tensor  # (R, W) 0, or 1 in the second part of a pair
    marks: Tensor  # (R, W) bits of what is known of each token: see BEGINS_WORD and its neighbours
    task: Tensor  # (R, W) the number in SHAPES of what the text is read for
    first: Tensor  # (R, M) where in the row each text begins; 0 where there are fewer
    answer: Tensor  # (R, M) what is to be said of each text; SKIP where nothing is, or where there is none

    @property
    def rows(self) -> Rows:
        return Rows(self.ids, self.text, self.position)


class Labelled(NamedTuple):
    """Texts with what is to be said of them, in R rows of width W with room for M texts each."""

    ids: Tensor  # (R, W), as in Rows
    text: Tensor
    position: Tensor
    segment: Tensor  # (R, W) 0, or 1 in the second part of a pair
    first: Tensor  # (R, M) where in the row each text begins; 0 where there are fewer
    # A class (R, M); a number (R, M), NaN where there is no text; a tag (R, W); an answer's first and last place in the row
    # (R, M, 2). SKIP where nothing is to be said.
    answer: Tensor
    head: Tensor | None = None  # (R, W), as in Rows

    @property
    def rows(self) -> Rows:
        return Rows(self.ids, self.text, self.position, self.head)


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
