"""Means reported beside the loss.

They are summed on the device, so that training waits for the device only when they are read.
"""

import math

import torch
from torch import Tensor

from qkv.base.hardware import widest_float

MOST_NATS = 700.0  # exp of much more overflows


def perplexity(nats: float) -> float:
    """Return exp(nats per token)."""
    return math.exp(min(nats, MOST_NATS))


class Tally:
    """Named means. The tensor of each name keeps its address, because a recorded update (a CUDA graph) adds to it in place."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}  # (2,) each: the sum, and the count it is divided by

    def add(self, name: str, total: Tensor, count: Tensor) -> None:
        """Add to the sum and the count of a mean. Each name must be used once before updates are recorded."""
        exact = widest_float(total.device)
        added = torch.stack((total.detach().to(exact), count.detach().to(exact)))
        if name in self._sums:
            self._sums[name].add_(added)
        else:
            self._sums[name] = added

    def copy(self) -> dict[str, Tensor]:
        """Return a copy of all sums with their counts, (2,) each, for `restore`."""
        return {name: pair.clone() for name, pair in self._sums.items()}

    def restore(self, sums: dict[str, Tensor]) -> None:
        """Set all sums to those of a copy, in place; sums that it does not have to zero."""
        for name, pair in self._sums.items():
            pair.copy_(sums[name]) if name in sums else pair.zero_()
        self._sums |= {name: pair.clone() for name, pair in sums.items() if name not in self._sums}

    def read(self) -> dict[str, float]:
        """Return the means since the last call, without those of nothing, and set all to zero."""
        if not self._sums:
            return {}
        found = torch.stack([*self._sums.values()]).tolist()
        for pair in self._sums.values():
            pair.zero_()
        return {name: total / count for name, (total, count) in zip(self._sums, found, strict=True) if count}
