"""Attention over packed rows of at most 128 places, as one kernel: a program holds a row of one head from start to end.

Packed rows are short, so that all scores of a row and head fit into a multiprocessor's registers: nothing is written but the
result, and the backward pass computes the weights anew. Queries, keys and values are read, and their gradients written, where
the one projection put them: no copies. Who may look at whom comes from the number of each place's text.
B rows, T query places, S key places, D width, H heads, K head width.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 128  # places in a row; more scores than that would not fit


def attend_self(qkv: Tensor, text: Tensor, heads: int, causal: bool) -> Tensor:
    """Self-attention within each text. qkv (B, T, 3 D): queries, keys, values side by side; text (B, T) -> (B, T, D)."""
    return _Self.apply(qkv, text, heads, causal)


def attend_cross(q: Tensor, kv: Tensor, queries: Tensor, keys: Tensor, heads: int) -> Tensor:
    """Attention to the same text of other rows. q (B, T, D), kv (B, S, 2 D); texts queries (B, T), keys (B, S) -> (B, T, D)."""
    return _Cross.apply(q, kv, queries, keys, heads)


@triton.jit
def _weights(q, k, queries, keys, S, scale, CAUSAL: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr):  # type: ignore[no-untyped-def]
    key = tl.arange(0, BS)[None, :]
    may = (queries[:, None] == keys[None, :]) | (queries[:, None] == 0)  # padding may look anywhere, as in `masks.same_text`
    if CAUSAL:
        may = may & (tl.arange(0, BT)[:, None] >= key)
    scores = tl.dot(q, tl.trans(k)) * scale
    scores = tl.where(may, scores, -1e30)  # not minus infinity: a place that may look at nothing must not become NaN
    scores = tl.where(key < S, scores, float("-inf"))
    powers = tl.exp(scores - tl.max(scores, 1)[:, None])
    return powers / tl.sum(powers, 1)[:, None]


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
    weights = _weights(q, k, queries, keys, S, scale, CAUSAL, BT, BS)
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
    weights = _weights(q, k, queries, keys, S, scale, CAUSAL, BT, BS)
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


def _launch(
    kernel: Any, q: Tensor, kv: Tensor, queries: Tensor, keys: Tensor, rest: list[Tensor], heads: int, causal: bool
) -> None:
    """Start a program for each row and head. Where queries, keys and values lie in one tensor, q and kv are that tensor."""
    rows, places = queries.shape
    width = q.size(-1) // (3 if q.data_ptr() == kv.data_ptr() else 1)
    first = kv.size(-1) - 2 * width  # keys begin there, values a width later
    block = {"BT": places, "BS": keys.size(1), "BK": width // heads}
    kernel[(rows * heads,)](
        q, kv, queries, keys, *rest, places, keys.size(1), (width // heads) ** -0.5,
        H=heads, K=width // heads, Q_STEP=q.size(-1), KV_STEP=kv.size(-1), K_AT=first, V_AT=first + width, CAUSAL=causal,
        **{name: max(16, triton.next_power_of_2(size)) for name, size in block.items()}, num_warps=4,
    )  # fmt: skip


class _Self(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, text: Tensor, heads: int, causal: bool) -> Tensor:
        ctx.save_for_backward(qkv, text)
        ctx.heads, ctx.causal = heads, causal
        out = qkv.new_empty(*qkv.shape[:2], qkv.size(2) // 3)
        _launch(_attend_forward, qkv, qkv, text, text, [out], heads, causal)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        qkv, text = ctx.saved_tensors
        grad_qkv = torch.empty_like(qkv)
        _launch(_attend_backward, qkv, qkv, text, text, [grads[0].contiguous(), grad_qkv, grad_qkv], ctx.heads, ctx.causal)
        return grad_qkv, None, None, None


class _Cross(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, queries: Tensor, keys: Tensor, heads: int) -> Tensor:
        ctx.save_for_backward(q, kv, queries, keys)
        ctx.heads = heads
        out = torch.empty_like(q)
        _launch(_attend_forward, q, kv, queries, keys, [out], heads, False)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, kv, queries, keys = ctx.saved_tensors
        grad_q, grad_kv = torch.empty_like(q), torch.empty_like(kv)
        _launch(_attend_backward, q, kv, queries, keys, [grads[0].contiguous(), grad_q, grad_kv], ctx.heads, False)
        return grad_q, grad_kv, None, None, None
