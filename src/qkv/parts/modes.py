"""UniLM's four ways to read a text, which its segments tell: who may look at whom (Dong et al. 2019, section 2.2).

    both        a token sees its whole text: segment 0, and 1 in the second part of a pair
    left        from left to right: itself and what came before it, segment 2
    right       from right to left: itself and what comes after it, segment 3
    sequence    source to target: the source, segment 4, sees all of itself; the target, 5, sees the source and its own past

In each of them what a token sees lies side by side in its row, from a first place to a last one, so that texts read in
different ways can stand in the same row.
B rows, T places.
"""

import torch
from torch import Tensor

from qkv.base.rows import Rows
from qkv.parts.masks import VisibleRange

LEFT, RIGHT, SOURCE, TARGET = 2, 3, 4, 5


def visible_range(text: Tensor, segment: Tensor) -> VisibleRange:
    """What each place of packed rows sees. text and segment (B, T)."""
    here = torch.arange(text.size(1), device=text.device).expand_as(text)
    ends_text = _differs(text, -1)
    start = _beginnings(here, text)
    end = _next(here, ends_text)
    end_of_part = _next(here, ends_text | _differs(segment, -1))
    past = (segment == LEFT) | (segment == TARGET)
    first = torch.where(segment == RIGHT, here, start)
    last = torch.where(past, here, torch.where(segment == SOURCE, end_of_part, end))
    return VisibleRange(first, torch.where(text == 0, first - 1, last))


def side_by_side(source: Rows, target: Rows) -> tuple[Rows, Tensor, Tensor]:
    """Each source with its target after it, in rows as wide as both; their segments; where each place of `target` is now.

    Segments are (B, S + T), places of the target (B, T).
    """
    text = torch.cat([source.text, target.text], 1)
    order = text.masked_fill(text == 0, text.size(1) + 1).argsort(stable=True)  # padding comes last
    here = torch.arange(text.size(1), device=text.device).expand_as(text)
    segment = torch.where(here < source.text.size(1), SOURCE, TARGET).gather(1, order)
    ids, text = (values.gather(1, order) for values in (torch.cat([source.ids, target.ids], 1), text))
    position = (here - _beginnings(here, text)) * (text > 0)
    where = torch.empty_like(order).scatter_(1, order, here)
    return Rows(ids, text, position), segment, where[:, source.text.size(1) :]


def _beginnings(here: Tensor, text: Tensor) -> Tensor:
    """Where the text of each place begins in its row. (B, T) -> (B, T)."""
    return (here * _differs(text, 1)).cummax(1).values


def _differs(values: Tensor, by: int) -> Tensor:
    """Whether the place before (by 1) or after (by -1) has another value, or is not there. (B, T) -> (B, T)."""
    other = values != values.roll(by, 1)
    edge = torch.arange(values.size(1), device=values.device) == (0 if by > 0 else values.size(1) - 1)
    return other | edge


def _next(here: Tensor, marked: Tensor) -> Tensor:
    """The nearest marked place, from each on. (B, T) -> (B, T)."""
    return here.masked_fill(~marked, here.size(1)).flip(1).cummin(1).values.flip(1)
