"""XLNet's attention (`parts/two_stream.py`) block by block: distances, segments, texts and ranks are read where scores are.

The products of queries with all vectors of distances are one matrix product. A query's keys lie side by side among them, one
entry earlier for each position that it is later. Only whether a key is in another segment matters: softmax ignores what all keys
of a query get. Where one program holds all keys of a row, it computes the whole backward pass; wider rows take two kernels.
B rows, N queries, S keys, L distances, D width, H heads, K head width, E = L + 1 or more.
"""

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.parts.kernels.bias import PADDED
from qkv.parts.kernels.wide import LOG2_E, load_vectors, store_vectors

if TYPE_CHECKING:
    from qkv.parts.two_stream import FusedStreamMask

WIDEST = 128  # keys of a row that one program of the backward pass holds
WIDE_HEAD = 64  # with wider heads, half as many


def with_segment(distances: Tensor, segment: Tensor) -> Tensor:
    """Put the vector of another segment (D,) behind those of distances (L, D), then zeros. -> (E, D)."""
    unused = distances.new_zeros(PADDED - 1 - len(distances) % PADDED, len(segment))
    return torch.cat([distances, segment.to(distances.dtype)[None], unused])


def attend(q: Tensor, kv: Tensor | None, vectors: Tensor, segment_bias: Tensor, mask: "FusedStreamMask") -> Tensor:
    """Compute attention with scores q·k + q'·vector of the key's distance, and of another segment.

    q and q' side by side (B, N, 2 D), and kv (B, S, 2 D); without kv all are one tensor (B, N, 4 D), whose first S positions
    have the keys. vectors (E, D) from `with_segment`; segment_bias (H,) is added for keys in another segment. -> (B, N, D).
    """
    return _StreamAttention.apply(q.contiguous(), None if kv is None else kv.contiguous(), vectors, segment_bias, mask)


@triton.jit
def _query_facts(QUERIES, row, n, B, N):  # type: ignore[no-untyped-def]
    """Load text, highest rank, segment and position of some queries."""
    at, real = row * N + n, n < N
    text, rank = tl.load(QUERIES + at, mask=real, other=0), tl.load(QUERIES + B * N + at, mask=real, other=0)
    segment = tl.load(QUERIES + 2 * B * N + at, mask=real, other=0)
    return text, rank, segment, tl.load(QUERIES + 3 * B * N + at, mask=real, other=0)


@triton.jit
def _key_facts(KEYS, row, s, B, S):  # type: ignore[no-untyped-def]
    """Load text, rank and segment of some keys; outside a row the text is 0, which nobody attends to."""
    at, real = row * S + s, s < S
    text, rank = tl.load(KEYS + at, mask=real, other=0), tl.load(KEYS + B * S + at, mask=real, other=0)
    return text, rank, tl.load(KEYS + 2 * B * S + at, mask=real, other=0)


@triton.jit
def _scores(  # type: ignore[no-untyped-def]
    q, k, PRODUCTS, first, other, text, rank, segment, s, key_text, key_rank, key_segment, scale
):
    """Return the scores of some queries and keys, to base 2, and which keys are in another segment."""
    allowed = (text[:, None] == key_text[None, :]) & (key_text > 0)[None, :] & (key_rank[None, :] <= rank[:, None])
    in_another = segment[:, None] != key_segment[None, :]
    found = tl.dot(q, tl.trans(k)) + tl.load(PRODUCTS + first[:, None] + s[None, :], mask=allowed, other=0.0).to(tl.float32)
    found += tl.where(in_another, other[:, None], 0.0)
    return tl.where(allowed, found * (scale * LOG2_E), float("-inf")), in_another


