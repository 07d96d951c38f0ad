"""Smoothed cross-entropy and its gradient in one kernel: the scores of a token are read, and overwritten by their gradient.

N tokens, V vocabulary; a line of scores may be longer, and what is beyond V is left alone.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LOWEST = tl.constexpr(-1e30)  # below every score, and still a number to subtract from


@triton.jit
def _cross_entropy(  # type: ignore[no-untyped-def]
    SCORES, ANSWER, LOSS, skip, smoothing, V: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr, GRADIENT: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    answer = tl.load(ANSWER + token)
    scores = SCORES + token * STEP
    counts = answer != skip
    right = tl.load(scores + tl.where(counts, answer, 0)).to(tl.float32)  # now: later it may have been overwritten
    at = tl.arange(0, BLOCK)
    top = tl.full([BLOCK], LOWEST, tl.float32)  # each lane for itself, put together at the end
    powers = tl.zeros([BLOCK], tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        inside = start + at < V
        x = tl.load(scores + start + at, mask=inside, other=LOWEST).to(tl.float32)
        higher = tl.maximum(top, x)
        powers = powers * tl.exp(top - higher) + tl.where(inside, tl.exp(x - higher), 0.0)
        total += tl.where(inside, x, 0.0)
        top = higher
    highest = tl.max(top, 0)
    log_total = highest + tl.log(tl.sum(powers * tl.exp(top - highest), 0))
    loss = log_total - (1 - smoothing) * right - smoothing * tl.sum(total, 0) / V
    tl.store(LOSS + token, tl.where(counts, loss, 0.0))
    if GRADIENT:
        for start in range(0, V, BLOCK):  # the scores are still in the cache
            x = tl.load(scores + start + at, mask=start + at < V, other=0.0).to(tl.float32)
            grad = tl.exp(x - log_total) - smoothing / V - tl.where(start + at == answer, 1 - smoothing, 0.0)
            tl.store(scores + start + at, tl.where(counts, grad, 0.0).to(SCORES.dtype.element_ty), mask=start + at < V)


def cross_entropy(scores: Tensor, words: int, answer: Tensor, skip: int, smoothing: float, gradient: bool) -> Tensor:
    """Each token's loss (N,) in float32; `scores` (N, V or some more) become its gradient, where that is wanted."""
    loss = scores.new_empty(len(scores), dtype=torch.float32)
    _cross_entropy[(len(scores),)](
        scores, answer, loss, skip, smoothing, V=words, STEP=scores.size(1),
        BLOCK=min(4096, triton.next_power_of_2(words)), GRADIENT=gradient, num_warps=4,
    )  # fmt: skip
    return loss
