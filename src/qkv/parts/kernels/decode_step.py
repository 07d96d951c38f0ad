"""One decoding step of attention over a KV cache as one kernel: keys and values are read through an index, without copies.

R hypotheses, L positions of room, D width, H heads, K head width.
"""

import triton
import triton.language as tl
from torch import Tensor

POSITIONS = 32  # cached positions that a program reads at once


def attend_cached(qkv: Tensor, log: Tensor, index: Tensor, newest: Tensor, heads: int, begin: Tensor | None = None) -> Tensor:
    """Store keys and values of the newest position in the log, then attend to all positions up to it.

    qkv (R, 3 D): side by side; log (rows, 2 D); index (R, L): the rows of each hypothesis; newest (1,): the position; begin (R,):
    the first position of each hypothesis, None if all begin at 0 -> (R, D).
    """
    rows, width = qkv.size(0), log.size(1) // 2
    out = qkv.new_empty(rows, width)
    head = width // heads
    shape = {"H": heads, "K": head, "BK": triton.next_power_of_2(head), "BL": POSITIONS, "SHIFTED": begin is not None}
    inputs = (qkv, log, index, newest, newest if begin is None else begin, out)
    _attend[(rows * heads,)](*inputs, qkv.stride(0), index.stride(0), head**-0.5, **shape, num_warps=2)
    return out


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    QKV, LOG, INDEX, NEWEST, BEGIN, OUT, qkv_step, index_step, scale,
    H: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, BL: tl.constexpr, SHIFTED: tl.constexpr,
):  # fmt: skip
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    d = tl.arange(0, BK)
    inside = d < K
    at = row * qkv_step + head * K + d
    q = tl.load(QKV + at, mask=inside, other=0.0).to(tl.float32) * scale
    k = tl.load(QKV + at + H * K, mask=inside, other=0.0)
    v = tl.load(QKV + at + 2 * H * K, mask=inside, other=0.0)
    newest = tl.load(NEWEST)
    own = tl.load(INDEX + row * index_step + newest) * (2 * H * K) + head * K + d
    tl.store(LOG + own, k, mask=inside)
    tl.store(LOG + own + H * K, v, mask=inside)
    highest = tl.sum(q * k.to(tl.float32), 0)  # the sums start with the newest position; the others are added block by block
    found = v.to(tl.float32)
    total = highest * 0.0 + 1.0
    begin = newest * 0
    if SHIFTED:
        begin = tl.load(BEGIN + row)
    for first in range(begin, newest, BL):
        position = first + tl.arange(0, BL)
        there = position < newest
        rows = tl.load(INDEX + row * index_step + position, mask=there, other=0)
        past = rows[:, None] * (2 * H * K) + head * K + d[None, :]
        both = there[:, None] & inside[None, :]
        keys = tl.load(LOG + past, mask=both, other=0.0).to(tl.float32)
        values = tl.load(LOG + past + H * K, mask=both, other=0.0).to(tl.float32)
        scores = tl.where(there, tl.sum(keys * q[None, :], 1), float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 0))
        shrink = tl.exp(highest - higher)
        powers = tl.exp(scores - higher)
        found = found * shrink + tl.sum(powers[:, None] * values, 0)
        total = total * shrink + tl.sum(powers, 0)
        highest = higher
    tl.store(OUT + row * (H * K) + head * K + d, (found / total).to(OUT.dtype.element_ty), mask=inside)
