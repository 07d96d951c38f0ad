"""Position schemes that act inside self-attention instead of on embeddings.

Rotary (Su et al. 2021) rotates queries and keys by angles that grow with the position; ALiBi (Press et al. 2022) lowers scores in
proportion to the distance; Shaw et al. (2018) add a vector for each clipped distance to keys and to values (one for all heads of
a layer here); T5 (Raffel et al. 2020) adds to scores a learned number for each bucket of distances. A scheme makes, once a pass,
the `AttentionContext` of all layers; a new scheme is one class. Only distances within a text matter: pairs of different texts of
a row are masked.
B batch, T query length, S key length, D width, H heads, K head width, C clipping distance.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from qkv.base.rows import Rows
from qkv.parts.cache import KVCache
from qkv.parts.context import AttentionContext, DecodeStepContext, RotaryAngles
from qkv.parts.dot_product import additive, attention_weights
from qkv.parts.masks import AttentionMask, DenseMask
from qkv.parts.trees import heads_of, tree_distances

if TYPE_CHECKING:
    from qkv.parts.attention import SelfAttention

BASE = 10000.0  # of rotary's angles, the paper's


class PositionScheme(ABC):
    """The part of a position scheme that acts inside self-attention."""

    fused = False  # whether the fused decoding kernel, which knows nothing but how many positions are cached, serves it

    @abstractmethod
    def context(self, mask: AttentionMask, queries: Tensor, keys: Tensor, like: Tensor) -> AttentionContext:
        """Build the context for positions of queries (B, T) and keys (B, S); dtype and device follow `like`."""

    def context_of_rows(self, mask: AttentionMask, rows: Rows, like: Tensor) -> AttentionContext:
        """Build the context for rows that attend to themselves."""
        return self.context(mask, rows.position, rows.position, like)

    def decode_context(self, cache: KVCache, like: Tensor) -> DecodeStepContext:
        """Build the context for the newest token of each text, which attends to all that is cached."""
        context = self.context(DenseMask(cache.mask), *cache.positions(like.device), like)
        return DecodeStepContext(context.mask, context.rotary, fused=self.fused)

    def layer_weights(self, head_width: int) -> nn.ModuleList | None:
        """Build the weights that each layer learns for this scheme; None where it learns none."""
        return None


class NoBias(PositionScheme):
    """The mask alone: attention itself knows no positions."""

    fused = True

    def context(self, mask: AttentionMask, queries: Tensor, keys: Tensor, like: Tensor) -> AttentionContext:
        return AttentionContext(mask)

    def decode_context(self, cache: KVCache, like: Tensor) -> DecodeStepContext:
        return DecodeStepContext(DenseMask(cache.mask), fused=True)


class RotaryPositions(PositionScheme):
    """Rotation by position x 10000^(-2i/K) of dimensions 2i and 2i + 1: a score depends on the difference of positions."""

    fused = True

    def __init__(self, head_width: int):
        self.head_width = head_width

    def context(self, mask: AttentionMask, queries: Tensor, keys: Tensor, like: Tensor) -> AttentionContext:
        """Build the context from the queries' positions: keys are rotated with them, in decoding before they are cached."""
        even = torch.arange(0, self.head_width, 2, device=queries.device)
        angles = (queries[..., None].float() * BASE ** (-even.float() / self.head_width))[:, :, None, None]
        return AttentionContext(mask, RotaryAngles(angles.cos(), angles.sin()))


class DistanceScheme(PositionScheme):
    """A scheme that depends only on the distance from query to key, in any unit."""

    def context(self, mask: AttentionMask, queries: Tensor, keys: Tensor, like: Tensor) -> AttentionContext:
        return AttentionContext(self.mask_by_distance(mask.dense(), keys[:, None, :] - queries[:, :, None], like))

    @abstractmethod
    def mask_by_distance(self, mask: Tensor | None, distance: Tensor, like: Tensor) -> DenseMask:
        """Join a dense mask with what the scheme makes of the distance from each query to each key, (B, T, S)."""


