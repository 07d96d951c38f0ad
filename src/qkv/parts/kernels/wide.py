"""Attention over packed rows of any width, block by block: for `attention.py`, where a row's scores do not fit into registers.

Texts lie side by side in a row and are numbered in that order, so that what a block of queries may look at is one stretch of
keys, and the other way round: a program looks up where it begins and ends, and reads nothing else of the row.
B rows, T query places, S key places, H heads, K head width.
"""

from typing import Any

import triton
import triton.language as tl

NONE = tl.constexpr(1 << 30)  # above every text's number
WIDEST = 1024  # places whose texts are looked at at once: more would not fit into registers, and take minutes to compile


@triton.jit
def _texts(NUMBERS, row, at, many):  # type: ignore[no-untyped-def]
    return tl.load(NUMBERS + row * many + at, mask=at < many, other=0).to(tl.int32)


@triton.jit
def _stretch(NUMBERS, row, many, texts, WHOLE: tl.constexpr):  # type: ignore[no-untyped-def]
    """From where to where the same texts lie in a row of other places; nowhere if all are padding, 0, which is no text."""
    low, high = tl.min(tl.where(texts > 0, texts, NONE), 0), tl.max(texts, 0)
    begin, end = many, many * 0
    for start in tl.range(0, many, WHOLE, num_stages=1):  # once, in all but the widest rows
        at = start + tl.arange(0, WHOLE)
        others = _texts(NUMBERS, row, at, many)
        same = (others >= low) & (others <= high)
        begin = tl.minimum(begin, tl.min(tl.where(same, at, many), 0))
        end = tl.maximum(end, tl.max(tl.where(same, at + 1, 0), 0))
    return begin, end


