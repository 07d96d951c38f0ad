"""Attention over packed rows of any width, block by block: for `attention.py`, where a row's scores do not fit into registers.

Texts lie side by side in a row, so that the keys of a query are one range, from FROM to TO, and so are those of a block of
queries. A program reads nothing else of the row, and where all of its positions see all of some others, it applies no mask.
B rows, T query positions, S key positions, H heads, K head width.
"""

from typing import Any

import triton
import triton.language as tl

from qkv.parts.kernels.bias import bias_at, put_gradient

LOG2_E = tl.constexpr(1.4426950408889634)  # powers of two are what a GPU computes


@triton.jit
def _range(FROM, TO, row, at, own, others):  # type: ignore[no-untyped-def]
    """Return from where to where each of a program's own positions sees the others; an empty range beyond the end of a row."""
    start = tl.load(FROM + row * own + at, mask=at < own, other=others)
    return start, tl.load(TO + row * own + at, mask=at < own, other=0)


@triton.jit
def _whole_blocks(begin, end, AT_ONCE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return where the last whole block ends."""
    return begin + tl.maximum(end - begin, 0) // AT_ONCE * AT_ONCE


@triton.jit
def _query_ranges(  # type: ignore[no-untyped-def]
    FROM, TO, row, t, T, S, CAUSAL: tl.constexpr, BIASED: tl.constexpr, AT_ONCE: tl.constexpr
):
    """Return the range of each query of a block; where the first one begins, up to where all see all, and where the last ends."""
    since, until = _range(FROM, TO, row, t, T, S)
    if CAUSAL:
        until = tl.minimum(until, t + 1)
    begin, end = tl.min(since, 0), tl.max(until, 0)
    if BIASED:
        begin = begin // 16 * 16  # the bias is read, and its gradient written, in pieces that are aligned
    sure = _whole_blocks(begin, tl.where(tl.max(since, 0) == begin, tl.min(until, 0), begin), AT_ONCE)
    return since, until, begin, sure, end


@triton.jit
def load_vectors(  # type: ignore[no-untyped-def]
    X, row, at, many, head, STEP: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, SURE: tl.constexpr
):
    """Load a head's vectors at some positions of a row; zeros outside it, unless SURE that there are none."""
    d = tl.arange(0, BK)
    where = X + (row * many + at)[:, None] * STEP + head * K + d[None, :]
    found = tl.load(where) if SURE and K == BK else tl.load(where, mask=(at < many)[:, None] & (d < K)[None, :], other=0.0)
    return found


@triton.jit
def store_vectors(  # type: ignore[no-untyped-def]
    X, row, at, many, head, found, STEP: tl.constexpr, K: tl.constexpr, BK: tl.constexpr
):
    """Store a head's vectors at some positions of a row."""
    d = tl.arange(0, BK)
    where = X + (row * many + at)[:, None] * STEP + head * K + d[None, :]
    tl.store(where, found.to(X.dtype.element_ty), mask=(at < many)[:, None] & (d < K)[None, :])


@triton.jit
def _late_first(CAUSAL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return which block of queries is a program's own: late ones, which see more keys, start first."""
    block = tl.program_id(1)
    if CAUSAL:
        block = tl.num_programs(1) - 1 - block
    return block


@triton.jit
def _per_query(X, at, T, t, SURE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load a number for each query of the row and head at `at`."""
    found = tl.load(X + at * T + t) if SURE else tl.load(X + at * T + t, mask=t < T, other=0.0)
    return found


@triton.jit
def _attend_block(  # type: ignore[no-untyped-def]
    start, top, total, out, q, since, until, KV, BIAS, row, head, t, T, S, step, scale,
    K: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr, BIASED: tl.constexpr,
    AT_ONCE: tl.constexpr, BK: tl.constexpr, SURE: tl.constexpr,
):  # fmt: skip
    """Add one more block of keys to the running softmax of queries."""
    s = start + tl.arange(0, AT_ONCE)
    k = load_vectors(KV + K_AT, row, s, S, head, KV_STEP, K, BK, SURE)
    v = load_vectors(KV + V_AT, row, s, S, head, KV_STEP, K, BK, SURE)
    scores = tl.dot(q, tl.trans(k))
    if BIASED:
        scores += bias_at(BIAS, t[:, None], s[None, :], T, step) * (LOG2_E / scale)
    if not SURE:
        allowed = (s[None, :] >= since[:, None]) & (s[None, :] < until[:, None])
        scores = tl.where(allowed, scores, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1))
    powers = tl.exp2(scores * scale - (higher * scale)[:, None])  # scaled here, where it costs nothing
    shrink = tl.exp2((top - higher) * scale)
    return higher, total * shrink + tl.sum(powers, 1), out * shrink[:, None] + tl.dot(powers.to(v.dtype), v)


@triton.jit
def wide_forward(  # type: ignore[no-untyped-def]
    Q, KV, FROM, TO, BIAS, OUT, LOG, T, S, step, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, OWN: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Attend from a block of queries to all blocks of keys; LOG gets the log-sum-exp of each query, to base 2."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    BIAS += head * T * step
    first = _late_first(CAUSAL) * OWN
    t = first + tl.arange(0, OWN)
    scale *= LOG2_E
    q = load_vectors(Q, row, t, T, head, Q_STEP, K, BK, False)
    since, until, begin, sure, end = _query_ranges(FROM, TO, row, t, T, S, CAUSAL, BIASED, AT_ONCE)
    top = tl.full([OWN], -1e30, tl.float32)
    total = tl.zeros([OWN], tl.float32)
    out = tl.zeros([OWN, BK], tl.float32)
    for start in range(begin, sure, AT_ONCE):
        top, total, out = _attend_block(
            start, top, total, out, q, since, until, KV, BIAS, row, head, t, T, S, step, scale,
            K, KV_STEP, K_AT, V_AT, BIASED, AT_ONCE, BK, True,
        )  # fmt: skip
    for start in range(sure, end, AT_ONCE):
        top, total, out = _attend_block(
            start, top, total, out, q, since, until, KV, BIAS, row, head, t, T, S, step, scale,
            K, KV_STEP, K_AT, V_AT, BIASED, AT_ONCE, BK, False,
        )  # fmt: skip
    whole = tl.where(total > 0, total, 1.0)  # padding, and a text without keys, get zeros
    store_vectors(OUT, row, t, T, head, out / whole[:, None], H * K, K, BK)
    tl.store(LOG + (row * H + head) * T + t, top * scale + tl.log2(whole), mask=t < T)


@triton.jit
def _gradients(  # type: ignore[no-untyped-def]
    allowed, a, b, grad_a, grad_b, log, mean, BIAS, t, s, T, step, scale, BIASED: tl.constexpr, SURE: tl.constexpr
):
    """Recompute the weights of a block and return them with the gradients of its scores; a are queries and b keys, or vice versa.

    Beside them stand the factors of the weights' gradients: the result's gradient with queries, values with keys. The gradients
    are of scaled scores: what is found with them is scaled at the end.
    """
    logs = tl.dot(a, tl.trans(b)) * (scale * LOG2_E) - log
    if BIASED:
        logs += bias_at(BIAS, t, s, T, step) * LOG2_E
    if not SURE:
        logs = tl.where(allowed, logs, float("-inf"))
    weights = tl.exp2(logs)
    return weights, weights * (tl.dot(grad_a, tl.trans(grad_b)) - mean)


@triton.jit
def _grad_queries(  # type: ignore[no-untyped-def]
    start, grad_q, q, grad, log, mean, since, until, KV, BIAS, GRAD_SCORES, row, head, t, T, S, step, scale,
    K: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    BIASED: tl.constexpr, LEARNED: tl.constexpr,
    AT_ONCE: tl.constexpr, BK: tl.constexpr, SURE: tl.constexpr,
):  # fmt: skip
    """Add one more block of keys to the gradient of queries."""
    s = start + tl.arange(0, AT_ONCE)
    k = load_vectors(KV + K_AT, row, s, S, head, KV_STEP, K, BK, SURE)
    v = load_vectors(KV + V_AT, row, s, S, head, KV_STEP, K, BK, SURE)
    allowed = (s[None, :] >= since[:, None]) & (s[None, :] < until[:, None])
    _, grad_scores = _gradients(
        allowed, q, k, grad, v, log[:, None], mean[:, None], BIAS, t[:, None], s[None, :], T, step, scale, BIASED, SURE
    )
    if LEARNED:
        put_gradient(GRAD_SCORES, grad_scores, t[:, None], s[None, :], T, step)
    return grad_q + tl.dot(grad_scores.to(k.dtype), k)


@triton.jit
def wide_backward_queries(  # type: ignore[no-untyped-def]
    Q, KV, FROM, TO, BIAS, GRAD, OUT, LOG, MEAN, GRAD_Q, GRAD_SCORES, T, S, step, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, LEARNED: tl.constexpr,
    OWN: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a block of queries; MEAN gets the mean gradient of each query's weights.

    With LEARNED, GRAD_SCORES gets the gradients of the scores that some query of the block may see.
    """
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    BIAS += head * T * step
    first = _late_first(CAUSAL) * OWN
    t = first + tl.arange(0, OWN)
    q = load_vectors(Q, row, t, T, head, Q_STEP, K, BK, False)
    grad = load_vectors(GRAD, row, t, T, head, H * K, K, BK, False)
    out = load_vectors(OUT, row, t, T, head, H * K, K, BK, False)
    mean = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(MEAN + (row * H + head) * T + t, mean, mask=t < T)
    log = _per_query(LOG, row * H + head, T, t, False)
    GRAD_SCORES += (row * H + head) * T * step
    since, until, begin, sure, end = _query_ranges(FROM, TO, row, t, T, S, CAUSAL, BIASED, AT_ONCE)
    grad_q = tl.zeros([OWN, BK], tl.float32)
    for start in range(begin, sure, AT_ONCE):
        grad_q = _grad_queries(
            start, grad_q, q, grad, log, mean, since, until, KV, BIAS, GRAD_SCORES, row, head, t, T, S, step, scale,
            K, KV_STEP, K_AT, V_AT, BIASED, LEARNED, AT_ONCE, BK, True,
        )  # fmt: skip
    for start in range(sure, end, AT_ONCE):
        grad_q = _grad_queries(
            start, grad_q, q, grad, log, mean, since, until, KV, BIAS, GRAD_SCORES, row, head, t, T, S, step, scale,
            K, KV_STEP, K_AT, V_AT, BIASED, LEARNED, AT_ONCE, BK, False,
        )  # fmt: skip
    store_vectors(GRAD_Q, row, t, T, head, grad_q * scale, Q_STEP, K, BK)


@triton.jit
def _grad_keys(  # type: ignore[no-untyped-def]
    start, grad_k, grad_v, k, v, since, until, Q, BIAS, GRAD, LOG, MEAN, row, head, s, T, step, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, BIASED: tl.constexpr,
    AT_ONCE: tl.constexpr, BK: tl.constexpr, SURE: tl.constexpr,
):  # fmt: skip
    """Add one more block of queries to the gradients of keys and values."""
    t = start + tl.arange(0, AT_ONCE)
    q = load_vectors(Q, row, t, T, head, Q_STEP, K, BK, SURE)
    grad = load_vectors(GRAD, row, t, T, head, H * K, K, BK, SURE)
    log = _per_query(LOG, row * H + head, T, t, SURE)
    mean = _per_query(MEAN, row * H + head, T, t, SURE)
    allowed = (t[None, :] >= since[:, None]) & (t[None, :] < until[:, None])
    # Keys by queries: the other way round, both matrices would have to be transposed before the products below.
    weights, grad_scores = _gradients(
        allowed, k, q, v, grad, log[None, :], mean[None, :], BIAS, t[None, :], s[:, None], T, step, scale, BIASED, SURE
    )
    return grad_k + tl.dot(grad_scores.to(q.dtype), q), grad_v + tl.dot(weights.to(grad.dtype), grad)


@triton.jit
def wide_backward_keys(  # type: ignore[no-untyped-def]
    Q, KV, FROM, TO, BIAS, GRAD, LOG, MEAN, GRAD_KV, T, S, step, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, OWN: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of keys and of their values."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    BIAS += head * T * step
    first = tl.program_id(1) * OWN
    s = first + tl.arange(0, OWN)
    k = load_vectors(KV + K_AT, row, s, S, head, KV_STEP, K, BK, False)
    v = load_vectors(KV + V_AT, row, s, S, head, KV_STEP, K, BK, False)
    since, until = _range(FROM, TO, row, s, S, T)
    if CAUSAL:
        since = tl.maximum(since, s)
    begin, end = tl.min(since, 0), tl.max(until, 0)
    grad_k = tl.zeros([OWN, BK], tl.float32)
    grad_v = tl.zeros([OWN, BK], tl.float32)
    if CAUSAL:  # queries of the same block see only some of the keys
        after = tl.minimum(end, first + OWN)
        for start in range(begin, after, AT_ONCE):
            grad_k, grad_v = _grad_keys(
                start, grad_k, grad_v, k, v, since, until, Q, BIAS, GRAD, LOG, MEAN, row, head, s, T, step, scale,
                H, K, Q_STEP, BIASED, AT_ONCE, BK, False,
            )  # fmt: skip
        begin = begin + tl.cdiv(tl.maximum(after - begin, 0), AT_ONCE) * AT_ONCE
    sure = _whole_blocks(begin, tl.where(tl.max(since, 0) <= begin, tl.min(until, 0), begin), AT_ONCE)
    for start in range(begin, sure, AT_ONCE):
        grad_k, grad_v = _grad_keys(
            start, grad_k, grad_v, k, v, since, until, Q, BIAS, GRAD, LOG, MEAN, row, head, s, T, step, scale,
            H, K, Q_STEP, BIASED, AT_ONCE, BK, True,
        )  # fmt: skip
    for start in range(sure, end, AT_ONCE):
        grad_k, grad_v = _grad_keys(
            start, grad_k, grad_v, k, v, since, until, Q, BIAS, GRAD, LOG, MEAN, row, head, s, T, step, scale,
            H, K, Q_STEP, BIASED, AT_ONCE, BK, False,
        )  # fmt: skip
    store_vectors(GRAD_KV + K_AT, row, s, S, head, grad_k * scale, KV_STEP, K, BK)
    store_vectors(GRAD_KV + V_AT, row, s, S, head, grad_v, KV_STEP, K, BK)


def sizes(kernel: Any, head_width: int, causal: bool) -> dict[str, Any]:
    """Return how many positions a program owns, how many of the others it reads at once, and its launch options."""
    if head_width > 64:  # so that registers do not spill, and the shared memory of smaller GPUs is enough
        return {"OWN": 64, "AT_ONCE": 32, "num_warps": 4, "num_stages": 2}
    # The fastest of 36 on an H200, or nearly, for 64 rows of 512 positions and for 32 causal ones of 1,024.
    if kernel is wide_forward:
        return {"OWN": 128, "AT_ONCE": 64, "num_warps": 8, "num_stages": 3}
    if kernel is wide_backward_queries and not causal:
        return {"OWN": 128, "AT_ONCE": 32, "num_warps": 8, "num_stages": 4}
    return {"OWN": 64, "AT_ONCE": 32, "num_warps": 4, "num_stages": 4 if kernel is wide_backward_queries else 3}