@triton.jit
def streams_forward(  # type: ignore[no-untyped-def]
    Q, KV, PRODUCTS, SEGMENT_BIAS, QUERIES, KEYS, OUT, LOG, B, N, S, L, step, kv_row, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    OWN: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Attend from a block of queries to all keys of a row; LOG gets the log-sum-exp of each query, to base 2."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    PRODUCTS += (head * B * N + row * N) * step
    n = tl.program_id(1) * OWN + tl.arange(0, OWN)
    text, rank, segment, position = _query_facts(QUERIES, row, n, B, N)
    line = n * step  # where a query's products begin, and where that of its first key is
    first = line + (L - S) - position
    other = tl.load(PRODUCTS + line + L, mask=n < N, other=0.0).to(tl.float32) + tl.load(SEGMENT_BIAS + head)
    q = load_vectors(Q, row, n, N, head, Q_STEP, K, BK, False)
    top = tl.full([OWN], -1e30, tl.float32)
    total = tl.zeros([OWN], tl.float32)
    out = tl.zeros([OWN, BK], tl.float32)
    for start in range(0, S, AT_ONCE):
        s = start + tl.arange(0, AT_ONCE)
        key_text, key_rank, key_segment = _key_facts(KEYS, row, s, B, S)
        k = load_vectors(KV + K_AT, row, s, kv_row, head, KV_STEP, K, BK, False)
        v = load_vectors(KV + V_AT, row, s, kv_row, head, KV_STEP, K, BK, False)
        scores, _ = _scores(q, k, PRODUCTS, first, other, text, rank, segment, s, key_text, key_rank, key_segment, scale)
        higher = tl.maximum(top, tl.max(scores, 1))
        powers, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(top - higher)
        total = total * shrink + tl.sum(powers, 1)
        out = out * shrink[:, None] + tl.dot(powers.to(v.dtype), v)
        top = higher
    whole = tl.where(total > 0, total, 1.0)  # a query that sees nothing gets zeros
    store_vectors(OUT, row, n, N, head, out / whole[:, None], H * K, K, BK)
    tl.store(LOG + (row * H + head) * N + n, top + tl.log2(whole), mask=n < N)


@triton.jit
def _store_no_keys(GRAD_PRODUCTS, line, first, real, S, L, step, AT_ONCE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store zeros as the gradients of products that belong to no key."""
    for start in range(0, step, AT_ONCE):
        at = line[:, None] + (start + tl.arange(0, AT_ONCE))[None, :]
        unread = (at < first[:, None]) | (at >= first[:, None] + S)
        inside = (at < line[:, None] + step) & (at != line[:, None] + L) & real[:, None]
        tl.store(GRAD_PRODUCTS + at, 0.0, mask=unread & inside)


@triton.jit
def streams_backward_keys(  # type: ignore[no-untyped-def]
    Q, KV, PRODUCTS, SEGMENT_BIAS, QUERIES, KEYS, OUT, LOG, GRAD, GRAD_Q, GRAD_KV, GRAD_PRODUCTS, GRAD_OTHER,
    B, N, S, L, step, kv_row, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    ALL: tl.constexpr, OWN: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of keys and of their values; with ALL keys of a row, those of the queries too."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    PRODUCTS += (head * B * N + row * N) * step
    GRAD_PRODUCTS += (head * B * N + row * N) * step
    s = tl.program_id(1) * OWN + tl.arange(0, OWN)
    key_text, key_rank, key_segment = _key_facts(KEYS, row, s, B, S)
    k = load_vectors(KV + K_AT, row, s, kv_row, head, KV_STEP, K, BK, False)
    v = load_vectors(KV + V_AT, row, s, kv_row, head, KV_STEP, K, BK, False)
    segment_bias = tl.load(SEGMENT_BIAS + head)
    grad_k = tl.zeros([OWN, BK], tl.float32)
    grad_v = tl.zeros([OWN, BK], tl.float32)
    for start in range(0, N, AT_ONCE):
        n = start + tl.arange(0, AT_ONCE)
        text, rank, segment, position = _query_facts(QUERIES, row, n, B, N)
        line = n * step  # where a query's products begin, and where that of its first key is
        first = line + (L - S) - position
        other = tl.load(PRODUCTS + line + L, mask=n < N, other=0.0).to(tl.float32) + segment_bias
        q = load_vectors(Q, row, n, N, head, Q_STEP, K, BK, False)
        scores, in_another = _scores(q, k, PRODUCTS, first, other, text, rank, segment, s, key_text, key_rank, key_segment, scale)
        log = tl.load(LOG + (row * H + head) * N + n, mask=n < N, other=0.0)
        weights = tl.exp2(scores - log[:, None])
        grad = load_vectors(GRAD, row, n, N, head, H * K, K, BK, False)
        out = load_vectors(OUT, row, n, N, head, H * K, K, BK, False)
        mean = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
        grad_v += tl.dot(tl.trans(weights.to(grad.dtype)), grad)
        grad_scores = weights * (tl.dot(grad, tl.trans(v)) - mean[:, None]) * scale
        low = grad_scores.to(q.dtype)
        grad_k += tl.dot(tl.trans(low), q)
        if ALL:
            real = n < N
            store_vectors(GRAD_Q, row, n, N, head, tl.dot(low, k), Q_STEP, K, BK)
            inside = real[:, None] & (s < S)[None, :]
            tl.store(GRAD_PRODUCTS + first[:, None] + s[None, :], grad_scores.to(GRAD_PRODUCTS.dtype.element_ty), mask=inside)
            _store_no_keys(GRAD_PRODUCTS, line, first, real, S, L, step, OWN)
            found = tl.sum(tl.where(in_another, grad_scores, 0.0), 1)
            tl.store(GRAD_PRODUCTS + line + L, found.to(GRAD_PRODUCTS.dtype.element_ty), mask=real)
            tl.store(GRAD_OTHER + head * B * N + row * N + n, found, mask=real)
    store_vectors(GRAD_KV + K_AT, row, s, kv_row, head, grad_k, KV_STEP, K, BK)
    store_vectors(GRAD_KV + V_AT, row, s, kv_row, head, grad_v, KV_STEP, K, BK)


@triton.jit
def streams_backward_queries(  # type: ignore[no-untyped-def]
    Q, KV, PRODUCTS, SEGMENT_BIAS, QUERIES, KEYS, OUT, LOG, GRAD, GRAD_Q, GRAD_PRODUCTS, GRAD_OTHER,
    B, N, S, L, step, kv_row, scale,
    H: tl.constexpr, K: tl.constexpr, Q_STEP: tl.constexpr, KV_STEP: tl.constexpr, K_AT: tl.constexpr, V_AT: tl.constexpr,
    OWN: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of queries and of their products, in rows with more keys than one program holds."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    PRODUCTS += (head * B * N + row * N) * step
    GRAD_PRODUCTS += (head * B * N + row * N) * step
    n = tl.program_id(1) * OWN + tl.arange(0, OWN)
    real = n < N
    text, rank, segment, position = _query_facts(QUERIES, row, n, B, N)
    line = n * step  # where a query's products begin, and where that of its first key is
    first = line + (L - S) - position
    other = tl.load(PRODUCTS + line + L, mask=real, other=0.0).to(tl.float32) + tl.load(SEGMENT_BIAS + head)
    q = load_vectors(Q, row, n, N, head, Q_STEP, K, BK, False)
    grad = load_vectors(GRAD, row, n, N, head, H * K, K, BK, False)
    out = load_vectors(OUT, row, n, N, head, H * K, K, BK, False)
    mean = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
    log = tl.load(LOG + (row * H + head) * N + n, mask=real, other=0.0)
    grad_q, grad_other = tl.zeros([OWN, BK], tl.float32), tl.zeros([OWN], tl.float32)
    for start in range(0, S, AT_ONCE):
        s = start + tl.arange(0, AT_ONCE)
        key_text, key_rank, key_segment = _key_facts(KEYS, row, s, B, S)
        k = load_vectors(KV + K_AT, row, s, kv_row, head, KV_STEP, K, BK, False)
        v = load_vectors(KV + V_AT, row, s, kv_row, head, KV_STEP, K, BK, False)
        scores, in_another = _scores(q, k, PRODUCTS, first, other, text, rank, segment, s, key_text, key_rank, key_segment, scale)
        grad_scores = tl.exp2(scores - log[:, None]) * (tl.dot(grad, tl.trans(v)) - mean[:, None]) * scale
        inside = real[:, None] & (s < S)[None, :]
        tl.store(GRAD_PRODUCTS + first[:, None] + s[None, :], grad_scores.to(GRAD_PRODUCTS.dtype.element_ty), mask=inside)
        grad_other += tl.sum(tl.where(in_another, grad_scores, 0.0), 1)
        grad_q += tl.dot(grad_scores.to(k.dtype), k)
    store_vectors(GRAD_Q, row, n, N, head, grad_q, Q_STEP, K, BK)
    _store_no_keys(GRAD_PRODUCTS, line, first, real, S, L, step, AT_ONCE)
    tl.store(GRAD_PRODUCTS + line + L, grad_other.to(GRAD_PRODUCTS.dtype.element_ty), mask=real)
    tl.store(GRAD_OTHER + head * B * N + row * N + n, grad_other, mask=real)


def sizes(kernel: Any, head_width: int) -> dict[str, int]:
    """Return how many positions a program owns, how many of the others it reads at once, and its launch options."""
    if kernel is streams_backward_keys:
        return {"OWN": WIDEST if head_width <= WIDE_HEAD else WIDEST // 2, "AT_ONCE": 32, "num_warps": 8, "num_stages": 1}
    return {"OWN": 64 if head_width <= WIDE_HEAD else 32, "AT_ONCE": 64, "num_warps": 4, "num_stages": 1}


class _StreamAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor | None, vectors: Tensor, segment_bias: Tensor, mask: "FusedStreamMask") -> Tensor:
        heads, bias = len(segment_bias), segment_bias.float()
        by_head = vectors.unflatten(-1, (heads, -1)).permute(1, 2, 0)  # (H, K, E)
        products = _distance_queries(q, vectors, heads) @ by_head  # (H, B N, E)
        out = q.new_empty(*q.shape[:2], vectors.size(1))
        log = q.new_empty(len(q), heads, q.size(1), dtype=torch.float32)
        _launch(streams_forward, q, kv, products, bias, mask, [out, log])
        ctx.save_for_backward(q, kv, vectors, products, bias, out, log)
        ctx.mask = mask
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, kv, vectors, products, bias, out, log = ctx.saved_tensors
        mask, heads, width, keys, grad = ctx.mask, len(bias), vectors.size(1), ctx.mask.keys.size(2), grads[0].contiguous()
        grad_q, grad_products = torch.empty_like(q), torch.empty_like(products)
        grad_other = torch.empty_like(products[..., 0], dtype=torch.float32)
        grad_kv = grad_q if kv is None else torch.empty_like(kv)
        if kv is None:
            grad_q[:, keys:, 2 * width :] = 0  # positions without keys
        one = keys <= sizes(streams_backward_keys, width // heads)["OWN"]  # block of keys
        _launch(
            streams_backward_keys, q, kv, products, bias, mask,
            [out, log, grad, grad_q, grad_kv, grad_products, grad_other], ALL=one,
        )  # fmt: skip
        if not one:
            _launch(streams_backward_queries, q, kv, products, bias, mask, [out, log, grad, grad_q, grad_products, grad_other])
        by_head = vectors.unflatten(-1, (heads, -1)).transpose(0, 1)  # (H, E, K)
        torch.bmm(grad_products, by_head, out=_distance_queries(grad_q, vectors, heads))
        grad_vectors = (grad_products.transpose(1, 2) @ _distance_queries(q, vectors, heads)).transpose(0, 1).flatten(1)
        return grad_q, None if kv is None else grad_kv, grad_vectors, grad_other.sum(1), None


def _distance_queries(q: Tensor, vectors: Tensor, heads: int) -> Tensor:
    """View each head's part of q', the second D values at all positions. (B, N, 2 D or more) -> (H, B N, K)."""
    width = vectors.size(1)
    return q[..., width : 2 * width].flatten(0, 1).unflatten(-1, (heads, -1)).transpose(0, 1)


def _launch(
    kernel: Any,
    q: Tensor,
    kv: Tensor | None,
    products: Tensor,
    bias: Tensor,
    mask: "FusedStreamMask",
    rest: list[Tensor],
    **flags: bool,
) -> None:
    """Start a program for each row, head and block of keys or queries."""
    heads = len(bias)
    kv, width = (q, q.size(-1) // 4) if kv is None else (kv, kv.size(-1) // 2)
    first = kv.size(-1) - 2 * width  # keys begin there, values a width later
    (_, rows, queries), keys = mask.queries.shape, mask.keys.size(2)
    blocks = sizes(kernel, width // heads)
    own = keys if kernel is streams_backward_keys else queries
    kernel[rows * heads, triton.cdiv(own, blocks["OWN"])](
        q, kv, products, bias, mask.queries, mask.keys, *rest,
        rows, queries, keys, mask.distances, products.size(-1), kv.size(1), (width // heads) ** -0.5,
        H=heads, K=width // heads, Q_STEP=q.size(-1), KV_STEP=kv.size(-1), K_AT=first, V_AT=first + width,
        **flags, **blocks, BK=max(16, triton.next_power_of_2(width // heads)),
    )  # fmt: skip
