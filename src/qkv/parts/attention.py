"""Scaled dot-product and multi-head attention ("Attention Is All You Need", section 3.2): one attention, several engines.

`sdpa` is torch's fused kernel. `rows` is ours for packed rows on a GPU (`kernels/attention.py`), chosen by `who_may_look`.
`listed` (`sparse.py`) computes only what a pattern shows. `open` computes the same step by step and gives the weights to whoever
records them, inside `recording()`; where it is the faster one, it is used for speed too, and always where vectors for distances
are added to values. How far tokens are from each other is told together with who may look at whom (`relative.py`).
B batch, T query length, S key length, D width, H heads, K head width.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.parts import kernels
from qkv.parts.cache import Cache, FixedPast
from qkv.parts.linear import Linear
from qkv.parts.masks import Alone, Packed, addable
from qkv.parts.patterns import Pattern
from qkv.parts.relative import DistanceVectors, Sight, Spaced, Turned
from qkv.parts.sparse import Listed, attend_listed, listed

# With a boolean mask in bf16, cuDNN's kernel gives gradients that are not numbers once scores grow large (seen with torch 2.11
# on an H200: the loss and the other kernels' gradients were finite on the same batch). It must not be chosen.
torch.backends.cuda.enable_cudnn_sdp(False)

# Of this thread (or task) alone: a service looks inside a model in one thread while another one translates with it.
_recorders: ContextVar[tuple[list[Tensor], ...]] = ContextVar("recorders", default=())


@contextlib.contextmanager
def recording() -> Iterator[list[Tensor]]:
    """Inside, every attention of this thread appends its weights (B, H, T, S) to the list given, in order of computation."""
    weights: list[Tensor] = []
    before = _recorders.set((*_recorders.get(), weights))
    try:
        yield weights
    finally:
        _recorders.reset(before)


def recorded() -> bool:
    """Whether anybody records this thread's attention now."""
    return bool(_recorders.get())


def tell(weights: Tensor) -> None:
    """Give weights (B, H, T, S) to whoever records them."""
    for recorder in _recorders.get():
        recorder.append(weights.detach())


def who_may_look(queries: Tensor, keys: Tensor, head_width: int, like: Tensor, causal: bool = False) -> Tensor | Packed:
    """The rule of packed rows as attention over rows such as `like` will want it: unmade for the kernel, else as a matrix."""
    rule = Packed(queries, keys, causal)
    return rule if head_width <= kernels.WIDEST_HEAD and not recorded() and kernels.usable(like) else rule.dense()


def who_may_look_by(pattern: Pattern, text: Tensor) -> Tensor | Listed:
    """A pattern over packed rows: as lists of what is to be computed, or as a matrix where weights are recorded. text (B, T)."""
    found = listed(pattern, text)
    return found.dense() if recorded() else found


def attend(q: Tensor, k: Tensor, v: Tensor, may: Tensor | None) -> Tensor:
    """softmax(q k' / sqrt(K)) v where `may` is True. q (B, H, T, K), k and v (B, H, S, K), may (B, 1, T, S) -> (B, H, T, K)."""
    # In bf16 on a CPU, torch's fused kernel takes two to four times as long as its parts do one after the other.
    if recorded() or (q.device.type == "cpu" and q.dtype == torch.bfloat16):
        return _attend_openly(q, k, v, may)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=may)


def attend_spaced(q: Tensor, k: Tensor, v: Tensor, sight: Spaced, *tables: DistanceVectors) -> Tensor:
    """The same with a vector for each kind of distance added to each key and each value (Shaw et al. 2018, section 3.2)."""
    scaled, mask = q * q.size(-1) ** -0.5, sight.may
    for vectors, which in zip(tables, sight.which, strict=True):
        bias = vectors.scores(scaled, which)
        mask = bias if mask is None else bias + mask
    weights = _weights(q, k, mask)
    found = weights.to(v.dtype) @ v
    for vectors, which in zip(tables, sight.which, strict=True):
        found = found + vectors.found(weights, which)
    return found


def _attend_openly(q: Tensor, k: Tensor, v: Tensor, may: Tensor | None) -> Tensor:
    return _weights(q, k, may).to(v.dtype) @ v


def _weights(q: Tensor, k: Tensor, may: Tensor | None) -> Tensor:
    scores = (q * q.size(-1) ** -0.5) @ k.mT
    if may is not None:
        scores = scores + (addable(may, scores.dtype) if may.dtype == torch.bool else may)
    weights = scores.softmax(-1)
    tell(weights)
    return weights


