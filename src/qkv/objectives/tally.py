"""Figures beside the loss: means that grow on the device, so that nobody waits for it until they are read."""

import math

import torch
from torch import Tensor

LARGEST = 700.0  # nats whose perplexity is a number yet


def perplexity(nats: float) -> float:
    """e to the power of so many nats a token."""
    return math.exp(min(nats, LARGEST))


class Tally:
    """Named means. A name's sum and count keep their place in memory, because a recorded update goes on adding to them there."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}  # (2,) each: what was summed, over how many

    def add(self, name: str, total: Tensor, count: Tensor) -> None:
        """Count in some more of what `name` is the mean of; a name begins with its first use, before updates are recorded."""
        added = torch.stack((total.detach().double(), count.detach().double()))
        if name in self._sums:
            self._sums[name].add_(added)
        else:
            self._sums[name] = added

    def read(self) -> dict[str, float]:
        """The means since the last time, without those of nothing; from here on they begin anew."""
        if not self._sums:
            return {}
        found = torch.stack(list(self._sums.values())).tolist()
        for kept in self._sums.values():
            kept.zero_()
        return {name: total / count for name, (total, count) in zip(self._sums, found, strict=True) if count}
