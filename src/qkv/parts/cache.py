"""The KV cache: logs of keys and values that only grow, one per layer, and one index of the rows that belong to each hypothesis.

The hypotheses of a beam swap, double and leave at every step. Only the index changes then, which is small; the logs stay.
R hypotheses, L cached positions, D width, H heads, K head width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.parts.dot_product import additive


class KVCache:
    """The index of a KV cache, shared by all layers: which rows of the logs hold the past of each hypothesis."""

    mask: Tensor | None = None  # added to scores, (1, 1, 1, L): hides positions that are not filled yet; None if all are

    def __init__(self, max_length: int):
        self.max_length = max_length
        self.length = 0  # cached positions
        self.used = 0  # rows of the logs in use
        self.index: Tensor | None = None  # (R, L) rows of each hypothesis; None while no hypothesis has moved

    def prefill(self, hypotheses: int, length: int) -> None:
        """Make room for the next tokens of all prompts, so many of each, which the layers then store."""
        self._check_room(length)
        self.hypotheses = hypotheses
        self.length += length
        self.used += hypotheses * length

    def advance(self, hypotheses: int, device: torch.device) -> None:
        """Make room for the next position of each hypothesis."""
        self._check_room()
        if self.index is not None:
            newest = torch.arange(self.used, self.used + hypotheses, device=device)
            self.index = torch.cat([self.index, newest[:, None]], 1)
        self.hypotheses = hypotheses
        self.length += 1
        self.used += hypotheses

    def _check_room(self, more: int = 1) -> None:
        if self.length + more > self.max_length:
            wanted = self.length + more
            raise ValueError(f"the cache has room for {self.max_length} positions, not for {wanted}; raise max_length in start()")

    def count_step(self) -> None:
        """Count a step on the host; `advance` has done so here."""

    def select(self, rows: Tensor) -> None:
        """Make row i the old row rows[i]."""
        if self.length:
            self.index = self.row_index(rows.device).index_select(0, rows)

    def join(self, other: "KVCache", rows: tuple[int, int], device: torch.device) -> tuple[int, int]:
        """Add the hypotheses of another cache, so many to so many own ones, after its logs have been joined.

        All end side by side. Return how many positions without a token come before the past of each side.
        """
        length = max(self.length, other.length)
        before = (length - self.length, length - other.length)
        room = max(self.max_length - self.length, other.max_length - other.length)
        if length:
            own, new = (
                cache.row_index(device) if cache.length else torch.zeros(count, 0, dtype=torch.long, device=device)
                for cache, count in zip((self, other), rows, strict=True)
            )
            self.index = torch.cat([F.pad(own, (before[0], 0)), F.pad(new + self.used, (before[1], 0))])
        self.length, self.max_length, self.hypotheses = length, length + room, sum(rows)
        self.used += other.used
        return before

    def trim(self, positions: int) -> None:
        """Forget so many of the first positions."""
        if positions and self.index is not None:
            self.index = self.index[:, positions:].contiguous()
            self.length, self.max_length = self.length - positions, self.max_length - positions

    @property
    def wasteful(self) -> bool:
        """Whether most rows of the logs belong to hypotheses that have left."""
        return self.index is not None and self.used > 2 * self.index.numel() + SLACK

    def compact(self) -> Tensor:
        """Return the rows in use, which alone must stay in the logs, in this order."""
        assert self.index is not None
        rows = self.index.flatten()
        self.index = torch.arange(len(rows), device=rows.device).view_as(self.index)
        self.used = len(rows)
        return rows

    def row_index(self, device: torch.device) -> Tensor:
        """Return the rows of each hypothesis in the logs. -> (R, L)."""
        if self.index is not None:
            return self.index
        return torch.arange(self.used, device=device).view(self.length, -1).T

    def keep_index(self, device: torch.device) -> Tensor:
        """Return the same, which is kept from now on."""
        self.index = self.row_index(device).contiguous()
        return self.index

    def at_newest(self, table: Tensor) -> Tensor:
        """Return the row of a table (max_length, X) for the newest position."""
        return table[self.length - 1]

    def positions(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the newest position, (1, 1), and all positions, (1, L)."""
        numbers = torch.arange(self.length, device=device)[None]
        return numbers[:, -1:], numbers

    def write(self, log: Tensor, values: Tensor) -> None:
        """Write the newest position of each hypothesis, (R, X), into its row."""
        log[self.used - self.hypotheses : self.used] = values

    def read(self, log: Tensor) -> Tensor:
        """Return the past of each hypothesis, with the newest position. (rows, X) -> (R, L, X)."""
        if self.index is None:
            return log[: self.used].view(self.length, self.hypotheses, -1).transpose(0, 1)
        return log.index_select(0, self.index.view(-1)).view(*self.index.shape, -1)

    @property
    def rows_needed(self) -> int:
        """Rows that the logs need if all hypotheses reach the maximum length."""
        return self.used + self.hypotheses * (self.max_length - self.length)


SLACK = 4096  # rows that logs may waste


