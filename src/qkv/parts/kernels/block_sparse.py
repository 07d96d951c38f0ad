"""Block-sparse attention over lists of blocks: for `sparse.py`.

A program has a block of queries, or of keys, and goes through the blocks in its list; the pattern's rule is evaluated for each
pair of positions within. No two programs add to the same sum, so that the same input always gives the same result. Programs whose
block holds global tokens go through a whole text and take longest; in a row of one text they start first.

In float32 products are exact (Triton's "ieee"), not rounded to the inputs of tensor cores.

Not FlexAttention, which does the same for any rule: it needs torch.compile, which nothing else here does, and makes its lists
from a matrix of all pairs of blocks.
B rows, T positions, N blocks in a row, H heads, K head width, R random blocks.
"""

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from qkv.parts.sparse import BlockLists, BlockSparseMask


def attend_block_sparse(qkv: Tensor, mask: "BlockSparseMask", heads: int) -> Tensor:
    """Compute self-attention under a pattern. qkv (B, T, 3 D): queries, keys, values side by side -> (B, T, D)."""
    return _BlockSparse.apply(qkv.contiguous(), mask, heads)


@triton.jit
def _other(ENTRIES, start, begin, number):  # type: ignore[no-untyped-def]
    """Return the block of that number in a list or, without a list, in a range of blocks."""
    return tl.where(begin < 0, tl.load(ENTRIES + start + number, mask=begin < 0, other=0), begin + number)


