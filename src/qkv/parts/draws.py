"""Random numbers for the rows of a batch, the same whoever computes a row (`base/draws.py`).

R rows, as in the `drawing` around them; without one, draws follow torch's generator.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from qkv.base.draws import hashed, next_keys, values_per_row
from qkv.parts import kernels


def random_bits(shape: Sequence[int], device: torch.device) -> Tensor:
    """Draw numbers uniform over 32 bits; the first dimension is R or a multiple. -> int32."""
    keys = next_keys(device)
    count = values_per_row(keys, math.prod(shape))
    draw = kernels.dropout.random_bits if kernels.run_on(device) else hashed
    return draw(keys, count).view(shape)


def uniform(shape: Sequence[int], device: torch.device) -> Tensor:
    """Draw from between 0 and 1, in float32."""
    # The largest number over 32 bits is rounded up to 2^31 in float32, and must still give less than 1.
    return (random_bits(shape, device) * (2.0**-32 * (1 - 2.0**-23))).add_(0.5)


def integers(low: int, high: int, shape: Sequence[int], device: torch.device) -> Tensor:
    """Draw from low up to high - 1. -> int64."""
    return ((random_bits(shape, device).long() + 2**31) * (high - low) >> 32) + low


def random_int64(count: int, device: torch.device) -> Tensor:
    """Draw 64 bits for each of `count` values, R or a multiple of it. -> (count,), int64."""
    return random_bits((count, 2), device).view(torch.int64).view(-1)
