"""Keys and values of the places already decoded: an argument and a result, never a module's state."""

from torch import Tensor


class Cache:
    """Room for `longest` places, filled from the left. Keys and values are (B, H, longest, K)."""

    def __init__(self, longest: int):
        self.longest = longest
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add the newest places (B, H, T, K); gives all places so far, (B, H, length, K)."""
        if self.keys is None or self.values is None:
            self.keys = k.new_empty(*k.shape[:2], self.longest, k.size(-1))
            self.values = v.new_empty(*v.shape[:2], self.longest, v.size(-1))
        start, self.length = self.length, self.length + k.size(2)
        if self.length > self.longest:
            # A single place beyond the end would otherwise be lost without a word.
            raise ValueError(f"the cache has room for {self.longest} places, not for {self.length}; start with a larger longest")
        self.keys[:, :, start : self.length] = k
        self.values[:, :, start : self.length] = v
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def select(self, rows: Tensor) -> None:
        """Row i becomes the old row rows[i]."""
        if self.keys is not None and self.values is not None:
            self.keys = _select(self.keys, rows, self.length)
            self.values = _select(self.values, rows, self.length)


def _select(stored: Tensor, rows: Tensor, length: int) -> Tensor:
    """Only the places in use are copied; into the same memory where the number of rows stays."""
    chosen = stored[:, :, :length].index_select(0, rows)
    if len(rows) != stored.size(0):
        stored = stored.new_empty(len(rows), *stored.shape[1:])
    stored[:, :, :length] = chosen
    return stored
