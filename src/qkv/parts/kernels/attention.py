"""Attention over packed rows, as one kernel each way: a program holds a row of one head from start to end.

Most packed rows are short, so that all scores of a row and head fit into a multiprocessor's registers: nothing is written but
the result, and the backward pass recomputes the weights. Wider rows go block by block, in `wide.py`: forward sooner than
backward, because there it takes two kernels. Queries, keys and values are read, and their gradients written, where the one
projection put them: no copies. The mask comes from the number of each position's text, or from where that text lies.
B rows, T query positions, S key positions, D width, H heads, K head width.
"""

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.parts.kernels import wide

if TYPE_CHECKING:
    from qkv.parts.masks import PackedMask

WIDEST = 128  # positions in a row that fit into registers
WIDEST_FORWARD = 64  # positions up to which that is faster in the forward pass
WIDE_HEAD = 64  # wider heads use WIDEST_FORWARD in the backward pass too: it would need 128 KiB of a smaller GPU's 99


def attend_self(qkv: Tensor, mask: "PackedMask", heads: int) -> Tensor:
    """Compute self-attention within each text. qkv (B, T, 3 D): queries, keys, values side by side -> (B, T, D)."""
    return _Self.apply(qkv.contiguous(), mask, heads)


def attend_cross(q: Tensor, kv: Tensor, mask: "PackedMask", heads: int) -> Tensor:
    """Compute attention to the same text of other rows. q (B, T, D), kv (B, S, 2 D) -> (B, T, D)."""
    return _Cross.apply(q.contiguous(), kv.contiguous(), mask, heads)


