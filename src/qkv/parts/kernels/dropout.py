"""Dropout as one kernel, and the random bits of all kernels.

Random bits are a hash of a row's key and of the position in the row, as in `base/draws.py`, so that the backward pass has them
without their having been stored. Keys lie in memory, where a recorded update (a CUDA graph) finds new ones at each replay.
R rows of N values each.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qkv.base.draws import values_per_row

BLOCK = 1024  # values that a program processes


@triton.jit
def hashed(key, at):  # type: ignore[no-untyped-def]
    """Return a random number for each position, uniform over 32 bits."""
    h = (at.to(tl.uint32) + key.to(tl.uint32)) * 0x9E3779B1
    h = (h ^ (h >> 16) ^ (key >> 32).to(tl.uint32)) * 0x7FEB352D
    h = (h ^ (h >> 15)) * 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def kept(key, at, threshold):  # type: ignore[no-untyped-def]
    """Return which values dropout keeps: each hash decides on two."""
    half = hashed(key, at >> 1) >> ((at & 1) * 16).to(tl.uint32)
    return ((half & 0xFFFF) ^ 0x8000).to(tl.int32) >= threshold


def threshold(rate: float) -> int:
    """Return the number below which `kept` drops a value."""
    return round(rate * 2**16)


@triton.jit(do_not_specialize=["blocks"])
def _dropout(X, KEYS, Y, N, blocks, threshold, grown, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + row * N + at, mask=at < N, other=0.0).to(tl.float32)
    y = tl.where(kept(tl.load(KEYS + row), at, threshold), x * grown, 0.0)
    tl.store(Y + row * N + at, y.to(Y.dtype.element_ty), mask=at < N)


@triton.jit(do_not_specialize=["blocks"])
def _random_bits(KEYS, Y, N, blocks, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = (tl.program_id(0) // blocks).to(tl.int64)
    at = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bits = hashed(tl.load(KEYS + row), at)
    tl.store(Y + row * N + at, bits.to(tl.int32, bitcast=True), mask=at < N)


def random_bits(keys: Tensor, count: int) -> Tensor:
    """Return `count` random numbers for each key, uniform over 32 bits. (R,) -> (R, N), int32."""
    found = keys.new_empty(len(keys), count, dtype=torch.int32)
    blocks = triton.cdiv(count, BLOCK)
    if found.numel():
        _random_bits[(len(keys) * blocks,)](keys, found, count, blocks, BLOCK=BLOCK, num_warps=4)
    return found


def dropout(x: Tensor, keys: Tensor, rate: float) -> Tensor:
    """Return dropout of x, with gradients; x has as many values for each key. x (...), keys (R,) -> (...)."""
    return _Dropout.apply(x.contiguous(), keys, rate)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, keys: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(keys)
        ctx.rate = rate
        y, count = torch.empty_like(x), values_per_row(keys, x.numel())
        blocks = triton.cdiv(count, BLOCK)
        if x.numel():
            _dropout[(len(keys) * blocks,)](x, keys, y, count, blocks, threshold(rate), 1 / (1 - rate), BLOCK=BLOCK, num_warps=4)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (keys,) = ctx.saved_tensors
        return _Dropout.apply(grads[0].contiguous(), keys, ctx.rate), None, None
