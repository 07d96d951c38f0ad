"""Smoothed cross-entropy and its gradient in one kernel, which overwrites the logits by their gradient.

N tokens, V vocabulary; a row of logits may be longer, and the rest stays as it is.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LOWEST = tl.constexpr(-1e30)  # below every logit, and finite
LOG2_E = tl.constexpr(1.4426950408889634)  # a GPU computes powers of two
EACH = 8  # logits of a lane, which one thread reads at once, or two in the largest programs
LONG = 1 << 14  # vocabulary from which on a row is long


@triton.jit
def _read(logits, at, V: tl.constexpr, SURE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load logits in units of log 2, all of them within the vocabulary if SURE."""
    # They stay in the cache for the second pass.
    found = tl.load(logits + at, eviction_policy="evict_last") if SURE else tl.load(logits + at, mask=at < V, other=LOWEST)
    return found.to(tl.float32) * LOG2_E


@triton.jit
def _accumulate(logits, at, top, powers, total, V: tl.constexpr, SMOOTHED: tl.constexpr, SURE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Update the maximum, the sum of powers and the sum of logits of each lane with some more logits."""
    x = _read(logits, at, V, SURE)
    higher = tl.maximum(top, tl.max(x, 1))
    powers = powers * tl.exp2(top - higher) + tl.sum(tl.exp2(x - higher[:, None]), 1)
    if SMOOTHED:
        total += tl.sum(x if SURE else tl.where(at < V, x, 0.0), 1)
    return higher, powers, total


@triton.jit
def _write_gradient(logits, at, log_total, least, right, label, V: tl.constexpr, SURE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Overwrite some logits by their gradient."""
    grad = tl.exp2(_read(logits, at, V, SURE) - log_total) - least - tl.where(at == label, right, 0.0)
    grad = grad.to(logits.dtype.element_ty)
    if SURE:
        tl.store(logits + at, grad, eviction_policy="evict_first")
    else:
        tl.store(logits + at, grad, mask=at < V)


@triton.jit
def _cross_entropy(  # type: ignore[no-untyped-def]
    LOGITS, LABELS, LOSS, ignore_index, smoothing, V: tl.constexpr, STEP: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr,
    SMOOTHED: tl.constexpr, GRADIENT: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    label = tl.load(LABELS + token)
    logits = LOGITS + token * STEP
    counts = label != ignore_index
    label_logit = tl.load(logits + tl.where(counts, label, 0)).to(tl.float32)  # before it is overwritten
    at = tl.arange(0, LANES)[:, None] * EACH + tl.arange(0, EACH)[None, :]
    SURE: tl.constexpr = V // (LANES * EACH) * (LANES * EACH)
    top = tl.full([LANES], LOWEST, tl.float32)  # per lane, combined at the end
    powers = tl.zeros([LANES], tl.float32)
    total = tl.zeros([LANES], tl.float32)
    for start in range(0, SURE, LANES * EACH):
        top, powers, total = _accumulate(logits, start + at, top, powers, total, V, SMOOTHED, True)
    if SURE < V:
        top, powers, total = _accumulate(logits, SURE + at, top, powers, total, V, SMOOTHED, False)
    highest = tl.max(top, 0)
    log_total = highest + tl.log2(tl.sum(powers * tl.exp2(top - highest), 0))
    loss = log_total / LOG2_E - (1 - smoothing) * label_logit
    if SMOOTHED:
        loss -= smoothing / V * tl.sum(total, 0) / LOG2_E
    tl.store(LOSS + token, tl.where(counts, loss, 0.0))
    if GRADIENT:
        # For an ignored token all powers become zero, and so does the gradient.
        log_total = tl.where(counts, log_total, float("inf"))
        least, right = tl.where(counts, smoothing / V, 0.0), tl.where(counts, 1 - smoothing, 0.0)
        for start in range(0, SURE, LANES * EACH):  # the logits are still in the cache
            _write_gradient(logits, start + at, log_total, least, right, label, V, True)
        if SURE < V:
            _write_gradient(logits, SURE + at, log_total, least, right, label, V, False)


def cross_entropy(logits: Tensor, vocab: int, labels: Tensor, ignore_index: int, smoothing: float, gradient: bool) -> Tensor:
    """Return each token's loss (N,) in float32; with `gradient`, overwrite `logits` (N, V or some more) by the gradient."""
    loss = logits.new_empty(len(logits), dtype=torch.float32)
    _cross_entropy[(len(logits),)](
        logits, labels, loss, ignore_index, smoothing, V=vocab, STEP=logits.size(1),
        SMOOTHED=smoothing > 0, GRADIENT=gradient, **sizes(vocab),
    )  # fmt: skip
    return loss


def sizes(vocab: int) -> dict[str, int]:
    """Return how many logits a program reads at once, and its launch options: the fastest of 27 on an H200, or nearly."""
    lanes = max(1, min(512, triton.next_power_of_2(vocab) // EACH))
    # Long rows get large programs: few at once, whose rows stay in the cache until they are read again.
    return {"LANES": lanes, "EACH": EACH, "num_warps": 32 if vocab > LONG else 8}