@triton.jit
def _allowed(  # type: ignore[no-untyped-def]
    queries, keys, t, s, position_t, position_s, CHOSEN, at, radius, global_tokens, R: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Evaluate the rule of `patterns.Pattern` for texts and positions, in the row and within the text, that broadcast."""
    allowed = (tl.abs(t - s) <= radius) | (position_t < global_tokens) | (position_s < global_tokens)
    for number in tl.static_range(R):
        allowed = allowed | (tl.load(CHOSEN + at * R + number) == position_s // BLOCK)
    return allowed & (queries == keys) & (keys > 0)


@triton.jit
def _product(a, b, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.dot(a, b, input_precision="ieee" if EXACT else "tf32")


@triton.jit
def _gradients(allowed, a, b, grad_a, grad_b, log, mean, scale, EXACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Recompute the weights of a block and return them with the gradients of its scores.

    A are queries and b keys, or vice versa.
    """
    weights = tl.exp(tl.where(allowed, _product(a, tl.trans(b), EXACT) * scale, float("-inf")) - log)
    return weights, weights * (_product(grad_a, tl.trans(grad_b), EXACT) - mean) * scale


@triton.jit
def block_sparse_forward(  # type: ignore[no-untyped-def]
    QKV, TEXT, POSITION, CHOSEN, ENTRIES, START, COUNT, BEGIN, OUT, LOG, T, blocks, entries, radius, global_tokens, scale,
    H: tl.constexpr, K: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
    OWN: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Attend from a block of queries to the keys in its list; LOG gets the log-sum-exp of each query."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, d = tl.program_id(1) * OWN + tl.arange(0, OWN), tl.arange(0, BK)
    block, inside_q = row * blocks + tl.program_id(1) * OWN // BLOCK, (t < T)[:, None] & (d < K)[None, :]
    q = tl.load(QKV + (row * T + t)[:, None] * (3 * H * K) + head * K + d[None, :], mask=inside_q, other=0.0)
    at = row * blocks * BLOCK + t
    queries, position_t = tl.load(TEXT + at), tl.load(POSITION + at)
    start, begin = row * entries + tl.load(START + block), tl.load(BEGIN + block)
    top = tl.full([OWN], -1e30, tl.float32)
    total = tl.zeros([OWN], tl.float32)
    out = tl.zeros([OWN, BK], tl.float32)
    for number in range(tl.load(COUNT + block) * (BLOCK // AT_ONCE)):
        other = _other(ENTRIES, start, begin, number // (BLOCK // AT_ONCE))
        s = other * BLOCK + number % (BLOCK // AT_ONCE) * AT_ONCE + tl.arange(0, AT_ONCE)
        keys, position_s = tl.load(TEXT + row * blocks * BLOCK + s), tl.load(POSITION + row * blocks * BLOCK + s)
        at_k = (row * T + s)[:, None] * (3 * H * K) + head * K + d[None, :]
        inside_k = (s < T)[:, None] & (d < K)[None, :]
        k = tl.load(QKV + H * K + at_k, mask=inside_k, other=0.0)
        v = tl.load(QKV + 2 * H * K + at_k, mask=inside_k, other=0.0)
        allowed = _allowed(
            queries[:, None], keys[None, :], t[:, None], s[None, :], position_t[:, None], position_s[None, :],
            CHOSEN, at[:, None], radius, global_tokens, R, BLOCK,
        )  # fmt: skip
        scores = tl.where(allowed, _product(q, tl.trans(k), EXACT) * scale, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        powers = tl.exp(scores - higher[:, None])
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(powers, 1)
        out = out * shrink[:, None] + _product(powers.to(v.dtype), v, EXACT)
        top = higher
    whole = tl.where(total > 0, total, 1.0)  # padding gets zeros
    out = out / whole[:, None]
    tl.store(OUT + (row * T + t)[:, None] * (H * K) + head * K + d[None, :], out.to(OUT.dtype.element_ty), mask=inside_q)
    tl.store(LOG + (row * T + t) * H + head, top + tl.log(whole), mask=t < T)


@triton.jit
def block_sparse_backward_queries(  # type: ignore[no-untyped-def]
    QKV, TEXT, POSITION, CHOSEN, ENTRIES, START, COUNT, BEGIN, GRAD, OUT, LOG, MEAN, GRAD_QKV, T, blocks, entries,
    radius, global_tokens, scale,
    H: tl.constexpr, K: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
    OWN: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a block of queries; MEAN gets the mean gradient of each query's weights."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, d = tl.program_id(1) * OWN + tl.arange(0, OWN), tl.arange(0, BK)
    block, inside_q = row * blocks + tl.program_id(1) * OWN // BLOCK, (t < T)[:, None] & (d < K)[None, :]
    at_q = (row * T + t)[:, None] * (3 * H * K) + head * K + d[None, :]
    q = tl.load(QKV + at_q, mask=inside_q, other=0.0)
    at_out = (row * T + t)[:, None] * (H * K) + head * K + d[None, :]
    grad = tl.load(GRAD + at_out, mask=inside_q, other=0.0)
    out = tl.load(OUT + at_out, mask=inside_q, other=0.0)
    mean = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(MEAN + (row * T + t) * H + head, mean, mask=t < T)
    log = tl.load(LOG + (row * T + t) * H + head, mask=t < T, other=0.0)
    at = row * blocks * BLOCK + t
    queries, position_t = tl.load(TEXT + at), tl.load(POSITION + at)
    start, begin = row * entries + tl.load(START + block), tl.load(BEGIN + block)
    grad_q = tl.zeros([OWN, BK], tl.float32)
    for number in range(tl.load(COUNT + block) * (BLOCK // AT_ONCE)):
        other = _other(ENTRIES, start, begin, number // (BLOCK // AT_ONCE))
        s = other * BLOCK + number % (BLOCK // AT_ONCE) * AT_ONCE + tl.arange(0, AT_ONCE)
        keys, position_s = tl.load(TEXT + row * blocks * BLOCK + s), tl.load(POSITION + row * blocks * BLOCK + s)
        at_k = (row * T + s)[:, None] * (3 * H * K) + head * K + d[None, :]
        inside_k = (s < T)[:, None] & (d < K)[None, :]
        k = tl.load(QKV + H * K + at_k, mask=inside_k, other=0.0)
        v = tl.load(QKV + 2 * H * K + at_k, mask=inside_k, other=0.0)
        allowed = _allowed(
            queries[:, None], keys[None, :], t[:, None], s[None, :], position_t[:, None], position_s[None, :],
            CHOSEN, at[:, None], radius, global_tokens, R, BLOCK,
        )  # fmt: skip
        _, grad_scores = _gradients(allowed, q, k, grad, v, log[:, None], mean[:, None], scale, EXACT)
        grad_q += _product(grad_scores.to(k.dtype), k, EXACT)
    tl.store(GRAD_QKV + at_q, grad_q.to(GRAD_QKV.dtype.element_ty), mask=inside_q)


@triton.jit
def block_sparse_backward_keys(  # type: ignore[no-untyped-def]
    QKV, TEXT, POSITION, CHOSEN, ENTRIES, START, COUNT, BEGIN, GRAD, LOG, MEAN, GRAD_QKV, T, blocks, entries, radius,
    global_tokens, scale,
    H: tl.constexpr, K: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
    OWN: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of keys and of their values, from the queries in its list."""
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    s, d = tl.program_id(1) * OWN + tl.arange(0, OWN), tl.arange(0, BK)
    block, inside_k = row * blocks + tl.program_id(1) * OWN // BLOCK, (s < T)[:, None] & (d < K)[None, :]
    at_k = (row * T + s)[:, None] * (3 * H * K) + head * K + d[None, :]
    k = tl.load(QKV + H * K + at_k, mask=inside_k, other=0.0)
    v = tl.load(QKV + 2 * H * K + at_k, mask=inside_k, other=0.0)
    keys, position_s = tl.load(TEXT + row * blocks * BLOCK + s), tl.load(POSITION + row * blocks * BLOCK + s)
    start, begin = row * entries + tl.load(START + block), tl.load(BEGIN + block)
    grad_k = tl.zeros([OWN, BK], tl.float32)
    grad_v = tl.zeros([OWN, BK], tl.float32)
    for number in range(tl.load(COUNT + block) * (BLOCK // AT_ONCE)):
        other = _other(ENTRIES, start, begin, number // (BLOCK // AT_ONCE))
        t = other * BLOCK + number % (BLOCK // AT_ONCE) * AT_ONCE + tl.arange(0, AT_ONCE)
        at = row * blocks * BLOCK + t
        queries, position_t = tl.load(TEXT + at), tl.load(POSITION + at)
        inside_q = (t < T)[:, None] & (d < K)[None, :]
        q = tl.load(QKV + (row * T + t)[:, None] * (3 * H * K) + head * K + d[None, :], mask=inside_q, other=0.0)
        grad = tl.load(GRAD + (row * T + t)[:, None] * (H * K) + head * K + d[None, :], mask=inside_q, other=0.0)
        log = tl.load(LOG + (row * T + t) * H + head, mask=t < T, other=0.0)
        mean = tl.load(MEAN + (row * T + t) * H + head, mask=t < T, other=0.0)
        # Keys by queries: the other way round, both matrices would have to be transposed before the products below.
        allowed = _allowed(
            queries[None, :], keys[:, None], t[None, :], s[:, None], position_t[None, :], position_s[:, None],
            CHOSEN, at[None, :], radius, global_tokens, R, BLOCK,
        )  # fmt: skip
        weights, grad_scores = _gradients(allowed, k, q, v, grad, log[None, :], mean[None, :], scale, EXACT)
        grad_v += _product(weights.to(grad.dtype), grad, EXACT)
        grad_k += _product(grad_scores.to(q.dtype), q, EXACT)
    tl.store(GRAD_QKV + H * K + at_k, grad_k.to(GRAD_QKV.dtype.element_ty), mask=inside_k)
    tl.store(GRAD_QKV + 2 * H * K + at_k, grad_v.to(GRAD_QKV.dtype.element_ty), mask=inside_k)


def sizes(kernel: Any, head_width: int, block: int, exact: bool) -> dict[str, Any]:
    """Return how many positions a program owns, how many of the others it reads at once, and its launch options."""
    # So that registers do not spill and, with wider heads or numbers, the shared memory of smaller GPUs is enough.
    few = kernel is block_sparse_backward_keys or head_width > 64 or exact
    size = {"OWN": min(block, 32 if exact else 64), "AT_ONCE": min(block, 32 if few else 64), "EXACT": exact}
    return {**size, "num_warps": 4, "num_stages": 3 if head_width <= 64 and not exact else 2}


def _launch(kernel: Any, qkv: Tensor, mask: "BlockSparseMask", lists: "BlockLists", rest: list[Tensor], heads: int) -> None:
    """Start a program for each row, head and range of positions."""
    pattern, each = mask.pattern, qkv.size(-1) // 3 // heads
    width = max(16, triton.next_power_of_2(each))
    size = sizes(kernel, width, pattern.block_size, qkv.dtype == torch.float32)
    grid = (qkv.size(0) * heads, triton.cdiv(qkv.size(1), size["OWN"]))
    kernel[grid](
        qkv, mask.text, mask.position, mask.chosen, *lists, *rest,
        qkv.size(1), lists.counts.size(1), lists.entries.size(1), pattern.radius, pattern.global_tokens, each**-0.5,
        H=heads, K=each, R=pattern.random_blocks, BLOCK=pattern.block_size, **size, BK=width,
    )  # fmt: skip


class _BlockSparse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, mask: "BlockSparseMask", heads: int) -> Tensor:
        out = qkv.new_empty(*qkv.shape[:2], qkv.size(-1) // 3)
        log = out.new_empty(*qkv.shape[:2], heads, dtype=torch.float32)
        _launch(block_sparse_forward, qkv, mask, mask.of_queries, [out, log], heads)
        ctx.save_for_backward(qkv, out, log)
        ctx.mask, ctx.heads = mask, heads
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        qkv, out, log = ctx.saved_tensors
        mask, grad, found = ctx.mask, grads[0].contiguous(), torch.empty_like(qkv)
        mean = torch.empty_like(log)  # written for the queries, read for the keys
        rest = [grad, out, log, mean, found]
        _launch(block_sparse_backward_queries, qkv, mask, mask.of_queries, rest, ctx.heads)
        _launch(block_sparse_backward_keys, qkv, mask, mask.of_keys, [grad, log, mean, found], ctx.heads)
        return found, None, None
