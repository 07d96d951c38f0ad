"""Keys and values of the words already decoded: logs that only grow, and an index that says which rows are whose past.

Hypotheses of a beam swap, double and leave at every step. Nothing in a log moves for that; the index does, and it is small.
R hypotheses, L places so far, D width, H heads, K head width.
"""

import torch
from torch import Tensor


class Past:
    """Which rows of the logs hold the past of each hypothesis: one for all layers."""

    may: Tensor | None = None  # which of the L places are there, (1, 1, 1, L); None when all are

    def __init__(self, longest: int):
        self.longest = longest
        self.length = 0  # places so far
        self.used = 0  # rows of the logs in use
        self.index: Tensor | None = None  # (R, L); None while no hypothesis has moved

    def advance(self, hypotheses: int, device: torch.device) -> None:
        """Make room for the next place of each hypothesis."""
        if self.length == self.longest:
            raise ValueError(f"the cache has room for {self.longest} places, not for one more; start with a larger longest")
        if self.index is not None:
            newest = torch.arange(self.used, self.used + hypotheses, device=device)
            self.index = torch.cat([self.index, newest[:, None]], 1)
        self.hypotheses = hypotheses
        self.length += 1
        self.used += hypotheses

    def select(self, rows: Tensor) -> None:
        """Row i becomes the old row rows[i]."""
        if self.length:
            self.index = self.explicit(rows.device).index_select(0, rows)

    def explicit(self, device: torch.device) -> Tensor:
        """The index, made where it was left out."""
        if self.index is not None:
            return self.index
        return torch.arange(self.used, device=device).view(self.length, -1).T

    def write(self, log: Tensor, values: Tensor) -> None:
        """Put the newest place of each hypothesis, (R, X), in its row."""
        log[self.used - self.hypotheses : self.used] = values

    def read(self, log: Tensor) -> Tensor:
        """The past of each hypothesis, the newest place included. (rows, X) -> (R, L, X)."""
        if self.index is None:
            return log[: self.used].view(self.length, self.hypotheses, -1).transpose(0, 1)
        return log.index_select(0, self.index.view(-1)).view(self.hypotheses, self.length, -1)

    @property
    def rows_needed(self) -> int:
        """How many rows the logs need if all hypotheses go on to the end."""
        return self.used + self.hypotheses * (self.longest - self.length)


class Cache:
    """Keys and values of one layer, side by side in a log: (rows, 2D)."""

    def __init__(self, past: Past):
        self.past = past
        self.log: Tensor | None = None

    def append(self, kv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
        """Add the newest keys and values (R, 2D); gives all so far, two of (R, H, L, K)."""
        self.log = self.reserve(kv)
        self.past.write(self.log, kv)
        k, v = self.past.read(self.log).unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
        return k, v

    def reserve(self, like: Tensor) -> Tensor:
        """The log, with room for all rows to come."""
        if self.log is not None and self.log.size(0) >= self.past.used:
            return self.log
        larger = like.new_empty(self.past.rows_needed, like.size(-1))
        if self.log is not None:
            before = self.past.used - self.past.hypotheses
            larger[:before] = self.log[:before]
        return larger
