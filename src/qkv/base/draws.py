"""Random draws by position: each is a function of the seed, the row of the batch and the number of the draw.

Torch's generator is a state that every draw moves on, so what a row gets depends on the rows drawn before it, and with them on
the number of processes and micro-batches. Here a row has a key of its own for each draw of a pass, and its random bits are a
hash of that key and of the position in the row. Whoever computes a row draws the same for it.

Draws are numbered in the order in which a pass makes them. All rows of a batch must therefore make the same draws, whatever
they hold: shapes may depend on the width of the rows, not on their tokens.
R rows of the batch that are computed here, N values in each.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor

AT_ONCE = 64  # draws whose keys are computed together
IN_CACHE = 1 << 17  # numbers that are hashed together on a CPU, so that they stay in its cache
# Odd numbers without a pattern, as signed ones: the seed plus multiples of both is different for every row and draw.
ROW_STEP, DRAW_STEP = 0xD1342543DE82EF95 - 2**64, 0x9E3779B97F4A7C15 - 2**64


class RowDraws:
    """The keys of some rows for one draw after the other."""

    def __init__(self, seed: Tensor | int, rows: Tensor):
        # An even number of keys: those of each draw begin at a multiple of 16 bytes, for which kernels are compiled.
        self.rows = F.pad(rows, (0, len(rows) % 2)) * ROW_STEP + seed
        self.size = len(rows)
        self.count = 0  # draws so far
        self.table: Tensor | None = None  # (AT_ONCE, R or R + 1)

    def next_keys(self) -> Tensor:
        """Return the rows' keys for the next draw. -> (R,)."""
        if self.table is None or self.count % AT_ONCE == 0:
            numbers = torch.arange(self.count + 1, self.count + AT_ONCE + 1, device=self.rows.device)
            self.table = _mixed(numbers[:, None] * DRAW_STEP + self.rows)
        self.count += 1
        return self.table[(self.count - 1) % AT_ONCE, : self.size]


_current: ContextVar[RowDraws | None] = ContextVar("draws", default=None)


@contextlib.contextmanager
def drawing(seed: Tensor | int, rows: Tensor) -> Iterator[None]:
    """Make the random draws inside depend only on the seed and on the numbers of the rows in their batch, (R,), int64.

    Every tensor drawn for has R as its first dimension, or R times as many entries there, those of a row side by side. A seed
    that is a tensor may change between the replays of a CUDA graph.
    """
    before = _current.set(RowDraws(seed, rows))
    try:
        yield
    finally:
        _current.reset(before)


def next_keys(device: torch.device) -> Tensor:
    """Return the keys of the next draw, (R,), int64; outside `drawing` it is one key, from torch's generator."""
    draws = _current.get()
    if draws is None:
        return torch.empty(1, dtype=torch.int64, device=device).random_(-(2**63), None)
    return draws.next_keys()


def values_per_row(keys: Tensor, count: int) -> int:
    """Return how many of `count` values each key is for."""
    if count % len(keys):
        raise ValueError(f"{count} random values do not divide into {len(keys)} rows; draw as many for every row of the batch")
    return count // len(keys)


def hashed(keys: Tensor, count: int) -> Tensor:
    """Return `count` random numbers for each key, uniform over 32 bits. (R,) -> (R, N), int32.

    `parts/kernels/dropout.py` computes the same on a GPU.
    """
    low, high = keys.view(torch.int32).view(-1, 2, 1).unbind(1)
    found = torch.arange(count, dtype=torch.int32, device=keys.device) + low
    some = len(keys) if keys.is_cuda else max(1, IN_CACHE // max(1, count))
    buffer = torch.empty_like(found[:some])
    for h, own in zip(found.split(some), high.split(some), strict=True):
        _hash(h, own, buffer[: len(h)])
    return found


def _hash(h: Tensor, high: Tensor, shifted: Tensor) -> None:
    """Hash the sums of positions and low halves of keys in place; `shifted` is memory to work in. h (R, N), high (R, 1)."""

    def xor_shifted(bits: int) -> None:
        torch.bitwise_right_shift(h, bits, out=shifted)
        h.bitwise_xor_(shifted.bitwise_and_((1 << 32 - bits) - 1))  # torch shifts copies of the sign in

    h.mul_(0x9E3779B1 - 2**32)
    xor_shifted(16)
    h.bitwise_xor_(high).mul_(0x7FEB352D)
    xor_shifted(15)
    h.mul_(0x846CA68B - 2**32)
    xor_shifted(16)


def _mixed(x: Tensor) -> Tensor:
    """Hash 64-bit numbers, each to another (the last steps of SplitMix64, Steele et al. 2014)."""
    for bits, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> bits & (1 << 64 - bits) - 1)) * (factor - 2**64)
    return x ^ (x >> 31 & (1 << 33) - 1)
