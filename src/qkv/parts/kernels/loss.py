"""Smoothed cross-entropy and its gradient in one kernel: the scores of a token are read, and overwritten by their gradient.

N tokens, V vocabulary; a line of scores may be longer, and what is beyond V is left alone.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LOWEST = tl.constexpr(-1e30)  # below every score, and still a number to subtract from
LOG2_E = tl.constexpr(1.4426950408889634)  # powers of two are what a GPU computes
EACH = 8  # scores of a lane, which one thread reads at once, or two in the largest programs
LONG = 1 << 14  # words from which on a line of scores is long


@triton.jit
def _read(scores, at, V: tl.constexpr, SURE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Scores in units of log 2, all of them words if SURE."""
    # Kept in the cache for the second time.
    found = tl.load(scores + at, eviction_policy="evict_last") if SURE else tl.load(scores + at, mask=at < V, other=LOWEST)
    return found.to(tl.float32) * LOG2_E


@triton.jit
def _take_in(scores, at, top, powers, total, V: tl.constexpr, SMOOTHED: tl.constexpr, SURE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The highest score, the sum of powers and the sum of scores of each line of lanes, with some more scores."""
    x = _read(scores, at, V, SURE)
    higher = tl.maximum(top, tl.max(x, 1))
    powers = powers * tl.exp2(top - higher) + tl.sum(tl.exp2(x - higher[:, None]), 1)
    if SMOOTHED:
        total += tl.sum(x if SURE else tl.where(at < V, x, 0.0), 1)
    return higher, powers, total


@triton.jit
def _give_back(scores, at, log_total, least, right, answer, V: tl.constexpr, SURE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Overwrite some scores by their gradient."""
    grad = tl.exp2(_read(scores, at, V, SURE) - log_total) - least - tl.where(at == answer, right, 0.0)
    grad = grad.to(scores.dtype.element_ty)
    if SURE:
        tl.store(scores + at, grad, eviction_policy="evict_first")
    else:
        tl.store(scores + at, grad, mask=at < V)


@triton.jit
def _cross_entropy(  # type: ignore[no-untyped-def]
    SCORES, ANSWER, LOSS, skip, smoothing, V: tl.constexpr, STEP: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr,
    SMOOTHED: tl.constexpr, GRADIENT: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    answer = tl.load(ANSWER + token)
    scores = SCORES + token * STEP
    counts = answer != skip
    said = tl.load(scores + tl.where(counts, answer, 0)).to(tl.float32)  # now: later it may have been overwritten
    at = tl.arange(0, LANES)[:, None] * EACH + tl.arange(0, EACH)[None, :]
    SURE: tl.constexpr = V // (LANES * EACH) * (LANES * EACH)
    top = tl.full([LANES], LOWEST, tl.float32)  # each lane for itself, put together at the end
    powers = tl.zeros([LANES], tl.float32)
    total = tl.zeros([LANES], tl.float32)
    for start in range(0, SURE, LANES * EACH):
        top, powers, total = _take_in(scores, start + at, top, powers, total, V, SMOOTHED, True)
    if SURE < V:
        top, powers, total = _take_in(scores, SURE + at, top, powers, total, V, SMOOTHED, False)
    highest = tl.max(top, 0)
    log_total = highest + tl.log2(tl.sum(powers * tl.exp2(top - highest), 0))
    loss = log_total / LOG2_E - (1 - smoothing) * said
    if SMOOTHED:
        loss -= smoothing / V * tl.sum(total, 0) / LOG2_E
    tl.store(LOSS + token, tl.where(counts, loss, 0.0))
    if GRADIENT:
        # Of a token that does not count all powers become zero, and so does the rest.
        log_total = tl.where(counts, log_total, float("inf"))
        least, right = tl.where(counts, smoothing / V, 0.0), tl.where(counts, 1 - smoothing, 0.0)
        for start in range(0, SURE, LANES * EACH):  # the scores are still in the cache
            _give_back(scores, start + at, log_total, least, right, answer, V, True)
        if SURE < V:
            _give_back(scores, SURE + at, log_total, least, right, answer, V, False)


def cross_entropy(scores: Tensor, words: int, answer: Tensor, skip: int, smoothing: float, gradient: bool) -> Tensor:
    """Each token's loss (N,) in float32; `scores` (N, V or some more) become its gradient, where that is wanted."""
    loss = scores.new_empty(len(scores), dtype=torch.float32)
    _cross_entropy[(len(scores),)](
        scores, answer, loss, skip, smoothing, V=words, STEP=scores.size(1),
        SMOOTHED=smoothing > 0, GRADIENT=gradient, **sizes(words),
    )  # fmt: skip
    return loss


def sizes(words: int) -> dict[str, int]:
    """How many scores a program reads at once, and how it is run: the fastest of 27 on an H200, or nearly."""
    lanes = max(1, min(512, triton.next_power_of_2(words) // EACH))
    # Where lines are long, programs are large: few at once, whose lines stay in the cache until they are read again.
    return {"LANES": lanes, "EACH": EACH, "num_warps": 32 if words > LONG else 8}