class DistanceBias(DistanceScheme):
    """A scheme that adds a bias to scores, which depends on head and distance alone."""

    def context_of_rows(self, mask: AttentionMask, rows: Rows, like: Tensor) -> AttentionContext:
        if not mask.reads_bias:
            return super().context_of_rows(mask, rows, like)
        width = rows.ids.size(1)  # distances within a text are the same in the row
        return AttentionContext(mask.with_bias(self.bias(torch.arange(1 - width, width, device=like.device))))

    @abstractmethod
    def bias(self, distance: Tensor) -> Tensor:
        """Return the bias of each head for distances from query to key. (N,) -> (H, N), float32."""


class AlibiBias(DistanceBias):
    """A bias of minus the distance times a slope for each head, on both sides alike."""

    def __init__(self, heads: int):
        self.heads = heads

    def bias(self, distance: Tensor) -> Tensor:
        return -slopes(self.heads, distance.device)[:, None] * distance.abs()

    def mask_by_distance(self, mask: Tensor | None, distance: Tensor, like: Tensor) -> DenseMask:
        """-> (B, H, T, S), additive."""
        bias = (-slopes(self.heads, like.device)[:, None, None] * distance.abs()[:, None]).to(_score_dtype(like))
        return DenseMask(bias if mask is None else bias + _additive(mask, like))


class ShawRelative(DistanceScheme):
    """Learned vectors for clipped distances, which each layer adds to its keys and values."""

    def __init__(self, max_distance: int):
        self.max_distance = max_distance

    def mask_by_distance(self, mask: Tensor | None, distance: Tensor, like: Tensor) -> "RelativeMask":
        return RelativeMask(None if mask is None else _additive(mask, like), (self.clip(distance),))

    def clip(self, distance: Tensor) -> Tensor:
        """Return the index of each distance's vector, from 0 to 2 C. (B, T, S) -> (B, 1, T, S)."""
        return (distance.clamp(-self.max_distance, self.max_distance) + self.max_distance)[:, None]

    def layer_weights(self, head_width: int) -> nn.ModuleList:
        return nn.ModuleList([RelativeEmbedding(self.max_distance, head_width)])


class TreeRelative(ShawRelative):
    """Learned vectors for distances in the text and, beside them, for distances in its dependency tree; see `trees.py`."""

    def context_of_rows(self, mask: AttentionMask, rows: Rows, like: Tensor) -> AttentionContext:
        distance = rows.position[:, None, :] - rows.position[:, :, None]
        indices = (self.clip(distance), self.clip(tree_distances(rows.position, heads_of(rows))))
        dense = mask.dense()
        return AttentionContext(RelativeMask(None if dense is None else _additive(dense, like), indices))

    def layer_weights(self, head_width: int) -> nn.ModuleList:
        return nn.ModuleList(RelativeEmbedding(self.max_distance, head_width) for _ in range(2))


