"""Attention masks. A mask is a rule, and becomes a dense matrix only where an engine needs one.

A `Rule` is a function of (row b, query position, key position); True = attend; rules combine with & and |. An `AttentionMask` is
what layers use: it holds a rule in the form that one engine reads, and computes attention with that engine. A new kind of mask
is one subclass; only `dense` must be given.
B batch, T query length, S key length, D width, H heads, K head width.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from qkv.parts import kernels
from qkv.parts.dot_product import additive, attend, is_recording, join_heads, split_heads

if TYPE_CHECKING:
    from qkv.parts.attention import SelfAttention

KeysValues = Tensor | tuple[Tensor, Tensor]  # keys and values of cross-attention, as the mask's engine reads them


# Rules


@dataclass(frozen=True)
class Rule:
    """Which keys a query attends to, as a function of index tensors that broadcast against each other."""

    allows: Callable[[Tensor, Tensor, Tensor], Tensor]

    def __and__(self, other: "Rule") -> "Rule":
        return Rule(lambda b, q, k: self.allows(b, q, k) & other.allows(b, q, k))

    def __or__(self, other: "Rule") -> "Rule":
        return Rule(lambda b, q, k: self.allows(b, q, k) | other.allows(b, q, k))

    def dense(self, batch: int, queries: int, keys: int, device: torch.device | None = None) -> Tensor:
        """Return the rule as a boolean matrix. -> (B, 1, T, S)."""
        b = torch.arange(batch, device=device)[:, None, None]
        q = torch.arange(queries, device=device)[None, :, None]
        k = torch.arange(keys, device=device)[None, None, :]
        return self.allows(b, q, k).expand(batch, queries, keys)[:, None]


def causal(before: int = 0) -> Rule:
    """Allow each position itself and earlier ones; so many keys stand before the first query."""
    return Rule(lambda b, q, k: q + before >= k)


def same_text(queries: Tensor, keys: Tensor) -> Rule:
    """Allow each token its own text. queries (B, T) and keys (B, S) hold the number of each position's text, 0 = padding.

    Padding attends to everything: nobody reads its result, and a softmax over nothing would give NaN.
    """
    return Rule(lambda b, q, k: (queries[b, q] == keys[b, k]) | (queries[b, q] == 0))


def in_order(queries: Tensor, keys: Tensor) -> Rule:
    """Allow ranks up to that of the query. queries (B, T) and keys (B, S) are ranks."""
    return Rule(lambda b, q, k: keys[b, k] <= queries[b, q])


def tokens_and_probes(text: Tensor, position: Tensor, length: int) -> Rule:
    """Allow causal attention to tokens for packed rows of `length` tokens followed by one probe for each token.

    A probe sees the tokens before its own position, and itself; nobody else sees a probe. text and position (B, 2 length).
    """
    earlier = Rule(lambda b, q, k: (k < length) & (position[b, k] < position[b, q]))
    return same_text(text, text) & (earlier | Rule(lambda b, q, k: k == q))


class VisibleRange(NamedTuple):
    """The contiguous range of keys that each position attends to, by its first and last index in the row."""

    first: Tensor  # (B, T)
    last: Tensor  # (B, T); below `first` in padding

    def rule(self) -> Rule:
        """Return the range as a rule; padding attends to everything, as in `same_text`."""
        first, last = self
        inside = Rule(lambda b, q, k: (first[b, q] <= k) & (k <= last[b, q]))
        return inside | Rule(lambda b, q, k: last[b, q] < first[b, q])

    def dense(self) -> Tensor:
        """Return the range as a boolean matrix. -> (B, 1, T, T)."""
        rows, width = self.first.shape
        return self.rule().dense(rows, width, width, self.first.device)


# Masks


class AttentionMask(ABC):
    """A mask for all layers of one pass, and the engine that computes attention with it."""

    reads_bias = False  # whether `with_bias` is there: the engine adds a bias for each head and distance to scores

    @abstractmethod
    def dense(self) -> Tensor | None:
        """Return the mask as a matrix: boolean, True = attend, or additive; None allows everything. -> (B, 1 or H, T, S)."""

    def with_bias(self, bias: Tensor) -> "AttentionMask":
        """Return the same mask with a bias (H, 2 T - 1) of scores: entry T - 1 - i + j for query i and key j."""
        raise NotImplementedError

    def attend(self, qkv: Tensor, layer: "SelfAttention") -> Tensor:
        """Compute self-attention from queries, keys and values side by side. (B, T, 3 D) -> (B, T, D)."""
        q, k, v = split_heads(qkv, 3, layer.heads)
        return join_heads(self.attend_heads(q, k, v, layer))

    def attend_heads(self, q: Tensor, k: Tensor, v: Tensor, layer: "SelfAttention") -> Tensor:
        """Compute self-attention of separate heads. q (B, H, T, K), k and v (B, H, S, K) -> (B, H, T, K)."""
        return attend(q, k, v, self.dense())

    def split_memory(self, kv: Tensor, heads: int) -> KeysValues:
        """Bring keys and values of cross-attention, (B, S, 2 D), into the form that `attend_cross` reads."""
        k, v = split_heads(kv, 2, heads)
        return k, v

    def attend_cross(self, q: Tensor, memory: KeysValues, heads: int) -> Tensor:
        """Compute cross-attention. q (B, T, D), memory from `split_memory` -> (B, T, D)."""
        k, v = memory
        return join_heads(attend(q.unflatten(-1, (heads, -1)).transpose(1, 2), k, v, self.dense()))


@dataclass(frozen=True, eq=False)
class DenseMask(AttentionMask):
    """A matrix, for torch's attention."""

    values: Tensor | None  # (B, 1 or H, T, S) boolean, True = attend, or additive; None allows everything

    def dense(self) -> Tensor | None:
        return self.values