class StaticKVCache(KVCache):
    """A KV cache of fixed shapes, with its length on the device: every step runs the same kernels on the same memory."""

    def __init__(self, cache: KVCache, span: int, like: Tensor):
        """Take over a cache, with room for `span` positions in the index. dtype and device follow `like`."""
        super().__init__(cache.max_length)
        self.length, self.used, self.span, self.dtype = cache.length, cache.used, span, like.dtype
        index = cache.row_index(like.device)[:, :span]
        self.hypotheses = len(index)
        self.index = torch.zeros(len(index), span, dtype=torch.long, device=like.device)
        self.index[:, : index.size(1)] = index
        self.rows = torch.arange(self.used - len(index), self.used, device=like.device)  # of the newest positions
        self.position = torch.tensor([self.length - 1], device=like.device)
        self.numbers = torch.arange(span, device=like.device)

    def advance(self, hypotheses: int, device: torch.device) -> None:
        """Make room for the next position of each hypothesis, on the device."""
        self._check_room()
        self.position += 1
        self.rows += hypotheses
        self.row_index(device).index_copy_(1, self.position, self.rows[:, None])
        self.mask = additive((self.numbers <= self.position)[None, None, None], self.dtype)

    wasteful = False  # logs have a fixed size

    def put(self, rows: Tensor, other: KVCache) -> None:
        """Let the hypotheses of another cache take the place of these rows, after its logs have been joined."""
        index = self.row_index(rows.device)
        if other.length:
            index[rows, self.length - other.length : self.length] = other.row_index(rows.device) + self.used
        self.max_length = max(self.max_length, self.length + other.max_length - other.length)
        self.used += other.used
        self.rows += other.used

    def trim(self, positions: int) -> None:
        """Forget so many of the first positions, in the same memory."""
        index = self.row_index(self.numbers.device)
        index[:, : self.span - positions] = index[:, positions:].clone()
        self.position -= positions
        self.length, self.max_length = self.length - positions, self.max_length - positions

    def growing(self) -> KVCache:
        """Return the same as a cache of growing shapes."""
        cache = KVCache(self.max_length)
        cache.length, cache.used, cache.hypotheses = self.length, self.used, self.hypotheses
        cache.index = self.row_index(self.numbers.device)[:, : self.length].clone()
        return cache

    def count_step(self) -> None:
        """Count a step on the host: a graph runs `advance` on the device alone."""
        self.length += 1
        self.used += self.hypotheses

    def select(self, rows: Tensor) -> None:
        """Make row i the old row rows[i], in the same memory as long as their number stays."""
        index = self.row_index(rows.device)
        chosen = index.index_select(0, rows)
        self.index = index.copy_(chosen) if len(rows) == len(index) else chosen

    def at_newest(self, table: Tensor) -> Tensor:
        """Return the row of a table (max_length, X) for the newest position."""
        return table.index_select(0, self.position)

    def positions(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the newest position, (1, 1), and all that there is room for, (1, span)."""
        return self.position[None], self.numbers[None]

    def write(self, log: Tensor, values: Tensor) -> None:
        """Write the newest position of each hypothesis, (R, X), into its row."""
        log.index_copy_(0, self.rows, values)

    def read(self, log: Tensor) -> Tensor:
        """Return the past of each hypothesis, with positions that the mask hides. (rows, X) -> (R, span, X)."""
        return log.index_select(0, self.row_index(log.device).view(-1)).view(self.hypotheses, self.span, -1)


class LayerCache:
    """The keys and values of one layer, side by side in a log (rows, 2D)."""

    def __init__(self, cache: KVCache):
        self.shared = cache
        self.log: Tensor | None = None

    def prefill(self, kv: Tensor) -> None:
        """Store the keys and values of the next tokens of all prompts, (R, T, 2D)."""
        if self.log is None:
            self.log = kv.new_empty(0, kv.size(-1))
        self.reserve(self.shared.rows_needed)
        self.log[self.shared.used - kv.size(0) * kv.size(1) : self.shared.used] = kv.transpose(0, 1).flatten(0, 1)

    def add(self, kv: Tensor) -> Tensor:
        """Add the newest keys and values (R, 2D); return the log."""
        if self.log is None:
            self.log = kv.new_empty(0, kv.size(-1))
        if self.log.size(0) < self.shared.used:
            self.reserve(self.shared.rows_needed)
        self.shared.write(self.log, kv)
        return self.log

    def append(self, kv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
        """Add the newest keys and values (R, 2D); return all so far, two of (R, H, L, K)."""
        self.add(kv)
        return self.keys_values(heads)

    def keys_values(self, heads: int) -> tuple[Tensor, Tensor]:
        """Return all keys and values so far, two of (R, H, L, K)."""
        assert self.log is not None
        k, v = self.shared.read(self.log).unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
        return k, v

    def join(self, other: "LayerCache") -> None:
        """Append another layer's keys and values to the log, before the indexes are joined."""
        if other.log is None:
            return
        used, more = self.shared.used, other.shared.used
        if self.log is None:
            self.log = other.log.new_empty(0, other.log.size(-1))
        if self.log.size(0) < used + more:
            self.reserve(2 * (used + more))
        self.log[used : used + more] = other.log[:more]

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows, in this order."""
        assert self.log is not None
        self.log[: len(rows)] = self.log.index_select(0, rows)

    def reserve(self, rows: int) -> None:
        """Make room for this many rows in all."""
        if self.log is not None and self.log.size(0) < rows:
            larger = self.log.new_empty(rows, self.log.size(-1))
            used = min(self.log.size(0), self.shared.used)
            larger[:used] = self.log[:used]
            self.log = larger
