"""Where tokens stand to each other: schemes of positions that act inside self-attention instead of on embeddings.

Rotary (Su et al. 2021) turns queries and keys by angles that grow with the place; ALiBi (Press et al. 2022) lowers scores by what
grows with the distance; Shaw et al. (2018) add a vector for each distance, clipped, to keys and to values (one for all heads of a
layer here); T5 (Raffel et al. 2020) adds to scores a number for each bucket of distances. A model has a `Relation`; once a pass
it makes, of who may look at whom, what all layers of a stack are told. Only distances within a text matter; those between texts
of a row are whatever they are, and are masked.
B batch, T query length, S key length, D width, H heads, K head width, C clipping distance.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from qkv.base.rows import Rows
from qkv.parts.cache import Past
from qkv.parts.masks import Alone, Packed, addable
from qkv.parts.sparse import Listed
from qkv.parts.trees import distances, heads_of

BASE = 10000.0  # of rotary's angles, the paper's

Looking = Tensor | Packed | Listed | Alone | None  # who may look at whom


class Turned(NamedTuple):
    """Who may look, and by how much queries and keys are to be turned before they do."""

    may: Looking
    cosine: Tensor  # (B, T, 1, 1, K / 2)
    sine: Tensor

    def turn(self, qkv: Tensor, heads: int) -> Tensor:
        """Each pair of neighbouring dimensions of queries and keys is turned by its angle. (B, T, 3 D) -> (B, T, 3 D)."""
        parts = qkv.unflatten(-1, (3, heads, -1, 2))
        even, odd = parts[:, :, :2].unbind(-1)  # (B, T, 2, H, K / 2)
        turned = [even * self.cosine - odd * self.sine, even * self.sine + odd * self.cosine]
        return torch.cat([torch.stack(turned, -1).to(qkv.dtype), parts[:, :, 2:]], 2).flatten(2)


class Spaced(NamedTuple):
    """Who may look, and which of the vectors for distances stands between a query and a key."""

    may: Tensor | None
    # (B, 1, T, S), from 0 to 2 C, for each kind of distance: in the text, and in its tree where it has one.
    which: tuple[Tensor, ...]


Sight = Looking | Turned | Spaced  # what a layer is told of who may look at whom, and from where


class Relation:
    """How a scheme changes what self-attention is told."""

    fused = False  # whether kernels that know no more than who may look serve it

    def __call__(self, may: Looking, queries: Tensor, keys: Tensor, like: Tensor) -> Sight:
        """Places of queries (B, T) and keys (B, S); attention is computed as it would be from `like`."""
        raise NotImplementedError

    def of_rows(self, may: Looking, rows: Rows, like: Tensor) -> Sight:
        """The same where all places of rows look at each other."""
        return self(may, rows.position, rows.position, like)

    def newest(self, past: Past, like: Tensor) -> Sight:
        """The same for the newest place of each hypothesis, which looks at its past."""
        return self(past.may, *past.positions(like.device), like)


class Unrelated(Relation):
    """Attention is told who may look, and no more."""

    fused = True

    def __call__(self, may: Looking, queries: Tensor, keys: Tensor, like: Tensor) -> Sight:
        return may

    def newest(self, past: Past, like: Tensor) -> Sight:
        return past.may


class Rotary(Relation):
    """The angle is place x 10000^(-2i/K) for dimensions 2i and 2i + 1, so that a score depends on the difference of places."""

    fused = True

    def __init__(self, head_width: int):
        self.head_width = head_width

    def __call__(self, may: Looking, queries: Tensor, keys: Tensor, like: Tensor) -> Sight:
        """A token asks and is asked at the same place, in decoding too: keys are turned once, before they are kept."""
        even = torch.arange(0, self.head_width, 2, device=queries.device)
        angles = (queries[..., None].float() * BASE ** (-even.float() / self.head_width))[:, :, None, None]
        return Turned(may, angles.cos(), angles.sin())


class Distant(Relation):
    """A scheme that knows of two tokens only how far the one is from the other, whatever the distance is measured in."""

    def __call__(self, may: Looking, queries: Tensor, keys: Tensor, like: Tensor) -> Sight:
        assert not isinstance(may, Alone | Listed)  # a model's config has seen to it
        return self.of(may.dense() if isinstance(may, Packed) else may, keys[:, None, :] - queries[:, :, None], like)

    def of(self, may: Tensor | None, distance: Tensor, like: Tensor) -> Sight:
        """What attention is told, given the distance from each query to each key. (B, T, S)."""
        raise NotImplementedError


class Alibi(Distant):
    """A score is lowered by the distance times a slope of its head's own, to both sides alike: nothing but a mask to add."""

    def __init__(self, heads: int):
        self.heads = heads

    def of(self, may: Tensor | None, distance: Tensor, like: Tensor) -> Tensor:
        """-> (B, H, T, S), to be added to scores."""
        bias = (-slopes(self.heads, like.device)[:, None, None] * distance.abs()[:, None]).to(_computed_in(like))
        return bias if may is None else bias + _added(may, like)