@triton.jit
def _may_look(queries, keys, t, s, CAUSAL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Numbers of texts and places that broadcast against each other."""
    may = (queries == keys) & (keys > 0)
    if CAUSAL:
        may = may & (t >= s)
    return may


@triton.jit
def _gradients(may, a, b, grad_a, grad_b, log, mean, scale):  # type: ignore[no-untyped-def]
    """The weights of a block, computed anew, and the gradients of its scores: a are queries and b keys, or the other way round.

    Beside them stand the factors of the weights' gradients: the result's gradient with queries, values with keys.
    """
    weights = tl.exp(tl.where(may, tl.dot(a, tl.trans(b)) * scale, float("-inf")) - log)
    return weights, weights * (tl.dot(grad_a, tl.trans(grad_b)) - mean) * scale


@triton.jit
def wide_forward(  # type: ignore[no-untyped-def]
    Q, KV, QUERIES, KEYS, OUT, LOG, T, S, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, OWN: tl.constexpr, AT_ONCE: tl.constexpr, WHOLE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A block of queries against all blocks of keys; LOG gets the logarithm of each query's sum of powers."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, d = tl.program_id(1) * OWN + tl.arange(0, OWN), tl.arange(0, BK)
    inside_q = (t < T)[:, None] & (d < K)[None, :]
    q = tl.load(Q + (row * T + t)[:, None] * Q_STEP + head * K + d[None, :], mask=inside_q, other=0.0)
    queries = _texts(QUERIES, row, t, T)
    top = tl.full([OWN], -1e30, tl.float32)
    total = tl.zeros([OWN], tl.float32)
    out = tl.zeros([OWN, BK], tl.float32)
    begin, end = _stretch(KEYS, row, S, queries, WHOLE)
    for start in range(begin, end, AT_ONCE):
        s = start + tl.arange(0, AT_ONCE)
        keys = _texts(KEYS, row, s, S)
        at = (row * S + s)[:, None] * KV_STEP + head * K + d[None, :]
        inside_k = (s < S)[:, None] & (d < K)[None, :]
        k = tl.load(KV + K_AT + at, mask=inside_k, other=0.0)
        v = tl.load(KV + V_AT + at, mask=inside_k, other=0.0)
        may = _may_look(queries[:, None], keys[None, :], t[:, None], s[None, :], CAUSAL)
        scores = tl.where(may, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
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
    Q, KV, QUERIES, KEYS, GRAD, OUT, LOG, MEAN, GRAD_Q, T, S, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, OWN: tl.constexpr, AT_ONCE: tl.constexpr, WHOLE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of queries; MEAN gets what each query's gradients of weights have in common."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, d = tl.program_id(1) * OWN + tl.arange(0, OWN), tl.arange(0, BK)
    inside_q = (t < T)[:, None] & (d < K)[None, :]
    at_q = (row * T + t)[:, None] * Q_STEP + head * K + d[None, :]
    q = tl.load(Q + at_q, mask=inside_q, other=0.0)
    at_out = (row * T + t)[:, None] * (H * K) + head * K + d[None, :]
    grad = tl.load(GRAD + at_out, mask=inside_q, other=0.0)
    out = tl.load(OUT + at_out, mask=inside_q, other=0.0)
    mean = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(MEAN + (row * T + t) * H + head, mean, mask=t < T)
    queries = _texts(QUERIES, row, t, T)
    log = tl.load(LOG + (row * T + t) * H + head, mask=t < T, other=0.0)
    grad_q = tl.zeros([OWN, BK], tl.float32)
    begin, end = _stretch(KEYS, row, S, queries, WHOLE)
    for start in range(begin, end, AT_ONCE):
        s = start + tl.arange(0, AT_ONCE)
        keys = _texts(KEYS, row, s, S)
        at = (row * S + s)[:, None] * KV_STEP + head * K + d[None, :]
        inside_k = (s < S)[:, None] & (d < K)[None, :]
        k = tl.load(KV + K_AT + at, mask=inside_k, other=0.0)
        v = tl.load(KV + V_AT + at, mask=inside_k, other=0.0)
        may = _may_look(queries[:, None], keys[None, :], t[:, None], s[None, :], CAUSAL)
        _, grad_scores = _gradients(may, q, k, grad, v, log[:, None], mean[:, None], scale)
        grad_q += tl.dot(grad_scores.to(k.dtype), k)
    tl.store(GRAD_Q + at_q, grad_q.to(GRAD_Q.dtype.element_ty), mask=inside_q)


@triton.jit
def wide_backward_keys(  # type: ignore[no-untyped-def]
    Q, KV, QUERIES, KEYS, GRAD, LOG, MEAN, GRAD_KV, T, S, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, OWN: tl.constexpr, AT_ONCE: tl.constexpr, WHOLE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys and of their values."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    s, d = tl.program_id(1) * OWN + tl.arange(0, OWN), tl.arange(0, BK)
    inside_k = (s < S)[:, None] & (d < K)[None, :]
    at_k = (row * S + s)[:, None] * KV_STEP + head * K + d[None, :]
    k = tl.load(KV + K_AT + at_k, mask=inside_k, other=0.0)
    v = tl.load(KV + V_AT + at_k, mask=inside_k, other=0.0)
    keys = _texts(KEYS, row, s, S)
    grad_k = tl.zeros([OWN, BK], tl.float32)
    grad_v = tl.zeros([OWN, BK], tl.float32)
    begin, end = _stretch(QUERIES, row, T, keys, WHOLE)
    for start in range(begin, end, AT_ONCE):
        t = start + tl.arange(0, AT_ONCE)
        queries = _texts(QUERIES, row, t, T)
        inside_q = (t < T)[:, None] & (d < K)[None, :]
        q = tl.load(Q + (row * T + t)[:, None] * Q_STEP + head * K + d[None, :], mask=inside_q, other=0.0)
        grad = tl.load(GRAD + (row * T + t)[:, None] * (H * K) + head * K + d[None, :], mask=inside_q, other=0.0)
        log = tl.load(LOG + (row * T + t) * H + head, mask=t < T, other=0.0)
        mean = tl.load(MEAN + (row * T + t) * H + head, mask=t < T, other=0.0)
        # Keys by queries: the other way round, both matrices would have to be turned before the products below.
        may = _may_look(queries[None, :], keys[:, None], t[None, :], s[:, None], CAUSAL)
        weights, grad_scores = _gradients(may, k, q, v, grad, log[None, :], mean[None, :], scale)
        grad_v += tl.dot(weights.to(grad.dtype), grad)
        grad_k += tl.dot(grad_scores.to(q.dtype), q)
    tl.store(GRAD_KV + K_AT + at_k, grad_k.to(GRAD_KV.dtype.element_ty), mask=inside_k)
    tl.store(GRAD_KV + V_AT + at_k, grad_v.to(GRAD_KV.dtype.element_ty), mask=inside_k)


def sizes(kernel: Any, head_width: int) -> dict[str, Any]:
    """Places that a program has for its own, those that it reads at once of the others, and how it is run."""
    # So that nothing falls out of the registers, nor, with wider heads, out of the shared memory of smaller GPUs.
    few = kernel is wide_backward_keys or head_width > 64
    return {"OWN": 64, "AT_ONCE": 32 if few else 64, "num_warps": 4, "num_stages": 3 if head_width <= 64 else 2}
