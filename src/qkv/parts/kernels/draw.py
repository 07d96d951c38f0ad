"""Samples a token from softmax(logits), and finds the likeliest one, in one pass over the logits.

Gumbel's way: the highest score, after subtracting the logarithms of exponential random numbers, is a draw from their softmax. The
random numbers are hashes, as in `dropout.py`, of a key for each token. N tokens, V vocabulary.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.parts.kernels.dropout import hashed
from qkv.parts.kernels.loss import LOWEST


@triton.jit
def _first_highest(logits, at):  # type: ignore[no-untyped-def]
    return tl.min(tl.where(logits == tl.max(logits, 0), at, 1 << 30), 0)


@triton.jit
def _draw(LOGITS, KEYS, DRAWN, LIKELIEST, V: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    at, key = tl.arange(0, BLOCK), tl.load(KEYS + token)
    top, noisy_top = tl.full([BLOCK], LOWEST, tl.float32), tl.full([BLOCK], LOWEST, tl.float32)  # each lane for itself
    where, noisy_where = at, at
    for start in range(0, V, BLOCK):
        word = start + at
        inside = word < V
        x = tl.load(LOGITS + token * V + word, mask=inside, other=LOWEST).to(tl.float32)
        uniform = (hashed(key, word).to(tl.float32) + 0.5) * 2.3283064365386963e-10  # above 0, at most 1
        # Near 0, where a draw is won, 1 - uniform would be rounded to 1.
        exponential = tl.where(uniform < 1e-3, uniform * (1 + 0.5 * uniform), -tl.log(tl.maximum(1 - uniform, 1e-30)))
        noisy = tl.where(inside, x - tl.log(exponential), LOWEST)
        where, top = tl.where(x > top, word, where), tl.maximum(x, top)
        noisy_where, noisy_top = tl.where(noisy > noisy_top, word, noisy_where), tl.maximum(noisy, noisy_top)
    tl.store(LIKELIEST + token, _first_highest(top, where))
    tl.store(DRAWN + token, _first_highest(noisy_top, noisy_where))


def draw(logits: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return a sampled token and the likeliest one for each row. logits (N, V), keys (N,), random -> two of (N,)."""
    drawn, likeliest = logits.new_empty(2, len(logits), dtype=torch.int64)
    block = min(4096, triton.next_power_of_2(logits.size(1)))
    _draw[(len(logits),)](logits.contiguous(), keys, drawn, likeliest, V=logits.size(1), BLOCK=block, num_warps=4)
    return drawn, likeliest
