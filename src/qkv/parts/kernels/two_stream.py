"""The relative part of XLNet's scores, as a bias of the attention kernels (`bias.py`): distances, segments and the mask.

The products of queries with all vectors of distances are one matrix product. A query's keys lie side by side among them, one
entry earlier for each position that it is later; `_slide` brings them to the keys' places, and `_unslide` their gradients back,
without adding anything up twice. Only whether a key is in another segment matters: softmax ignores what all keys of a query get.
B rows, N queries, S keys, L distances, D width, H heads, K head width, P = S or more, E = L + 1 or more.
"""

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.parts.kernels.bias import PADDED
from qkv.parts.kernels.linear import sum_over_rows

if TYPE_CHECKING:
    from qkv.parts.two_stream import FusedStreamMask

OWN, AT_ONCE = 16, 128  # queries of a program, and keys or distances that it processes at once


def add_vector(x: Tensor, vector: Tensor) -> Tensor:
    """Return x + vector in the dtype of x, with the vector's gradient in float32. x (B, N, D), vector (D,) -> (B, N, D)."""
    return _AddVector.apply(x, vector)


def with_segment(distances: Tensor, segment: Tensor) -> Tensor:
    """Put the vector of another segment (D,) behind those of distances (L, D), then zeros. -> (E, D)."""
    unused = distances.new_zeros(PADDED - 1 - len(distances) % PADDED, len(segment))
    return torch.cat([distances, segment.to(distances.dtype)[None], unused])


def relative_bias(q: Tensor, vectors: Tensor, segment_bias: Tensor, mask: "FusedStreamMask") -> Tensor:
    """Return q times the vector of each key's distance, and of another segment; minus infinity where the mask forbids the key.

    q (B, N, D), vectors (E, D) from `with_segment`, segment_bias (H,) is added for keys in another segment. -> (B, H, N, P).
    """
    heads = len(segment_bias)
    by_head = q.flatten(0, 1).unflatten(-1, (heads, -1)).transpose(0, 1)  # (H, B N, K)
    products = by_head @ vectors.unflatten(-1, (heads, -1)).permute(1, 2, 0)  # (H, B N, E)
    return _Slide.apply(products, segment_bias, mask, by_head.size(-1) ** -0.5)