class SelfAttention(nn.Module):
    """Every place asks every place of the same rows. The three projections are one matrix product.

    With a clipping distance above 0 there are vectors for distances, of trees too if `branched`, and `may` must be `Spaced`.
    Heads share the width unless they have one of their own.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        distance: int = 0,
        branched: bool = False,
        head_width: int | None = None,
        bias: bool = True,
    ):
        super().__init__()
        if head_width is None and width % heads:
            raise ValueError(f"width {width} does not split into {heads} heads; choose heads that divide it")
        inside = heads * (head_width or width // heads)
        self.heads = heads
        self.qkv = Linear(width, 3 * inside, bias=bias)
        self.out = Linear(inside, width, bias=bias)
        self.distances = DistanceVectors(distance, width // heads) if distance else None
        self.branches = DistanceVectors(distance, width // heads) if branched else None

    def forward(self, x: Tensor, may: Sight, cache: Cache | None = None) -> Tensor:
        """x (B, T, D) -> (B, T, D). With a cache, each of the B x T places is the newest of a text that the cache holds.

        While texts are read into the cache, x is what they begin with instead; while it is glanced at, see `_glance`.
        """
        qkv = self.qkv(x)
        if isinstance(may, Turned):
            qkv, may = may.turn(qkv, self.heads), may.may
        if cache is not None and cache.past.reading:
            cache.keep(qkv[..., qkv.size(-1) // 3 :])
            cache = None
        if isinstance(may, Packed):
            return self.out(kernels.attention.attend_self(qkv, may, self.heads))
        if isinstance(may, Listed):
            return self.out(attend_listed(qkv, may, self.heads))
        assert not isinstance(may, Alone)  # which is for LinformerAttention
        if cache is not None and cache.past.glancing:
            return self.out(self._glance(qkv, may, cache))
        if cache is not None:
            return self.out(self._recall(qkv.flatten(0, 1), may, cache).reshape(*x.shape[:-1], -1))
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each (B, H, T, K)
        return self.out(_join(self._attend(q, k, v, may)))

    def _recall(self, qkv: Tensor, may: Tensor | Spaced | None, cache: Cache) -> Tensor:
        """The newest places look at their past. qkv (R, 3 D) -> R times D in all."""
        past, width = cache.past, qkv.size(-1) // 3
        # Our kernel knows of the past only how long it is.
        plain = may is past.may and not recorded()
        if plain and cache.log is not None and isinstance(past, FixedPast) and kernels.usable(qkv):
            return kernels.past.attend_past(qkv, cache.log, past.explicit(qkv.device), past.position, self.heads)
        q, kv = qkv.split((width, 2 * width), -1)
        k, v = cache.append(kv, self.heads)
        return self._attend(q.unflatten(-1, (self.heads, 1, -1)), k, v, may)

    def _glance(self, qkv: Tensor, may: Tensor | Spaced | None, cache: Cache) -> Tensor:
        """The last place of each text looks and is not kept; one before it, if there is one, is its newest that is.

        qkv (R, 1 or 2, 3 D) -> (R, 1 or 2, D).
        """
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each (R, H, 1 or 2, K)
        width = qkv.size(-1) // 3
        known = cache.append(qkv[:, 0, width:], self.heads) if qkv.size(1) > 1 else cache.known(self.heads)
        k, v = (torch.cat([past, new[:, :, -1:]], 2) for past, new in zip(known, (k, v), strict=True))
        return _join(self._attend(q, k, v, may))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, may: Tensor | Spaced | None) -> Tensor:
        if isinstance(may, Spaced):
            return attend_spaced(q, k, v, may, *self.tables)
        return attend(q, k, v, may)

    @property
    def tables(self) -> list[DistanceVectors]:
        """The vectors of each kind of distance."""
        return [table for table in (self.distances, self.branches) if table is not None]


class CrossAttention(nn.Module):
    """Every place of one text asks every place of another, the memory."""

    def __init__(self, width: int, heads: int, head_width: int | None = None, bias: bool = True):
        super().__init__()
        inside = heads * (head_width or width // heads)
        self.heads = heads
        self.q = Linear(width, inside, bias=bias)
        self.kv = Linear(width, 2 * inside, bias=bias)
        self.out = Linear(inside, width, bias=bias)

    def look_up(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory, the same for every step of decoding. (B, S, D) -> two of (B, H, S, K)."""
        k, v = self.kv(memory).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return k, v

    def look_up_packed(self, memory: Tensor, may: Tensor | Packed) -> Tensor | tuple[Tensor, Tensor]:
        """The same for packed rows: left side by side, (B, S, 2 D), where the kernel reads them like that."""
        return self.kv(memory) if isinstance(may, Packed) else self.look_up(memory)

    def forward(self, x: Tensor, memory: Tensor | tuple[Tensor, Tensor], may: Tensor | Packed | None) -> Tensor:
        """x (B, T, D), memory from `look_up` -> (B, T, D)."""
        if isinstance(may, Packed):
            assert isinstance(memory, Tensor)
            return self.out(kernels.attention.attend_cross(self.q(x), memory, may, self.heads))
        k, v = memory
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return self.out(_join(attend(q, k, v, may)))


def _join(x: Tensor) -> Tensor:
    """Heads side by side again. (B, H, T, K) -> (B, T, D)."""
    return x.transpose(1, 2).flatten(-2)


def init_attention(module: nn.Module) -> None:
    """Glorot initialisation with each of the stacked projections scaled as the matrix it is."""
    if isinstance(module, SelfAttention | CrossAttention):
        for name, linear in module.named_children():
            if isinstance(linear, nn.Linear):
                for block in linear.weight.chunk({"qkv": 3, "kv": 2}.get(name, 1)):
                    nn.init.xavier_uniform_(block)
                nn.init.zeros_(linear.bias)
