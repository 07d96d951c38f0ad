"""Keys and values of the words already decoded: logs that only grow, and an index that says which rows are whose past.

Hypotheses of a beam swap, double and leave at every step. Nothing in a log moves for that; the index does, and it is small.
R hypotheses, L places so far, D width, H heads, K head width.
"""

import torch
from torch import Tensor

from qkv.parts.dot_product import additive


class Past:
    """Which rows of the logs hold the past of each hypothesis: one for all layers."""

    may: Tensor | None = None  # which of the L places are there, (1, 1, 1, L); None when all are

    def __init__(self, longest: int):
        self.longest = longest
        self.length = 0  # places so far
        self.used = 0  # rows of the logs in use
        self.index: Tensor | None = None  # (R, L); None while no hypothesis has moved

    def begin(self, hypotheses: int, positions: int) -> None:
        """Make room for the first places of each hypothesis; caches `keep` them during prefill."""
        self.hypotheses, self.length, self.used = hypotheses, positions, hypotheses * positions

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

    def count(self) -> None:
        """Note that a step was taken; `advance` has done so here."""

    def select(self, rows: Tensor) -> None:
        """Row i becomes the old row rows[i]."""
        if self.length:
            self.index = self.explicit(rows.device).index_select(0, rows)

    def explicit(self, device: torch.device) -> Tensor:
        """The index, made where it was left out."""
        if self.index is not None:
            return self.index
        return torch.arange(self.used, device=device).view(self.length, -1).T

    def newest(self, table: Tensor) -> Tensor:
        """The row of a table, (longest, X), for the newest place."""
        return table[self.length - 1]

    def positions(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The newest place, (1, 1), and all of the past, (1, L)."""
        numbers = torch.arange(self.length, device=device)[None]
        return numbers[:, -1:], numbers

    def write(self, log: Tensor, values: Tensor) -> None:
        """Put the newest place of each hypothesis, (R, X), in its row."""
        log[self.used - self.hypotheses : self.used] = values

    def read(self, log: Tensor) -> Tensor:
        """The past of each hypothesis, the newest place included. (rows, X) -> (R, L, X)."""
        if self.index is None:
            return log[: self.used].view(self.length, self.hypotheses, -1).transpose(0, 1)
        return log.index_select(0, self.index.view(-1)).view(*self.index.shape, -1)

    @property
    def rows_needed(self) -> int:
        """How many rows the logs need if all hypotheses go on to the end."""
        return self.used + self.hypotheses * (self.longest - self.length)


class FixedPast(Past):
    """A past whose shapes stay, with its length on the device: every step runs the same kernels on the same memory."""

    def __init__(self, past: Past, span: int, like: Tensor):
        super().__init__(past.longest)
        self.length, self.used, self.span, self.dtype = past.length, past.used, span, like.dtype
        known = past.explicit(like.device)[:, :span]
        self.hypotheses = len(known)
        self.index = torch.zeros(len(known), span, dtype=torch.long, device=like.device)
        self.index[:, : known.size(1)] = known
        self.rows = torch.arange(self.used - len(known), self.used, device=like.device)  # of the newest places
        self.position = torch.tensor([self.length - 1], device=like.device)
        self.numbers = torch.arange(span, device=like.device)

    def advance(self, hypotheses: int, device: torch.device) -> None:
        """Make room for the next place of each hypothesis, on the device."""
        if self.length == self.longest:
            raise ValueError(f"the cache has room for {self.longest} places, not for one more; start with a larger longest")
        self.position += 1
        self.rows += hypotheses
        self.explicit(device).index_copy_(1, self.position, self.rows[:, None])
        self.may = additive((self.numbers <= self.position)[None, None, None], self.dtype)

    def count(self) -> None:
        """Note on the host that a step was taken, which a graph takes on the device alone."""
        self.length += 1
        self.used += self.hypotheses

    def select(self, rows: Tensor) -> None:
        """Row i becomes the old row rows[i]; in the same memory, as long as their number stays."""
        index = self.explicit(rows.device)
        chosen = index.index_select(0, rows)
        self.index = index.copy_(chosen) if len(rows) == len(index) else chosen

    def newest(self, table: Tensor) -> Tensor:
        """The row of a table, (longest, X), for the newest place."""
        return table.index_select(0, self.position)

    def positions(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The newest place, (1, 1), and all that there is room for, (1, span)."""
        return self.position[None], self.numbers[None]

    def write(self, log: Tensor, values: Tensor) -> None:
        """Put the newest place of each hypothesis, (R, X), in its row."""
        log.index_copy_(0, self.rows, values)

    def read(self, log: Tensor) -> Tensor:
        """The past of each hypothesis, and what `may` leaves out. (rows, X) -> (R, span, X)."""
        return log.index_select(0, self.explicit(log.device).view(-1)).view(self.hypotheses, self.span, -1)


class Cache:
    """Keys and values of one layer, side by side in a log: (rows, 2D)."""

    def __init__(self, past: Past):
        self.past = past
        self.log: Tensor | None = None

    def keep(self, kv: Tensor) -> None:
        """Note the first places of all hypotheses, (R, L, 2D)."""
        self.log = kv.new_empty(0, kv.size(-1))
        self.reserve(self.past.rows_needed)
        self.log[: self.past.used] = kv.transpose(0, 1).flatten(0, 1)

    def append(self, kv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
        """Add the newest keys and values (R, 2D); gives all so far, two of (R, H, L, K)."""
        if self.log is None:
            self.log = kv.new_empty(0, kv.size(-1))
        if self.log.size(0) < self.past.used:
            self.reserve(self.past.rows_needed)
        self.past.write(self.log, kv)
        return self.known(heads)

    def known(self, heads: int) -> tuple[Tensor, Tensor]:
        """All keys and values so far, two of (R, H, L, K)."""
        assert self.log is not None
        k, v = self.past.read(self.log).unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
        return k, v

    def reserve(self, rows: int) -> None:
        """Make room for so many rows in all."""
        if self.log is not None and self.log.size(0) < rows:
            larger = self.log.new_empty(rows, self.log.size(-1))
            used = min(self.log.size(0), self.past.used)
            larger[:used] = self.log[:used]
            self.log = larger
