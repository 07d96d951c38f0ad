"""UniLM's four language-model modes, which segments select (Dong et al. 2019, section 2.2).

    bidirectional          a token attends to its whole text: segment 0, and 1 in the second part of a pair
    left to right          a token attends to itself and earlier ones: segment 2
    right to left          a token attends to itself and later ones: segment 3
    sequence to sequence   the source, segment 4, attends to all of itself; the target, 5, to the source and its own past

In each mode the keys of a token are contiguous, so that texts in different modes can share a row.
B rows, T positions.
"""

import torch
from torch import Tensor

from qkv.base.rows import Rows
from qkv.parts.masks import VisibleRange

LEFT_TO_RIGHT, RIGHT_TO_LEFT, SOURCE, TARGET = 2, 3, 4, 5  # segments


def visible_range(text: Tensor, segment: Tensor) -> VisibleRange:
    """Return the keys that each position of packed rows attends to. text and segment (B, T)."""
    here = torch.arange(text.size(1), device=text.device).expand_as(text)
    ends_text = _differs(text, -1)
    start = _text_starts(here, text)
    end = _next_marked(here, ends_text)
    end_of_part = _next_marked(here, ends_text | _differs(segment, -1))
    past = (segment == LEFT_TO_RIGHT) | (segment == TARGET)
    first = torch.where(segment == RIGHT_TO_LEFT, here, start)
    last = torch.where(past, here, torch.where(segment == SOURCE, end_of_part, end))
    return VisibleRange(first, torch.where(text == 0, first - 1, last))


def join_source_and_target(source: Rows, target: Rows) -> tuple[Rows, Tensor, Tensor]:
    """Put each target after its source, in rows as wide as both. Return rows, segments and where target positions are now.

    Segments are (B, S + T), positions of the target (B, T).
    """
    text = torch.cat([source.text, target.text], 1)
    order = text.masked_fill(text == 0, text.size(1) + 1).argsort(stable=True)  # padding comes last
    here = torch.arange(text.size(1), device=text.device).expand_as(text)
    segment = torch.where(here < source.text.size(1), SOURCE, TARGET).gather(1, order)
    ids, text = (values.gather(1, order) for values in (torch.cat([source.ids, target.ids], 1), text))
    position = (here - _text_starts(here, text)) * (text > 0)
    where = torch.empty_like(order).scatter_(1, order, here)
    return Rows(ids, text, position), segment, where[:, source.text.size(1) :]


def _text_starts(here: Tensor, text: Tensor) -> Tensor:
    """Return where the text of each position begins in its row. (B, T) -> (B, T)."""
    return (here * _differs(text, 1)).cummax(1).values


def _differs(values: Tensor, by: int) -> Tensor:
    """Return whether the position before (by 1) or after (by -1) has another value or is missing. (B, T) -> (B, T)."""
    other = values != values.roll(by, 1)
    edge = torch.arange(values.size(1), device=values.device) == (0 if by > 0 else values.size(1) - 1)
    return other | edge


def _next_marked(here: Tensor, marked: Tensor) -> Tensor:
    """Return the nearest marked position at or after each. (B, T) -> (B, T)."""
    return here.masked_fill(~marked, here.size(1)).flip(1).cummin(1).values.flip(1)
