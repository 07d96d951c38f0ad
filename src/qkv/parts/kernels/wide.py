"""Attention over packed rows of any width, block by block: for `attention.py`, where a row's scores do not fit into registers.

Texts lie side by side in a row, so that what a place may look at is one stretch of the other places, told by FROM and TO; what a
block of places looks at is one too. A program reads nothing else of the row, and where all of its places see all of some others,
it does not ask who may look at whom.
B rows, T query places, S key places, H heads, K head width.
"""

from typing import Any

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)  # powers of two are what a GPU computes


@triton.jit
def _stretch(FROM, TO, row, at, own, others):  # type: ignore[no-untyped-def]
    """From where to where each of a program's own places sees the others; nothing beyond the end of a row."""
    start = tl.load(FROM + row * own + at, mask=at < own, other=others)
    return start, tl.load(TO + row * own + at, mask=at < own, other=0)


@triton.jit
def _whole_blocks(begin, end, AT_ONCE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where the last whole block ends."""
    return begin + tl.maximum(end - begin, 0) // AT_ONCE * AT_ONCE


@triton.jit
def _seen(FROM, TO, row, t, T, S, CAUSAL: tl.constexpr, AT_ONCE: tl.constexpr):  # type: ignore[no-untyped-def]
    """What each of a block of queries sees; where that begins for the first, up to where all see all, where the last ends."""
    since, until = _stretch(FROM, TO, row, t, T, S)
    if CAUSAL:
        until = tl.minimum(until, t + 1)
    begin, end = tl.min(since, 0), tl.max(until, 0)
    sure = _whole_blocks(begin, tl.where(tl.max(since, 0) == begin, tl.min(until, 0), begin), AT_ONCE)
    return since, until, begin, sure, end


@triton.jit
def _vectors(  # type: ignore[no-untyped-def]
    X, row, at, many, head, STEP: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, SURE: tl.constexpr
):
    """What a head has at some places of a row, all of them within it if SURE; else zero outside."""
    d = tl.arange(0, BK)
    where = X + (row * many + at)[:, None] * STEP + head * K + d[None, :]
    found = tl.load(where) if SURE and K == BK else tl.load(where, mask=(at < many)[:, None] & (d < K)[None, :], other=0.0)
    return found


@triton.jit
def _put(  # type: ignore[no-untyped-def]
    X, row, at, many, head, found, STEP: tl.constexpr, K: tl.constexpr, BK: tl.constexpr
):
    d = tl.arange(0, BK)
    where = X + (row * many + at)[:, None] * STEP + head * K + d[None, :]
    tl.store(where, found.to(X.dtype.element_ty), mask=(at < many)[:, None] & (d < K)[None, :])


@triton.jit
def _late_first(CAUSAL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which block of queries is a program's own: where late ones have more to look at, they begin first."""
    block = tl.program_id(1)
    if CAUSAL:
        block = tl.num_programs(1) - 1 - block
    return block


@triton.jit
def _told(X, at, T, t, SURE: tl.constexpr):  # type: ignore[no-untyped-def]
    """A number for each query of a row and head, which is the one at `at`."""
    found = tl.load(X + at * T + t) if SURE else tl.load(X + at * T + t, mask=t < T, other=0.0)
    return found


@triton.jit
def _see(  # type: ignore[no-untyped-def]
    start, top, total, out, q, since, until, KV, row, head, S, scale,
    K: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    AT_ONCE: tl.constexpr, BK: tl.constexpr, SURE: tl.constexpr,
):  # fmt: skip
    """What queries have found, once they have looked at one more block of keys."""
    s = start + tl.arange(0, AT_ONCE)
    k = _vectors(KV + K_AT, row, s, S, head, KV_STEP, K, BK, SURE)
    v = _vectors(KV + V_AT, row, s, S, head, KV_STEP, K, BK, SURE)
    scores = tl.dot(q, tl.trans(k))
    if not SURE:
        may = (s[None, :] >= since[:, None]) & (s[None, :] < until[:, None])
        scores = tl.where(may, scores, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1))
    powers = tl.exp2(scores * scale - (higher * scale)[:, None])  # scaled here, where it costs nothing
    shrink = tl.exp2((top - higher) * scale)
    return higher, total * shrink + tl.sum(powers, 1), out * shrink[:, None] + tl.dot(powers.to(v.dtype), v)


