"""Head patterns: known patterns of attention heads, each with the share of attention that follows it.

After Clark et al. 2019 ("What Does BERT Look At?", section 3), Voita et al. 2019 and, for induction, Olsson et al. 2022. A score
is the mean share of attention that follows the pattern, over the positions that could follow it. A pattern is reported where the
score is large, and much larger than that of uniform attention. H heads, T query positions, S key positions.
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.lens.inspectors import AttentionMap
from qkv.lens.tokenized_text import TokenizedText

MIN_SCORE = 0.4  # least share of attention
MIN_LIFT = 3.0  # least ratio to the score of uniform attention
MIN_POSITIONS = 3  # least number of positions that could follow a pattern
MIN_ENTROPY = 0.95  # of the maximal entropy, for uniform attention


@dataclass(frozen=True)
class HeadPattern:
    """A pattern that a head's attention follows."""

    map: str  # name of the attention map
    head: int
    pattern: str
    score: float
    description: str


DESCRIPTIONS = {
    "previous": "Attends to the token just before.",
    "next": "Attends to the token just after.",
    "self": "Attends to the token itself.",
    "first": "Attends to the first token, where heads often rest when they have nothing to look for.",
    "separator": "Attends to the mark that ends the text, where heads often rest when they have nothing to look for.",
    "punctuation": "Attends to full stops, commas and other signs.",
    "same word": "Attends to the other pieces of the same word.",
    "repeated": "Attends to other occurrences of the same token.",
    "induction": "Attends to the token that followed the same token earlier: the text may repeat itself.",
    "everywhere": "Attends to all tokens about alike.",
    "in order": "Goes through the source in step with the target, from left to right.",
}


def find_head_patterns(maps: Sequence[AttentionMap], texts: dict[str, TokenizedText]) -> list[HeadPattern]:
    """Find the patterns of all heads, highest score first."""
    found: list[HeadPattern] = []
    for one in maps:
        visible = (one.weights > 0).any(0)  # masked positions are 0 in every head
        for pattern, rule in (CROSS_RULES if one.part == "cross" else SELF_RULES).items():
            wanted = rule(texts[one.rows], texts[one.columns]) & visible
            asked = wanted.any(1) & (visible & ~wanted).any(1)  # positions that could follow the pattern, and could do otherwise
            if int(asked.sum()) < MIN_POSITIONS:
                continue
            scores = (one.weights * wanted).sum(-1)[:, asked].mean(-1)  # (H,)
            uniform = float((wanted.sum(1) / visible.sum(1))[asked].mean())
            for head, score in enumerate(scores.tolist()):
                if score >= max(MIN_SCORE, MIN_LIFT * uniform):
                    found.append(HeadPattern(one.name, head, pattern, score, DESCRIPTIONS[pattern]))
        for head, score in _uniform_heads(one.weights, visible):
            found.append(HeadPattern(one.name, head, "everywhere", score, DESCRIPTIONS["everywhere"]))
    return sorted(found, key=lambda pattern: -pattern.score)


def _uniform_heads(weights: Tensor, visible: Tensor) -> list[tuple[int, float]]:
    """Return the heads with nearly uniform attention, and their entropy as a share of the maximum."""
    asked = visible.sum(1) > MIN_POSITIONS
    if int(asked.sum()) < MIN_POSITIONS:
        return []
    entropy = -(weights * weights.clamp(min=1e-12).log()).sum(-1)[:, asked]
    scores = (entropy / visible.sum(1)[asked].log()).mean(-1).clamp(max=1.0).tolist()
    return [(head, score) for head, score in enumerate(scores) if score >= MIN_ENTROPY]


# Rules: the key positions that a pattern attends to from each query position, (T, S)

PatternRule = Callable[[TokenizedText, TokenizedText], Tensor]


def _offset(by: int) -> PatternRule:
    return lambda rows, columns: _positions(rows)[:, None] + by == _positions(columns)[None]


def _first(rows: TokenizedText, columns: TokenizedText) -> Tensor:
    own = _positions(rows)[:, None] == 0 if rows is columns else torch.zeros(len(rows.ids), 1, dtype=torch.bool)
    return (_positions(columns)[None] == 0) & ~own


def _separators(rows: TokenizedText, columns: TokenizedText) -> Tensor:
    """Tokens that end a text, except from such tokens themselves."""
    own = torch.tensor(rows.is_end)[:, None] if rows is columns else torch.zeros(len(rows.ids), 1, dtype=torch.bool)
    return torch.tensor(columns.is_end)[None] & ~own


def _punctuation(rows: TokenizedText, columns: TokenizedText) -> Tensor:
    texts = [token.strip("▁# ") for token in columns.tokens]
    signs = [bool(text) and all(unicodedata.category(char).startswith("P") for char in text) for text in texts]
    marks = torch.tensor(signs)[None].expand(len(rows.ids), -1)
    return marks & ~_offset(0)(rows, columns) if rows is columns else marks


def _same_word(rows: TokenizedText, columns: TokenizedText) -> Tensor:
    return _equal(rows.word_ids, columns.word_ids) & ~_offset(0)(rows, columns)


def _repeated(rows: TokenizedText, columns: TokenizedText) -> Tensor:
    return _equal(_ordinary_ids(rows), _ordinary_ids(columns)) & ~_offset(0)(rows, columns)


def _induction(rows: TokenizedText, columns: TokenizedText) -> Tensor:
    """The position after each earlier occurrence of the same token."""
    earlier = _equal(_ordinary_ids(rows), _ordinary_ids(columns)) & (_positions(rows)[:, None] > _positions(columns)[None])
    return earlier.roll(1, 1) & (_positions(columns)[None] > 0)


def _diagonal(rows: TokenizedText, columns: TokenizedText) -> Tensor:
    """Positions within one token of the same relative position in the source."""
    along = _positions(rows) * (len(columns.ids) - 1) / max(1, len(rows.ids) - 1)
    return (along[:, None] - _positions(columns)[None]).abs() <= 1


def _positions(text: TokenizedText) -> Tensor:
    return torch.arange(len(text.ids))


def _ordinary_ids(text: TokenizedText) -> list[int | None]:
    """Return the ids of a text, None for special tokens."""
    return [None if word is None else token for token, word in zip(text.ids, text.word_ids, strict=True)]


def _equal(rows: Sequence[int | None], columns: Sequence[int | None]) -> Tensor:
    """Compare all pairs of two lists; None equals nothing. -> (T, S)."""
    a = torch.tensor([-1 if value is None else value for value in rows])
    b = torch.tensor([-2 if value is None else value for value in columns])
    return a[:, None] == b[None]


SELF_RULES: dict[str, PatternRule] = {
    "previous": _offset(-1),
    "next": _offset(1),
    "self": _offset(0),
    "first": _first,
    "separator": _separators,
    "punctuation": _punctuation,
    "same word": _same_word,
    "repeated": _repeated,
    "induction": _induction,
}
CROSS_RULES: dict[str, PatternRule] = {
    "first": _first,
    "separator": _separators,
    "punctuation": _punctuation,
    "in order": _diagonal,
}
