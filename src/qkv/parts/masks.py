"""A mask is a rule: (text b, query place, key place) -> may look. True = may look; rules combine with & and |.

B batch, T query length, S key length.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Rule:
    """Who may look at whom, as a function of index tensors that broadcast against each other."""

    may: Callable[[Tensor, Tensor, Tensor], Tensor]

    def __and__(self, other: "Rule") -> "Rule":
        return Rule(lambda b, q, k: self.may(b, q, k) & other.may(b, q, k))

    def __or__(self, other: "Rule") -> "Rule":
        return Rule(lambda b, q, k: self.may(b, q, k) | other.may(b, q, k))

    def dense(self, batch: int, queries: int, keys: int, device: torch.device | None = None) -> Tensor:
        """The rule as a boolean matrix. -> (B, 1, T, S)."""
        b = torch.arange(batch, device=device)[:, None, None]
        q = torch.arange(queries, device=device)[None, :, None]
        k = torch.arange(keys, device=device)[None, None, :]
        return self.may(b, q, k).expand(batch, queries, keys)[:, None]


def causal() -> Rule:
    """A place sees itself and what came before it."""
    return Rule(lambda b, q, k: q >= k)


def same_text(queries: Tensor, keys: Tensor) -> Rule:
    """A token sees its own text. queries (B, T) and keys (B, S) say which text each place belongs to, 0 = padding.

    Padding may look anywhere: nobody reads what it finds, and a softmax over nothing would not be a number.
    """
    return Rule(lambda b, q, k: (queries[b, q] == keys[b, k]) | (queries[b, q] == 0))


def in_order(queries: Tensor, keys: Tensor, strictly: bool) -> Rule:
    """A place sees those of lower ranks, and unless `strictly` those of its own. queries (B, T) and keys (B, S) are ranks."""
    return Rule(lambda b, q, k: keys[b, k] < queries[b, q] if strictly else keys[b, k] <= queries[b, q])


def beside_their_past(text: Tensor, position: Tensor, length: int) -> Rule:
    """Packed rows of `length` tokens and as many queries after them, one for each token, which sees what comes before that token.

    Tokens see their past. All see themselves, and nobody sees a query of another place. text and place (B, 2 length).
    """
    before = Rule(lambda b, q, k: (k < length) & (position[b, k] < position[b, q]))
    return same_text(text, text) & (before | Rule(lambda b, q, k: k == q))


@dataclass(frozen=True, eq=False)
class Packed:
    """The rule of packed rows, unmade, as the kernel for them reads it: a token sees its own text, or only the past of it."""

    queries: Tensor  # (B, T) the text of each place, 0 = padding, before or after texts that lie side by side and rise in number
    keys: Tensor  # (B, S)
    causal: bool

    @functools.cached_property
    def seen(self) -> tuple[Tensor, Tensor]:
        """From where to where the keys of each query's text lie: looked up once for all layers. -> two of (B, T)."""
        return _stretches(self.queries, self.keys)

    @functools.cached_property
    def seeing(self) -> tuple[Tensor, Tensor]:
        """The same of the queries of each key's text. -> two of (B, S)."""
        return self.seen if self.keys is self.queries else _stretches(self.keys, self.queries)

    def dense(self) -> Tensor:
        """The same as a boolean matrix. -> (B, 1, T, S)."""
        rule = same_text(self.queries, self.keys)
        rule = rule & causal() if self.causal else rule
        return rule.dense(self.queries.size(0), self.queries.size(1), self.keys.size(1), self.queries.device)


def _stretches(text: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """From where to where each text (B, T) lies in other rows (B, S): nowhere, from the end to the beginning, for padding."""
    ended = others.flip(1).cummax(1).values.flip(1) == 0  # padding after the texts, not that in front of them
    rising = others.masked_fill(ended, torch.iinfo(others.dtype).max)
    begin, end = (torch.searchsorted(rising, text.contiguous(), right=right, out_int32=True) for right in (False, True))
    return begin.masked_fill_(text == 0, others.size(1)), end.masked_fill_(text == 0, 0)


class Spans(NamedTuple):
    """Which keys each place sees, where these lie side by side: from the first to the last of them, counted in the row."""

    first: Tensor  # (B, T)
    last: Tensor  # (B, T); before the first one in padding, which nobody reads

    def rule(self) -> Rule:
        """The same as a rule; padding may look anywhere, as with `same_text`."""
        first, last = self
        inside = Rule(lambda b, q, k: (first[b, q] <= k) & (k <= last[b, q]))
        return inside | Rule(lambda b, q, k: last[b, q] < first[b, q])

    def dense(self) -> Tensor:
        """The same as a boolean matrix. -> (B, 1, T, T)."""
        rows, positions = self.first.shape
        return self.rule().dense(rows, positions, positions, self.first.device)


class Alone(NamedTuple):
    """Rows of one text each, for attention to mixtures of all places of a row."""

    real: Tensor  # (B, T) which places are no padding
    shared: nn.Module | None  # what mixes them, where it is the same in all layers


def addable(may: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask as numbers to add to scores: made once, it serves every layer and step."""
    # Not minus infinity: where a place may see nothing at all, such as a source without tokens, that is not a number.
    return torch.zeros_like(may, dtype=dtype).masked_fill_(~may, torch.finfo(dtype).min)