@triton.jit
def wide_forward(  # type: ignore[no-untyped-def]
    Q, KV, FROM, TO, OUT, LOG, T, S, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, OWN: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A block of queries against all blocks of keys; LOG gets the logarithm, to base 2, of each query's sum of powers."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    first = _late_first(CAUSAL) * OWN
    t = first + tl.arange(0, OWN)
    scale *= LOG2_E
    q = _vectors(Q, row, t, T, head, Q_STEP, K, BK, False)
    since, until, begin, sure, end = _seen(FROM, TO, row, t, T, S, CAUSAL, AT_ONCE)
    top = tl.full([OWN], -1e30, tl.float32)
    total = tl.zeros([OWN], tl.float32)
    out = tl.zeros([OWN, BK], tl.float32)
    for start in range(begin, sure, AT_ONCE):
        top, total, out = _see(
            start, top, total, out, q, since, until, KV, row, head, S, scale,
            K, KV_STEP, K_AT, V_AT, AT_ONCE, BK, True,
        )  # fmt: skip
    for start in range(sure, end, AT_ONCE):
        top, total, out = _see(
            start, top, total, out, q, since, until, KV, row, head, S, scale,
            K, KV_STEP, K_AT, V_AT, AT_ONCE, BK, False,
        )  # fmt: skip
    whole = tl.where(total > 0, total, 1.0)  # padding, and a text without keys, find nothing
    _put(OUT, row, t, T, head, out / whole[:, None], H * K, K, BK)
    tl.store(LOG + (row * H + head) * T + t, top * scale + tl.log2(whole), mask=t < T)


@triton.jit
def _gradients(may, a, b, grad_a, grad_b, log, mean, scale, SURE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The weights of a block, computed anew, and the gradients of its scores: a are queries and b keys, or the other way round.

    Beside them stand the factors of the weights' gradients: the result's gradient with queries, values with keys. The gradients
    are of scaled scores: what is found with them is scaled at the end.
    """
    logs = tl.dot(a, tl.trans(b)) * (scale * LOG2_E) - log
    if not SURE:
        logs = tl.where(may, logs, float("-inf"))
    weights = tl.exp2(logs)
    return weights, weights * (tl.dot(grad_a, tl.trans(grad_b)) - mean)


@triton.jit
def _blame_queries(  # type: ignore[no-untyped-def]
    start, grad_q, q, grad, log, mean, since, until, KV, row, head, S, scale,
    K: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    AT_ONCE: tl.constexpr, BK: tl.constexpr, SURE: tl.constexpr,
):  # fmt: skip
    """The gradient of queries, with what one more block of keys adds to it."""
    s = start + tl.arange(0, AT_ONCE)
    k = _vectors(KV + K_AT, row, s, S, head, KV_STEP, K, BK, SURE)
    v = _vectors(KV + V_AT, row, s, S, head, KV_STEP, K, BK, SURE)
    may = (s[None, :] >= since[:, None]) & (s[None, :] < until[:, None])
    _, grad_scores = _gradients(may, q, k, grad, v, log[:, None], mean[:, None], scale, SURE)
    return grad_q + tl.dot(grad_scores.to(k.dtype), k)


@triton.jit
def wide_backward_queries(  # type: ignore[no-untyped-def]
    Q, KV, FROM, TO, GRAD, OUT, LOG, MEAN, GRAD_Q, T, S, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, OWN: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of queries; MEAN gets what each query's gradients of weights have in common."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    first = _late_first(CAUSAL) * OWN
    t = first + tl.arange(0, OWN)
    q = _vectors(Q, row, t, T, head, Q_STEP, K, BK, False)
    grad = _vectors(GRAD, row, t, T, head, H * K, K, BK, False)
    out = _vectors(OUT, row, t, T, head, H * K, K, BK, False)
    mean = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(MEAN + (row * H + head) * T + t, mean, mask=t < T)
    log = _told(LOG, row * H + head, T, t, False)
    since, until, begin, sure, end = _seen(FROM, TO, row, t, T, S, CAUSAL, AT_ONCE)
    grad_q = tl.zeros([OWN, BK], tl.float32)
    for start in range(begin, sure, AT_ONCE):
        grad_q = _blame_queries(
            start, grad_q, q, grad, log, mean, since, until, KV, row, head, S, scale,
            K, KV_STEP, K_AT, V_AT, AT_ONCE, BK, True,
        )  # fmt: skip
    for start in range(sure, end, AT_ONCE):
        grad_q = _blame_queries(
            start, grad_q, q, grad, log, mean, since, until, KV, row, head, S, scale,
            K, KV_STEP, K_AT, V_AT, AT_ONCE, BK, False,
        )  # fmt: skip
    _put(GRAD_Q, row, t, T, head, grad_q * scale, Q_STEP, K, BK)


@triton.jit
def _blame_keys(  # type: ignore[no-untyped-def]
    start, grad_k, grad_v, k, v, since, until, Q, GRAD, LOG, MEAN, row, head, T, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr,
    AT_ONCE: tl.constexpr, BK: tl.constexpr, SURE: tl.constexpr,
):  # fmt: skip
    """The gradients of keys and values, with what one more block of queries adds to them."""
    t = start + tl.arange(0, AT_ONCE)
    q = _vectors(Q, row, t, T, head, Q_STEP, K, BK, SURE)
    grad = _vectors(GRAD, row, t, T, head, H * K, K, BK, SURE)
    log = _told(LOG, row * H + head, T, t, SURE)
    mean = _told(MEAN, row * H + head, T, t, SURE)
    may = (t[None, :] >= since[:, None]) & (t[None, :] < until[:, None])
    # Keys by queries: the other way round, both matrices would have to be turned before the products below.
    weights, grad_scores = _gradients(may, k, q, v, grad, log[None, :], mean[None, :], scale, SURE)
    return grad_k + tl.dot(grad_scores.to(q.dtype), q), grad_v + tl.dot(weights.to(grad.dtype), grad)


@triton.jit
def wide_backward_keys(  # type: ignore[no-untyped-def]
    Q, KV, FROM, TO, GRAD, LOG, MEAN, GRAD_KV, T, S, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, OWN: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys and of their values."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    first = tl.program_id(1) * OWN
    s = first + tl.arange(0, OWN)
    k = _vectors(KV + K_AT, row, s, S, head, KV_STEP, K, BK, False)
    v = _vectors(KV + V_AT, row, s, S, head, KV_STEP, K, BK, False)
    since, until = _stretch(FROM, TO, row, s, S, T)
    if CAUSAL:
        since = tl.maximum(since, s)
    begin, end = tl.min(since, 0), tl.max(until, 0)
    grad_k = tl.zeros([OWN, BK], tl.float32)
    grad_v = tl.zeros([OWN, BK], tl.float32)
    if CAUSAL:  # queries of the same block see only some of the keys
        after = tl.minimum(end, first + OWN)
        for start in range(begin, after, AT_ONCE):
            grad_k, grad_v = _blame_keys(
                start, grad_k, grad_v, k, v, since, until, Q, GRAD, LOG, MEAN, row, head, T, scale,
                H, K, Q_STEP, AT_ONCE, BK, False,
            )  # fmt: skip
        begin = begin + tl.cdiv(tl.maximum(after - begin, 0), AT_ONCE) * AT_ONCE
    sure = _whole_blocks(begin, tl.where(tl.max(since, 0) <= begin, tl.min(until, 0), begin), AT_ONCE)
    for start in range(begin, sure, AT_ONCE):
        grad_k, grad_v = _blame_keys(
            start, grad_k, grad_v, k, v, since, until, Q, GRAD, LOG, MEAN, row, head, T, scale,
            H, K, Q_STEP, AT_ONCE, BK, True,
        )  # fmt: skip
    for start in range(sure, end, AT_ONCE):
        grad_k, grad_v = _blame_keys(
            start, grad_k, grad_v, k, v, since, until, Q, GRAD, LOG, MEAN, row, head, T, scale,
            H, K, Q_STEP, AT_ONCE, BK, False,
        )  # fmt: skip
    _put(GRAD_KV + K_AT, row, s, S, head, grad_k * scale, KV_STEP, K, BK)
    _put(GRAD_KV + V_AT, row, s, S, head, grad_v, KV_STEP, K, BK)


def sizes(kernel: Any, head_width: int, causal: bool) -> dict[str, Any]:
    """Places that a program has for its own, those that it reads at once of the others, and how it is run."""
    if head_width > 64:  # so that nothing falls out of the registers, nor out of the shared memory of smaller GPUs
        return {"OWN": 64, "AT_ONCE": 32, "num_warps": 4, "num_stages": 2}
    # The fastest of 36 on an H200, or nearly, for 64 rows of 512 places and for 32 of 1,024 that look at their past.
    if kernel is wide_forward:
        return {"OWN": 128, "AT_ONCE": 64, "num_warps": 8, "num_stages": 3}
    if kernel is wide_backward_queries and not causal:
        return {"OWN": 128, "AT_ONCE": 32, "num_warps": 8, "num_stages": 4}
    return {"OWN": 64, "AT_ONCE": 32, "num_warps": 4, "num_stages": 4 if kernel is wide_backward_queries else 3}