class T5RelativeBias(DistanceBias, nn.Module):
    """A learned bias for each head and each bucket of distances (Raffel et al. 2020, section 2.1); all layers share it.

    Half of the buckets hold one distance each, the others logarithmically more, up to `max_distance`; the last one holds all
    beyond. Unless causal, half of all buckets are for keys after the query.
    """

    def __init__(self, heads: int, buckets: int, max_distance: int, causal: bool):
        super().__init__()
        self.max_distance, self.causal = max_distance, causal
        self.table = nn.Parameter(torch.zeros(buckets, heads))

    def context_of_rows(self, mask: AttentionMask, rows: Rows, like: Tensor) -> AttentionContext:
        """Build the context from positions in the row: distances within a text are the same, and all rows share one bias."""
        numbers = torch.arange(rows.ids.size(1), device=rows.ids.device)[None]
        return super().context_of_rows(mask, rows._replace(position=numbers), like)

    def bias(self, distance: Tensor) -> Tensor:
        return self.table[self.bucket(distance)].float().T.contiguous()

    def mask_by_distance(self, mask: Tensor | None, distance: Tensor, like: Tensor) -> DenseMask:
        """-> (B, H, T, S), additive."""
        bias = self.table[self.bucket(distance)].permute(0, 3, 1, 2).to(_score_dtype(like))
        return DenseMask(bias if mask is None else bias + _additive(mask, like))

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance, in the same shape."""
        buckets = len(self.table) if self.causal else len(self.table) // 2  # for one direction
        exact = buckets // 2  # buckets that hold one distance each
        far = (-distance).clamp(min=0) if self.causal else distance.abs()
        log = torch.log(far.clamp(min=1).float() / exact) / math.log(self.max_distance / exact) * (buckets - exact)
        found = torch.where(far < exact, far, (exact + log.long()).clamp(max=buckets - 1))
        return found if self.causal else found + buckets * (distance > 0)


class RelativeEmbedding(nn.Module):
    """A layer's vectors for distances from -C to C, the same for all heads: one to add to keys and one to values."""

    def __init__(self, max_distance: int, head_width: int):
        super().__init__()
        self.keys = nn.Parameter(torch.empty(2 * max_distance + 1, head_width))
        self.values = nn.Parameter(torch.empty(2 * max_distance + 1, head_width))
        for table in (self.keys, self.values):
            nn.init.xavier_uniform_(table)

    def scores(self, q: Tensor, index: Tensor) -> Tensor:
        """Return q times the vector that is added to each key. q (B, H, T, K), index (B, 1, T, S) -> (B, H, T, S)."""
        # A query meets few different vectors: far fewer products than pairs of positions.
        return (q @ self.keys.mT).gather(-1, index.expand(*q.shape[:-1], -1))

    def weighted_values(self, weights: Tensor, index: Tensor) -> Tensor:
        """Return the weighted sum of the vectors that are added to values. weights (B, H, T, S) -> (B, H, T, K)."""
        sums = weights.new_zeros(*weights.shape[:-1], self.values.size(0), dtype=torch.float32)
        sums = sums.scatter_add(-1, index.expand_as(weights), weights.float())
        return sums.to(weights.dtype) @ self.values


@dataclass(frozen=True, eq=False)
class RelativeMask(DenseMask):
    """An additive mask, and which of a layer's relative embeddings stands between each query and key."""

    indices: tuple[Tensor, ...]  # (B, 1, T, S) each, from 0 to 2 C: distances in the text, and in its tree where it has one

    def attend_heads(self, q: Tensor, k: Tensor, v: Tensor, layer: "SelfAttention") -> Tensor:
        """Compute attention with relative embeddings added to keys and values (Shaw et al. 2018, section 3.2)."""
        assert layer.relative is not None
        scaled, mask = q * q.size(-1) ** -0.5, self.values
        for embedding, index in zip(layer.relative, self.indices, strict=True):
            bias = embedding.scores(scaled, index)  # type: ignore[operator]
            mask = bias if mask is None else bias + mask
        weights = attention_weights(q, k, mask)
        found = weights.to(v.dtype) @ v
        for embedding, index in zip(layer.relative, self.indices, strict=True):
            found = found + embedding.weighted_values(weights, index)  # type: ignore[operator]
        return found


def make_position_scheme(kind: str, width: int, heads: int, max_distance: int) -> PositionScheme:
    """Build the position scheme of that name, as far as it acts inside attention."""
    schemes: dict[str, Callable[[], PositionScheme]] = {
        "rotary": lambda: RotaryPositions(width // heads),
        "alibi": lambda: AlibiBias(heads),
        "relative": lambda: ShawRelative(max_distance),
        "structural": lambda: TreeRelative(max_distance),
        "structural-relative": lambda: TreeRelative(max_distance),
    }
    return schemes.get(kind, NoBias)()


def slopes(heads: int, device: torch.device | None = None) -> Tensor:
    """Return ALiBi's slopes, (H,): 2^(-8/n), 2^(-16/n), ... for n heads, the largest power of two up to H.

    The remaining heads get every other slope of 2n heads.
    """
    n = 2 ** int(math.log2(heads))
    numbers = torch.arange(heads, device=device)  # made on the device, where a CUDA graph may be captured
    return 2.0 ** (-8 / n * torch.where(numbers < n, numbers + 1, numbers - n + 0.5))


def _score_dtype(like: Tensor) -> torch.dtype:
    """Return the dtype that attention scores will have."""
    device = like.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    return additive(mask, _score_dtype(like)) if mask.dtype == torch.bool else mask