@triton.jit
def _weights(q, k, queries, keys, scale, CAUSAL: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr):  # type: ignore[no-untyped-def]
    allowed = (queries[:, None] == keys[None, :]) & (keys > 0)[None, :]
    if CAUSAL:
        allowed = allowed & (tl.arange(0, BT)[:, None] >= tl.arange(0, BS)[None, :])
    scores = tl.where(allowed, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    powers = tl.exp(scores - tl.maximum(tl.max(scores, 1), -1e30)[:, None])
    total = tl.sum(powers, 1)
    return powers / tl.where(total > 0, total, 1.0)[:, None]  # padding, and a text without keys, get zeros


@triton.jit
def _attend_forward(  # type: ignore[no-untyped-def]
    Q, KV, QUERIES, KEYS, OUT, T, S, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, s, d = tl.arange(0, BT), tl.arange(0, BS), tl.arange(0, BK)[None, :]
    inside_q = (t < T)[:, None] & (d < K)
    inside_k = (s < S)[:, None] & (d < K)
    at_q = (row * T + t)[:, None] * Q_STEP + head * K + d
    at_k = (row * S + s)[:, None] * KV_STEP + head * K + d
    q = tl.load(Q + at_q, mask=inside_q, other=0.0)
    k = tl.load(KV + K_AT + at_k, mask=inside_k, other=0.0)
    v = tl.load(KV + V_AT + at_k, mask=inside_k, other=0.0)
    queries = tl.load(QUERIES + row * T + t, mask=t < T, other=0)
    keys = tl.load(KEYS + row * S + s, mask=s < S, other=0)
    weights = _weights(q, k, queries, keys, scale, CAUSAL, BT, BS)
    out = tl.dot(weights.to(v.dtype), v)
    tl.store(OUT + (row * T + t)[:, None] * (H * K) + head * K + d, out.to(OUT.dtype.element_ty), mask=inside_q)


@triton.jit
def _attend_backward(  # type: ignore[no-untyped-def]
    Q, KV, QUERIES, KEYS, GRAD, GRAD_Q, GRAD_KV, T, S, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, s, d = tl.arange(0, BT), tl.arange(0, BS), tl.arange(0, BK)[None, :]
    inside_q = (t < T)[:, None] & (d < K)
    inside_k = (s < S)[:, None] & (d < K)
    at_q = (row * T + t)[:, None] * Q_STEP + head * K + d
    at_k = (row * S + s)[:, None] * KV_STEP + head * K + d
    q = tl.load(Q + at_q, mask=inside_q, other=0.0)
    k = tl.load(KV + K_AT + at_k, mask=inside_k, other=0.0)
    queries = tl.load(QUERIES + row * T + t, mask=t < T, other=0)
    keys = tl.load(KEYS + row * S + s, mask=s < S, other=0)
    weights = _weights(q, k, queries, keys, scale, CAUSAL, BT, BS)
    grad = tl.load(GRAD + (row * T + t)[:, None] * (H * K) + head * K + d, mask=inside_q, other=0.0)
    grad_v = tl.dot(tl.trans(weights.to(grad.dtype)), grad)
    tl.store(GRAD_KV + V_AT + at_k, grad_v.to(GRAD_KV.dtype.element_ty), mask=inside_k)
    v = tl.load(KV + V_AT + at_k, mask=inside_k, other=0.0)
    grad_weights = tl.dot(grad, tl.trans(v))
    mean = tl.sum(weights * grad_weights, 1)[:, None]
    grad_scores = (weights * (grad_weights - mean) * scale).to(q.dtype)
    grad_q = tl.dot(grad_scores, k)
    tl.store(GRAD_Q + at_q, grad_q.to(GRAD_Q.dtype.element_ty), mask=inside_q)
    grad_k = tl.dot(tl.trans(grad_scores), q)
    tl.store(GRAD_KV + K_AT + at_k, grad_k.to(GRAD_KV.dtype.element_ty), mask=inside_k)


def _forward(q: Tensor, kv: Tensor, mask: "PackedMask", heads: int) -> tuple[Tensor, Tensor | None]:
    """Return the result and, for wide rows, each query's log-sum-exp, which the backward pass needs.

    Q is kv if both are in one tensor.
    """
    rows, positions = mask.queries.shape
    out = q.new_empty(rows, positions, q.size(-1) // (3 if q is kv else 1))
    if _width(mask) <= WIDEST_FORWARD:
        _launch(_attend_forward, q, kv, mask, (mask.queries, mask.keys), [out], heads)
        return out, None
    log = out.new_empty(rows, heads, positions, dtype=torch.float32)
    _launch(wide.wide_forward, q, kv, mask, mask.key_range, [out, log], heads, positions)
    return out, None if _width(mask) <= (WIDEST if out.size(-1) // heads <= WIDE_HEAD else WIDEST_FORWARD) else log


def _backward(
    grad: Tensor,
    out: Tensor | None,
    log: Tensor | None,
    grads: tuple[Tensor, Tensor],
    q: Tensor,
    kv: Tensor,
    mask: "PackedMask",
    heads: int,
) -> None:
    """Write the gradients of q and kv."""
    grad = grad.contiguous()
    if out is None or log is None:
        return _launch(_attend_backward, q, kv, mask, (mask.queries, mask.keys), [grad, *grads], heads)
    mean = torch.empty_like(log)  # written for the queries, read for the keys
    _launch(
        wide.wide_backward_queries, q, kv, mask, mask.key_range, [grad, out, log, mean, grads[0]], heads, mask.queries.size(1)
    )
    _launch(wide.wide_backward_keys, q, kv, mask, mask.query_range, [grad, log, mean, grads[1]], heads, mask.keys.size(1))


def _width(mask: "PackedMask") -> int:
    return max(mask.queries.size(1), mask.keys.size(1))


def _launch(
    kernel: Any,
    q: Tensor,
    kv: Tensor,
    mask: "PackedMask",
    ranges: tuple[Tensor, Tensor],
    rest: list[Tensor],
    heads: int,
    positions: int = 0,
) -> None:
    """Start a program for each row and head or, with `positions`, for each block of them too."""
    (rows, queries), keys = mask.queries.shape, mask.keys.size(1)
    width = q.size(-1) // (3 if q is kv else 1)
    first = kv.size(-1) - 2 * width  # keys begin there, values a width later
    each = _block(width // heads)
    if positions:
        blocks = wide.sizes(kernel, each, mask.causal)
        grid: tuple[int, ...] = (rows * heads, triton.cdiv(positions, blocks["OWN"]))
    else:
        blocks = {"BT": _block(queries), "BS": _block(keys), "num_warps": 4}
        grid = (rows * heads,)
    kernel[grid](
        q, kv, *(x.contiguous() for x in ranges), *rest, queries, keys, (width // heads) ** -0.5,
        H=heads, K=width // heads, Q_STEP=q.size(-1), KV_STEP=kv.size(-1), K_AT=first, V_AT=first + width, CAUSAL=mask.causal,
        **blocks, BK=each,
    )  # fmt: skip


def _block(size: int) -> int:
    return max(16, triton.next_power_of_2(size))


class _Self(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, mask: "PackedMask", heads: int) -> Tensor:
        out, log = _forward(qkv, qkv, mask, heads)
        ctx.save_for_backward(qkv, None if log is None else out, log)
        ctx.mask, ctx.heads = mask, heads
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        qkv, out, log = ctx.saved_tensors
        found = torch.empty_like(qkv)
        _backward(grads[0], out, log, (found, found), qkv, qkv, ctx.mask, ctx.heads)
        return found, None, None


class _Cross(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, mask: "PackedMask", heads: int) -> Tensor:
        out, log = _forward(q, kv, mask, heads)
        ctx.save_for_backward(q, kv, None if log is None else out, log)
        ctx.mask, ctx.heads = mask, heads
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, kv, out, log = ctx.saved_tensors
        found = torch.empty_like(q), torch.empty_like(kv)
        _backward(grads[0], out, log, found, q, kv, ctx.mask, ctx.heads)
        return *found, None, None
