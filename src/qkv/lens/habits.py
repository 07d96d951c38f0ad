"""Habits of heads: known patterns of attention, found and named, each with the share of attention that follows it.

After Clark et al. 2019 ("What Does BERT Look At?", section 3), Voita et al. 2019 and, for induction, Olsson et al. 2022. A score
is the mean over the places that could follow the pattern of the attention that does; a habit is named where that is large, and
much larger than even attention would give. H heads, T places that look, S places looked at.
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.lens.maps import Map
from qkv.lens.sides import Side

SHARE = 0.4  # of the attention that a habit must take
LIFT = 3.0  # and how many times as much it must be as even attention would give
PLACES = 3  # that could follow a pattern, at least
EVEN = 0.95  # of the greatest entropy there can be: from there on a head looks everywhere alike


@dataclass(frozen=True)
class Habit:
    """What a head does with most of its attention."""

    map: str
    head: int
    pattern: str
    score: float
    says: str  # for people


SAYS = {
    "previous": "Looks at the token just before.",
    "next": "Looks at the token just after.",
    "self": "Looks at the token itself.",
    "first": "Looks at the first token, where heads often rest when they have nothing to look for.",
    "separator": "Looks at the mark that ends the text, where heads often rest when they have nothing to look for.",
    "punctuation": "Looks at full stops, commas and other signs.",
    "same word": "Looks at the other pieces of the same word.",
    "repeated": "Looks at other places where the same token stands.",
    "induction": "Looks at what came after the same token the last time: the text may go on as it did then.",
    "everywhere": "Looks at all tokens about alike.",
    "in order": "Goes through the source in step with the target, from left to right.",
}


def habits(maps: Sequence[Map], sides: dict[str, Side]) -> list[Habit]:
    """The habits of all heads, clearest first."""
    found = [habit for one in maps for habit in _habits_of(one, sides[one.rows], sides[one.columns])]
    return sorted(found, key=lambda habit: -habit.score)


def _habits_of(one: Map, rows: Side, columns: Side) -> list[Habit]:
    may = (one.weights > 0).any(0)  # what masks forbid is 0 in every head
    found = []
    for pattern, rule in (ACROSS if one.part == "cross" else WITHIN).items():
        wanted = rule(rows, columns) & may
        asked = wanted.any(1) & (may & ~wanted).any(1)  # places that could follow the pattern, and could do otherwise
        if int(asked.sum()) < PLACES:
            continue
        scores = (one.weights * wanted).sum(-1)[:, asked].mean(-1)  # (H,)
        chance = float((wanted.sum(1) / may.sum(1))[asked].mean())
        found += [_named(one, h, pattern, s) for h, s in enumerate(scores.tolist()) if s >= max(SHARE, LIFT * chance)]
    return found + [_named(one, head, "everywhere", score) for head, score in _even(one.weights, may)]


def _named(one: Map, head: int, pattern: str, score: float) -> Habit:
    return Habit(one.name, head, pattern, score, SAYS[pattern])


def _even(weights: Tensor, may: Tensor) -> list[tuple[int, float]]:
    """Heads whose attention is spread over all that they may see, and how evenly: entropy as a share of the greatest."""
    asked = may.sum(1) > PLACES
    if int(asked.sum()) < PLACES:
        return []
    entropy = -(weights * weights.clamp(min=1e-12).log()).sum(-1)[:, asked]
    scores = (entropy / may.sum(1)[asked].log()).mean(-1).clamp(max=1.0).tolist()
    return [(head, score) for head, score in enumerate(scores) if score >= EVEN]


# Rules: which places a pattern looks at from each, (T, S)

Rule = Callable[[Side, Side], Tensor]


def _beside(by: int) -> Rule:
    return lambda rows, columns: _numbers(rows)[:, None] + by == _numbers(columns)[None]


def _first(rows: Side, columns: Side) -> Tensor:
    own = _numbers(rows)[:, None] == 0 if rows is columns else torch.zeros(len(rows.ids), 1, dtype=torch.bool)
    return (_numbers(columns)[None] == 0) & ~own


def _separators(rows: Side, columns: Side) -> Tensor:
    """Marks that end a text, seen from elsewhere."""
    own = torch.tensor(rows.ends)[:, None] if rows is columns else torch.zeros(len(rows.ids), 1, dtype=torch.bool)
    return torch.tensor(columns.ends)[None] & ~own


def _punctuation(rows: Side, columns: Side) -> Tensor:
    marks = torch.tensor([_is_sign(token) for token in columns.tokens])[None].expand(len(rows.ids), -1)
    return marks & ~_beside(0)(rows, columns) if rows is columns else marks


def _same_word(rows: Side, columns: Side) -> Tensor:
    return _alike(rows.words, columns.words) & ~_beside(0)(rows, columns)


def _repeated(rows: Side, columns: Side) -> Tensor:
    return _alike(_ordinary(rows), _ordinary(columns)) & ~_beside(0)(rows, columns)


def _induction(rows: Side, columns: Side) -> Tensor:
    """The place after each earlier place of the same token."""
    earlier = _alike(_ordinary(rows), _ordinary(columns)) & (_numbers(rows)[:, None] > _numbers(columns)[None])
    return earlier.roll(1, 1) & (_numbers(columns)[None] > 0)


def _in_step(rows: Side, columns: Side) -> Tensor:
    """Within a token of the place that is as far along as the one that looks."""
    along = _numbers(rows) * (len(columns.ids) - 1) / max(1, len(rows.ids) - 1)
    return (along[:, None] - _numbers(columns)[None]).abs() <= 1


def _numbers(side: Side) -> Tensor:
    return torch.arange(len(side.ids))


def _ordinary(side: Side) -> list[int | None]:
    return [None if word is None else number for number, word in zip(side.ids, side.words, strict=True)]


def _alike(rows: Sequence[int | None], columns: Sequence[int | None]) -> Tensor:
    """Where two lists have the same number."""
    one, two = (torch.tensor([default if value is None else value for value in values])
                for values, default in ((rows, -1), (columns, -2)))  # fmt: skip
    return one[:, None] == two[None]


def _is_sign(token: str) -> bool:
    text = token.strip("▁# ")
    return bool(text) and all(unicodedata.category(char).startswith("P") for char in text)


WITHIN: dict[str, Rule] = {
    "previous": _beside(-1),
    "next": _beside(1),
    "self": _beside(0),
    "first": _first,
    "separator": _separators,
    "punctuation": _punctuation,
    "same word": _same_word,
    "repeated": _repeated,
    "induction": _induction,
}
ACROSS: dict[str, Rule] = {
    "first": _first,
    "separator": _separators,
    "punctuation": _punctuation,
    "in order": _in_step,
}
