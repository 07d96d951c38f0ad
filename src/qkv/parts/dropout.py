"""Dropout, of which every row of a batch has its own (`base/draws.py`)."""

import torch
from torch import Tensor

from qkv.base.draws import hashed, next_keys, values_per_row
from qkv.parts import kernels


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """Zero each value with probability `rate` and scale up the rest, while training."""
    if not training or not rate:
        return x
    keys = next_keys(x.device)
    if kernels.usable_in(x):
        return kernels.dropout.dropout(x, keys, rate)
    return x * kept(keys, x.numel(), rate).to(x.dtype).mul_(1 / (1 - rate)).view(x.shape)


def kept(keys: Tensor, count: int, rate: float) -> Tensor:
    """Return which of `count` values dropout keeps, those of the first key first. (R,) -> (R, count / R)."""
    count = values_per_row(keys, count)
    # Each hash decides on two values: drawing takes as long as the matrix products around it in a small model.
    halves = hashed(keys, (count + 1) // 2).view(torch.int16)[:, :count]
    return halves >= round(rate * 2**16) - 2**15
