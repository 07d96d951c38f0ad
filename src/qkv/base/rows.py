"""Rows: the one layout in which texts reach a model.

A row holds one text or several side by side. Attention keeps them apart by the rule "same text"; everything else in an
attention model works on each position by itself, so packed and padded rows give the same results.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

IGNORE_INDEX = -100  # a label without loss
T = TypeVar("T", bound="tuple[Any, ...]")
# A tensor on a device -> the tensor on the host that it was copied from, and the version that was copied.
_HOST_COPIES = WeakTensorKeyDictionary()


class Rows(NamedTuple):
    """Texts laid out in R rows of width W; all are (R, W)."""

    ids: Tensor  # token ids
    text: Tensor  # which text of its row a token belongs to, from 1; 0 is padding
    position: Tensor  # position of the token in its own text, from 0
    # Only for texts with dependency trees. First token of a word: 2 p, where p is the position at which the head word begins,
    # or the word itself if it is the root. Further tokens of a word: 2 p + 1, where p is the position at which the word begins.
    head: Tensor | None = None


def map_tensors(rows: T, function: Callable[[Tensor], Tensor]) -> T:
    """Apply a function to every tensor of a named tuple of rows; R is the first dimension of all of them."""
    results: list[Any] = [None if values is None else function(values) for values in rows]
    return type(rows)(*results)


def tensors(rows: tuple[Tensor | None, ...]) -> list[Tensor]:
    """Return all tensors of rows; texts without trees have no `head`."""
    return [values for values in rows if values is not None]


def move_rows(rows: T, device: torch.device) -> T:
    """Copy rows to a device without waiting for it; `host_copy` still finds the originals."""

    def move(values: Tensor) -> Tensor:
        moved = values.to(device, non_blocking=True)
        if moved is not values and not moved.is_inference():  # a tensor of inference mode has no version
            _HOST_COPIES[moved] = values, moved._version
        return moved

    return map_tensors(rows, move)


def host_copy(values: Tensor) -> Tensor:
    """Return a tensor of rows on the host. The host waits for the device unless `move_rows` made that tensor, still unchanged."""
    original, version = _HOST_COPIES.get(values, (values, None))
    return original if version is not None and version == values._version else values.cpu()


def padded_rows(ids: Tensor, keep: Tensor, head: Tensor | None = None) -> Rows:
    """Build rows of one text each, padded at the end. ids, keep, head (R, W), keep True at real tokens."""
    position = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
    return Rows(ids, keep.long(), position, head)


def unpadded_rows(ids: Tensor) -> Rows:
    """Return rows of one text each, all of the same length. (B, S)."""
    return padded_rows(ids, torch.ones_like(ids, dtype=torch.bool))


def next_tokens(rows: Rows) -> Tensor:
    """Return the token after each token of its text; IGNORE_INDEX after the last one and in padding. -> (R, W)."""
    same = (rows.text[:, 1:] == rows.text[:, :-1]) & (rows.text[:, 1:] > 0)
    return F.pad(rows.ids[:, 1:].masked_fill(~same, IGNORE_INDEX), (0, 1), value=IGNORE_INDEX)


def previous_tokens(rows: Rows) -> Tensor:
    """Return the token before each token of its text; IGNORE_INDEX before the first one and in padding. -> (R, W)."""
    same = (rows.text[:, 1:] == rows.text[:, :-1]) & (rows.text[:, 1:] > 0)
    return F.pad(rows.ids[:, :-1].masked_fill(~same, IGNORE_INDEX), (1, 0), value=IGNORE_INDEX)