@triton.jit
def _slide(  # type: ignore[no-untyped-def]
    PRODUCTS, SEGMENT_BIAS, QUERIES, KEYS, BIAS, B, N, S, L, step, bias_step, scale,
    H: tl.constexpr, OWN: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Write the bias of some queries of a row and head."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    n = tl.program_id(1) * OWN + tl.arange(0, OWN)
    real, at = n < N, row * N + n
    text, rank = tl.load(QUERIES + at, mask=real, other=0), tl.load(QUERIES + B * N + at, mask=real, other=0)
    segment, position = (
        tl.load(QUERIES + 2 * B * N + at, mask=real, other=0),
        tl.load(QUERIES + 3 * B * N + at, mask=real, other=0),
    )
    line = (head * B * N + at) * step
    other = tl.load(PRODUCTS + line + L, mask=real, other=0.0).to(tl.float32) + tl.load(SEGMENT_BIAS + head)
    first = line + (L - S) - position  # where the first key's product is
    for start in range(0, bias_step, AT_ONCE):
        s = start + tl.arange(0, AT_ONCE)
        inside, at_key = s < S, row * S + s
        key_text = tl.load(KEYS + at_key, mask=inside, other=0)
        key_rank = tl.load(KEYS + B * S + at_key, mask=inside, other=0)
        key_segment = tl.load(KEYS + 2 * B * S + at_key, mask=inside, other=0)
        allowed = (text[:, None] == key_text[None, :]) & (key_text > 0)[None, :] & (key_rank[None, :] <= rank[:, None])
        found = tl.load(PRODUCTS + first[:, None] + s[None, :], mask=allowed, other=0.0).to(tl.float32)
        found += tl.where(segment[:, None] != key_segment[None, :], other[:, None], 0.0)
        found = tl.where(allowed, found * scale, float("-inf"))
        where = ((row * H + head) * N + n)[:, None] * bias_step + s[None, :]
        tl.store(BIAS + where, found.to(BIAS.dtype.element_ty), mask=real[:, None] & (s < bias_step)[None, :])


@triton.jit
def _unslide(  # type: ignore[no-untyped-def]
    GRAD, QUERIES, KEYS, GRAD_PRODUCTS, B, N, S, L, step, bias_step, scale,
    H: tl.constexpr, OWN: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of some queries' products: those of scores that no key has are zero."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    n = tl.program_id(1) * OWN + tl.arange(0, OWN)
    real, at = n < N, row * N + n
    segment = tl.load(QUERIES + 2 * B * N + at, mask=real, other=0)
    position = tl.load(QUERIES + 3 * B * N + at, mask=real, other=0)
    line = (head * B * N + at) * step
    grads = ((row * H + head) * N + n)[:, None] * bias_step
    other = tl.zeros([OWN], tl.float32)
    for start in range(0, S, AT_ONCE):  # in the keys' places, where a key's segment is read once for all queries
        s = start + tl.arange(0, AT_ONCE)
        key_segment = tl.load(KEYS + 2 * B * S + row * S + s, mask=s < S, other=0)
        found = tl.load(GRAD + grads + s[None, :], mask=real[:, None] & (s < S)[None, :], other=0.0).to(tl.float32) * scale
        other += tl.sum(tl.where(segment[:, None] != key_segment[None, :], found, 0.0), 1)
    for start in range(0, step, AT_ONCE):
        l = start + tl.arange(0, AT_ONCE)  # noqa: E741
        s = l[None, :] - (L - S) + position[:, None]
        inside = (s >= 0) & (s < S) & (l < L)[None, :] & real[:, None]
        found = tl.load(GRAD + grads + s, mask=inside, other=0.0).to(tl.float32) * scale
        keep = real[:, None] & ((l < step) & (l != L))[None, :]
        tl.store(GRAD_PRODUCTS + line[:, None] + l[None, :], found.to(GRAD_PRODUCTS.dtype.element_ty), mask=keep)
    tl.store(GRAD_PRODUCTS + line + L, other.to(GRAD_PRODUCTS.dtype.element_ty), mask=real)


class _Slide(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, products: Tensor, segment_bias: Tensor, mask: "FusedStreamMask", scale: float) -> Tensor:
        (_, rows, queries), keys, heads = mask.queries.shape, mask.keys.size(2), len(products)
        products = products.contiguous()
        bias = products.new_empty(rows, heads, queries, keys + -keys % PADDED)
        shape = (rows, queries, keys, mask.distances, products.size(-1), bias.size(-1), scale)
        grid = (rows * heads, triton.cdiv(queries, OWN))
        _slide[grid](
            products, segment_bias.float(), mask.queries, mask.keys, bias, *shape, H=heads, OWN=OWN, AT_ONCE=AT_ONCE, num_warps=4
        )
        ctx.mask, ctx.shape, ctx.grid = mask, shape, grid
        return bias

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad, mask = grads[0].contiguous(), ctx.mask
        rows, queries, _, distances, step, *_ = ctx.shape
        found = grad.new_empty(grad.size(1), rows * queries, step)
        _unslide[ctx.grid](grad, mask.queries, mask.keys, found, *ctx.shape, H=len(found), OWN=OWN, AT_ONCE=AT_ONCE, num_warps=4)
        return found, found[:, :, distances].sum(1, dtype=torch.float32), None, None


class _AddVector(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, vector: Tensor) -> Tensor:
        return x + vector.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return grads[0], sum_over_rows(grads[0].flatten(0, -2).contiguous())[1]