@dataclass(frozen=True, eq=False)
class PackedMask(AttentionMask):
    """Packed rows, for our kernel: each token attends to its own text, or to the past of it."""

    queries: Tensor  # (B, T) text of each position, 0 = padding; texts are contiguous, in rising order, padding before or after
    keys: Tensor  # (B, S)
    causal: bool  # queries are the last T of the S positions

    reads_bias = True

    @functools.cached_property
    def key_range(self) -> tuple[Tensor, Tensor]:
        """The first key of each query's text, and the one after its last. -> two of (B, T)."""
        return _text_ranges(self.queries, self.keys)

    @functools.cached_property
    def query_range(self) -> tuple[Tensor, Tensor]:
        """The first query of each key's text, and the one after its last. -> two of (B, S)."""
        return self.key_range if self.keys is self.queries else _text_ranges(self.keys, self.queries)

    def dense(self) -> Tensor:
        rule = same_text(self.queries, self.keys)
        rule = rule & causal(self.keys.size(1) - self.queries.size(1)) if self.causal else rule
        return rule.dense(self.queries.size(0), self.queries.size(1), self.keys.size(1), self.queries.device)

    def with_bias(self, bias: Tensor) -> "BiasedPackedMask":
        return BiasedPackedMask(self.queries, self.keys, self.causal, kernels.bias.by_distance(bias))

    def attend(self, qkv: Tensor, layer: "SelfAttention") -> Tensor:
        return kernels.attention.attend_self(qkv, self, layer.heads)

    def split_memory(self, kv: Tensor, heads: int) -> Tensor:
        return kv  # the kernel reads keys and values where the projection put them

    def attend_cross(self, q: Tensor, memory: KeysValues, heads: int) -> Tensor:
        assert isinstance(memory, Tensor)
        return kernels.attention.attend_cross(q, memory, self, heads)


@dataclass(frozen=True, eq=False)
class BiasedPackedMask(PackedMask):
    """Packed rows that attend to themselves, with a bias that depends on head and distance."""

    bias: Tensor  # (1, H, T, T or more), float32, as kernels/bias.py describes it

    def dense(self) -> Tensor:
        """Return mask and bias. -> (B, H, T, T), additive."""
        return additive(super().dense(), self.bias.dtype) + self.bias[..., : self.keys.size(1)]

    def attend(self, qkv: Tensor, layer: "SelfAttention") -> Tensor:
        return kernels.attention.attend_self(qkv, self, layer.heads, self.bias)


def packed_mask(queries: Tensor, keys: Tensor, head_width: int, like: Tensor, causal: bool = False) -> AttentionMask:
    """Build the mask for packed rows: symbolic for our kernel where it can run, dense otherwise.

    Dtype and device follow `like`.
    """
    mask = PackedMask(queries, keys, causal)
    continued = causal and queries.size(1) < keys.size(1)  # the kernel does not know of keys before the queries
    return mask if kernel_attends(head_width, like) and not continued else DenseMask(mask.dense())


def kernel_attends(head_width: int, like: Tensor) -> bool:
    """Return whether our kernels compute attention with heads of this width; dtype and device follow `like`."""
    return head_width <= kernels.WIDEST_HEAD and not is_recording() and kernels.usable(like)


def _text_ranges(text: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each text (B, T) begins and ends in other rows (B, S); padding gets an empty range, from S to 0."""
    ended = others.flip(1).cummax(1).values.flip(1) == 0  # padding after the texts, not that in front of them
    rising = others.masked_fill(ended, torch.iinfo(others.dtype).max)
    begin, end = (torch.searchsorted(rising, text.contiguous(), right=right, out_int32=True) for right in (False, True))
    return begin.masked_fill_(text == 0, others.size(1)), end.masked_fill_(text == 0, 0)
