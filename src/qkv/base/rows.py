"""Rows: the one layout in which texts reach a model.

A row holds one text or several side by side. Attention keeps them apart by the rule "same text"; everything else in an
attention model works on each place by itself, so a packed row and a padded one give the same results.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Rows(NamedTuple):
    """Texts laid out in R rows of width W; all three are (R, W)."""

    ids: Tensor  # token ids
    text: Tensor  # which text of its row a token belongs to, from 1; 0 is padding
    place: Tensor  # place of the token within its own text, from 0

    def to(self, device: torch.device) -> "Rows":
        return Rows(*(t.to(device, non_blocking=True) for t in self))

    def part(self, index: slice) -> "Rows":
        return Rows(*(t[index] for t in self))


def padded_rows(ids: Tensor, keep: Tensor) -> Rows:
    """One text a row, padded at the end. ids, keep (R, W), keep True at real tokens."""
    place = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
    return Rows(ids, keep.long(), place)
