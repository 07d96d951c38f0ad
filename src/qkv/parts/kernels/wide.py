"""Attention over packed rows of any width, block by block: for `attention.py`, where a row's scores do not fit into registers.

Texts lie side by side in a row and are numbered in that order, so that a block of queries and a block of keys have anything to
say to each other only where the ranges of their texts' numbers meet; the other blocks, most of them, are not even read.
B rows, T query places, S key places, H heads, K head width.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # places of queries, or of keys, that a program works on at once
NONE = tl.constexpr(1 << 30)  # above every text's number


@triton.jit
def _meet(queries, keys):  # type: ignore[no-untyped-def]
    """Whether any text is among both; padding, 0, is no text."""
    from_query, from_key = tl.min(tl.where(queries > 0, queries, NONE), 0), tl.min(tl.where(keys > 0, keys, NONE), 0)
    return (from_query <= tl.max(keys, 0)) & (from_key <= tl.max(queries, 0))


@triton.jit
def _may_look(queries, keys, t, s, CAUSAL: tl.constexpr):  # type: ignore[no-untyped-def]
    may = (queries[:, None] == keys[None, :]) & (keys > 0)[None, :]
    if CAUSAL:
        may = may & (t[:, None] >= s[None, :])
    return may


@triton.jit
def _gradients(q, k, v, grad, queries, keys, t, s, log, mean, scale, CAUSAL: tl.constexpr):  # type: ignore[no-untyped-def]
    """The weights of a block, computed anew, and the gradients of its scores."""
    scores = tl.where(_may_look(queries, keys, t, s, CAUSAL), tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    weights = tl.exp(scores - log[:, None])
    return weights, weights * (tl.dot(grad, tl.trans(v)) - mean[:, None]) * scale


@triton.jit
def wide_forward(  # type: ignore[no-untyped-def]
    Q, KV, QUERIES, KEYS, OUT, LOG, T, S, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A block of queries against all blocks of keys; LOG gets the logarithm of each query's sum of powers."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BK)
    inside_q = (t < T)[:, None] & (d < K)[None, :]
    q = tl.load(Q + (row * T + t)[:, None] * Q_STEP + head * K + d[None, :], mask=inside_q, other=0.0)
    queries = tl.load(QUERIES + row * T + t, mask=t < T, other=0)
    top = tl.full([BLOCK], -1e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    out = tl.zeros([BLOCK, BK], tl.float32)
    for start in range(0, S, BLOCK):
        s = start + tl.arange(0, BLOCK)
        keys = tl.load(KEYS + row * S + s, mask=s < S, other=0)
        if _meet(queries, keys):
            at = (row * S + s)[:, None] * KV_STEP + head * K + d[None, :]
            inside_k = (s < S)[:, None] & (d < K)[None, :]
            k = tl.load(KV + K_AT + at, mask=inside_k, other=0.0)
            v = tl.load(KV + V_AT + at, mask=inside_k, other=0.0)
            scores = tl.where(_may_look(queries, keys, t, s, CAUSAL), tl.dot(q, tl.trans(k)) * scale, float("-inf"))
            higher = tl.maximum(top, tl.max(scores, 1))
            powers = tl.exp(scores - higher[:, None])
            shrink = tl.exp(top - higher)
            total = total * shrink + tl.sum(powers, 1)
            out = out * shrink[:, None] + tl.dot(powers.to(v.dtype), v)
            top = higher
    whole = tl.where(total > 0, total, 1.0)  # padding, and a text without keys, find nothing
    out = out / whole[:, None]
    tl.store(OUT + (row * T + t)[:, None] * (H * K) + head * K + d[None, :], out.to(OUT.dtype.element_ty), mask=inside_q)
    tl.store(LOG + (row * T + t) * H + head, top + tl.log(whole), mask=t < T)


@triton.jit
def wide_backward_queries(  # type: ignore[no-untyped-def]
    Q, KV, QUERIES, KEYS, GRAD, LOG, MEAN, GRAD_Q, T, S, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of queries."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BK)
    inside_q = (t < T)[:, None] & (d < K)[None, :]
    at_q = (row * T + t)[:, None] * Q_STEP + head * K + d[None, :]
    q = tl.load(Q + at_q, mask=inside_q, other=0.0)
    grad = tl.load(GRAD + (row * T + t)[:, None] * (H * K) + head * K + d[None, :], mask=inside_q, other=0.0)
    queries = tl.load(QUERIES + row * T + t, mask=t < T, other=0)
    log = tl.load(LOG + (row * T + t) * H + head, mask=t < T, other=0.0)
    mean = tl.load(MEAN + (row * T + t) * H + head, mask=t < T, other=0.0)
    grad_q = tl.zeros([BLOCK, BK], tl.float32)
    for start in range(0, S, BLOCK):
        s = start + tl.arange(0, BLOCK)
        keys = tl.load(KEYS + row * S + s, mask=s < S, other=0)
        if _meet(queries, keys):
            at = (row * S + s)[:, None] * KV_STEP + head * K + d[None, :]
            inside_k = (s < S)[:, None] & (d < K)[None, :]
            k = tl.load(KV + K_AT + at, mask=inside_k, other=0.0)
            v = tl.load(KV + V_AT + at, mask=inside_k, other=0.0)
            _, grad_scores = _gradients(q, k, v, grad, queries, keys, t, s, log, mean, scale, CAUSAL)
            grad_q += tl.dot(grad_scores.to(k.dtype), k)
    tl.store(GRAD_Q + at_q, grad_q.to(GRAD_Q.dtype.element_ty), mask=inside_q)


@triton.jit
def wide_backward_keys(  # type: ignore[no-untyped-def]
    Q, KV, QUERIES, KEYS, GRAD, LOG, MEAN, GRAD_KV, T, S, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys and of their values."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    s, d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BK)
    inside_k = (s < S)[:, None] & (d < K)[None, :]
    at_k = (row * S + s)[:, None] * KV_STEP + head * K + d[None, :]
    k = tl.load(KV + K_AT + at_k, mask=inside_k, other=0.0)
    v = tl.load(KV + V_AT + at_k, mask=inside_k, other=0.0)
    keys = tl.load(KEYS + row * S + s, mask=s < S, other=0)
    grad_k = tl.zeros([BLOCK, BK], tl.float32)
    grad_v = tl.zeros([BLOCK, BK], tl.float32)
    for start in range(0, T, BLOCK):
        t = start + tl.arange(0, BLOCK)
        queries = tl.load(QUERIES + row * T + t, mask=t < T, other=0)
        if _meet(queries, keys):
            inside_q = (t < T)[:, None] & (d < K)[None, :]
            q = tl.load(Q + (row * T + t)[:, None] * Q_STEP + head * K + d[None, :], mask=inside_q, other=0.0)
            grad = tl.load(GRAD + (row * T + t)[:, None] * (H * K) + head * K + d[None, :], mask=inside_q, other=0.0)
            log = tl.load(LOG + (row * T + t) * H + head, mask=t < T, other=0.0)
            mean = tl.load(MEAN + (row * T + t) * H + head, mask=t < T, other=0.0)
            weights, grad_scores = _gradients(q, k, v, grad, queries, keys, t, s, log, mean, scale, CAUSAL)
            grad_v += tl.dot(tl.trans(weights.to(grad.dtype)), grad)
            grad_k += tl.dot(tl.trans(grad_scores.to(q.dtype)), q)
    tl.store(GRAD_KV + K_AT + at_k, grad_k.to(GRAD_KV.dtype.element_ty), mask=inside_k)
    tl.store(GRAD_KV + V_AT + at_k, grad_v.to(GRAD_KV.dtype.element_ty), mask=inside_k)


def means(grad: Tensor, out: Tensor, heads: int) -> Tensor:
    """What each query's gradients of weights have in common: (B, T, D) twice -> (B, T, H), in float32."""
    return torch.mul(grad.float(), out.float()).unflatten(-1, (heads, -1)).sum(-1)