class Clipped(Distant):
    """Distances beyond the clipping distance count as that, so that any text has vectors for all of its distances."""

    def __init__(self, distance: int):
        self.distance = distance

    def of(self, may: Tensor | None, distance: Tensor, like: Tensor) -> Spaced:
        return Spaced(None if may is None else _added(may, like), (self.clipped(distance),))

    def clipped(self, distance: Tensor) -> Tensor:
        """The number of each distance's vector. (B, T, S) -> (B, 1, T, S)."""
        return (distance.clamp(-self.distance, self.distance) + self.distance)[:, None]


class Bucketed(Distant, nn.Module):
    """A number for each head and each bucket of distances is learned, and added to scores (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each, the others ever more of them, up to `distance`; beyond, all are one. Where the
    future is seen, half of all buckets are for it.
    """

    def __init__(self, heads: int, buckets: int, distance: int, causal: bool):
        super().__init__()
        self.distance, self.causal = distance, causal
        self.table = nn.Parameter(torch.zeros(buckets, heads))

    def of_rows(self, may: Looking, rows: Rows, like: Tensor) -> Sight:
        """Places of a row are as far from each other as those of a text in it: all rows have the same numbers."""
        numbers = torch.arange(rows.ids.size(1), device=rows.ids.device)[None]
        return self(may, numbers, numbers, like)

    def of(self, may: Tensor | None, distance: Tensor, like: Tensor) -> Tensor:
        """-> (B, H, T, S), to be added to scores."""
        bias = self.table[self.bucket(distance)].permute(0, 3, 1, 2).to(_computed_in(like))
        return bias if may is None else bias + _added(may, like)

    def bucket(self, distance: Tensor) -> Tensor:
        """The number of each distance's bucket, of the same shape."""
        each = len(self.table) if self.causal else len(self.table) // 2  # buckets for one direction
        one_text_per_row = each // 2  # with one distance each
        far = (-distance).clamp(min=0) if self.causal else distance.abs()
        wide = (
            torch.log(far.clamp(min=1).float() / one_text_per_row)
            / math.log(self.distance / one_text_per_row)
            * (each - one_text_per_row)
        )
        found = torch.where(far < one_text_per_row, far, (one_text_per_row + wide.long()).clamp(max=each - 1))
        return found if self.causal else found + each * (distance > 0)


class Branched(Clipped):
    """Distances in the text and in its tree, side by side; see `trees.py`."""

    def of_rows(self, may: Looking, rows: Rows, like: Tensor) -> Sight:
        near = self(may, rows.position, rows.position, like)
        assert isinstance(near, Spaced)
        return near._replace(which=(*near.which, self.clipped(distances(rows.position, heads_of(rows)))))


class DistanceVectors(nn.Module):
    """A layer's vectors for distances from -C to C, the same for all heads: one to add to keys and one to values."""

    def __init__(self, distance: int, head_width: int):
        super().__init__()
        self.keys = nn.Parameter(torch.empty(2 * distance + 1, head_width))
        self.values = nn.Parameter(torch.empty(2 * distance + 1, head_width))
        for table in (self.keys, self.values):
            nn.init.xavier_uniform_(table)

    def scores(self, q: Tensor, which: Tensor) -> Tensor:
        """q times the vector that is added to each key. q (B, H, T, K), which (B, 1, T, S) -> (B, H, T, S)."""
        # A query meets few different vectors: far fewer products than pairs of places.
        return (q @ self.keys.mT).gather(-1, which.expand(*q.shape[:-1], -1))

    def found(self, weights: Tensor, which: Tensor) -> Tensor:
        """What the vectors added to values add to the result. weights (B, H, T, S) -> (B, H, T, K)."""
        sums = weights.new_zeros(*weights.shape[:-1], self.values.size(0), dtype=torch.float32)
        sums = sums.scatter_add(-1, which.expand_as(weights), weights.float())
        return sums.to(weights.dtype) @ self.values


def slopes(heads: int, device: torch.device | None = None) -> Tensor:
    """ALiBi's: 2^(-8/n), 2^(-16/n), ... for n heads, a power of two; for some more, every other one of those for 2n too. (H,)."""
    n = 2 ** int(math.log2(heads))
    numbers = torch.arange(heads, device=device)  # made on the device, where a graph may be recorded
    return 2.0 ** (-8 / n * torch.where(numbers < n, numbers + 1, numbers - n + 0.5))


def make_relation(kind: str, width: int, heads: int, distance: int) -> Relation:
    """What the scheme of that name does inside attention."""
    if kind == "rotary":
        return Rotary(width // heads)
    if kind == "alibi":
        return Alibi(heads)
    if kind in ("structural", "structural-relative"):
        return Branched(distance)
    return Clipped(distance) if kind == "relative" else Unrelated()


def _computed_in(like: Tensor) -> torch.dtype:
    """The type that scores will have."""
    device = like.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype


def _added(may: Tensor, like: Tensor) -> Tensor:
    return addable(may, _computed_in(like)) if may.dtype == torch.bool else may
