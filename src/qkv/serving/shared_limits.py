"""Limits that hold over all processes of a service: rates of requests, and amounts that requests hold while they are inside.

A table in shared memory, which workers inherit by fork. A lock on a file guards it: the kernel frees such a lock when its owner
dies, so that a killed worker blocks nobody. Amounts are counted by process; the supervisor clears those of a dead one.
"""

import contextlib
import hashlib
import math
import mmap
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping

from qkv.base.locks import locked_between_forks
from qkv.serving.authentication import Caller
from qkv.serving.errors import RequestError

ROWS = 16_384  # names remembered at once
PROBES = 32  # rows that a name may lie in; where all are taken, the one unused for the longest is forgotten


class SharedLimits:
    """Rates and held amounts by name; after a fork, each process sets its own number in `process`."""

    def __init__(self, processes: int = 1, rows: int = ROWS):
        self.rows, self.processes, self.process = rows, processes, 0
        memory = memoryview(mmap.mmap(-1, 8 * rows * (3 + processes)))
        self._names = memory[: 8 * rows].cast("Q")
        self._left = memory[8 * rows : 16 * rows].cast("d")  # requests that remain of a caller's rate
        self._used = memory[16 * rows : 24 * rows].cast("d")  # time of the last use; 0: never
        self._held = memory[24 * rows :].cast("q")  # a row of the table for each process
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the table)
        weakref.finalize(self, self._file.close)
        self._threads = threading.Lock()

    def count(self, caller: Caller) -> None:
        """Take a request from the caller's rate; raise if none is left.

        Each caller has a token bucket, which refills at the caller's rate and holds one minute's worth of requests.
        """
        if caller.rate is None:
            return
        rate, now = float(caller.rate), time.monotonic()
        with self._locked():
            row, found = self._row(f"rate {caller.bucket}")
            left = min(rate, self._left[row] + max(0.0, now - self._used[row]) * rate / 60) if found else rate
            self._left[row], self._used[row] = left - 1 if left >= 1 else left, now
        if left < 1:
            wait = math.ceil((1 - left) * 60 / rate)
            raise RequestError(
                429, "rate_limit", f"no more than {caller.rate:,} requests a minute; wait {wait} s", retry_after=wait
            )

    def hold(self, name: str, amount: int, most: int) -> bool:
        """Add to the amount that all processes hold under a name; return False, and add nothing, beyond `most`."""
        with self._locked():
            row, _ = self._row(name)
            if self._total(row) + amount > most:
                return False
            self._held[self.process * self.rows + row] += amount
            self._used[row] = time.monotonic()
            return True

    def release(self, name: str, amount: int) -> None:
        """Give back a part of what this process holds under a name."""
        with self._locked():
            row, _ = self._row(name)
            index = self.process * self.rows + row
            self._held[index] = max(0, self._held[index] - amount)

    def set_held(self, amounts: Mapping[str, int]) -> None:
        """Set what this process holds under some names; the names of callers beyond the size of the table are left out."""
        with self._locked():
            for name, amount in amounts.items():
                with contextlib.suppress(RequestError):
                    row, _ = self._row(name)
                    self._held[self.process * self.rows + row] = amount
                    self._used[row] = time.monotonic()

    def held_elsewhere(self, name: str) -> int:
        """Return the amount that all other processes hold under a name."""
        with self._locked():
            row = self._find(name)
            return 0 if row is None else self._total(row) - self._held[self.process * self.rows + row]

    def held(self, name: str) -> int:
        """Return the amount that all processes hold under a name."""
        with self._locked():
            return self._total(self._row(name)[0])

    def held_by_each(self, name: str) -> list[int]:
        """Return the amount that each process holds under a name."""
        with self._locked():
            return list(self._held[self._row(name)[0] :: self.rows])

    def forget_process(self, process: int) -> None:
        """Give back everything that a dead process held."""
        with self._locked():
            self._held[process * self.rows : (process + 1) * self.rows] = memoryview(bytes(8 * self.rows)).cast("q")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._threads, locked_between_forks(self._file):
            yield

    def _total(self, row: int) -> int:
        return sum(self._held[row :: self.rows])

    def _places(self, name: str) -> tuple[int, list[int]]:
        """Return the number of a name, and the rows that it may lie in."""
        number = int.from_bytes(hashlib.blake2b(name.encode(errors="replace"), digest_size=8).digest(), "little") or 1
        return number, [(number + probe) % self.rows for probe in range(min(PROBES, self.rows))]

    def _find(self, name: str) -> int | None:
        """Return the row of a name that is there."""
        wanted, rows = self._places(name)
        for row in rows:
            if self._names[row] == wanted:
                return row
            if not self._names[row]:  # rows are never emptied, so the name is in none after this
                break
        return None

    def _row(self, name: str) -> tuple[int, bool]:
        """Return the row of a name, and whether it was there; a new name takes the least recently used row that holds nothing."""
        if (found := self._find(name)) is not None:
            return found, True
        wanted, rows = self._places(name)
        row = min(rows, key=lambda row: (self._total(row) > 0, self._used[row]))
        if self._total(row):
            raise RequestError(429, "busy", "too many callers at once; try again in a moment", retry_after=1)
        self._names[row], self._left[row], self._used[row] = wanted, 0.0, 0.0
        return row, False


GRAIN = 256  # tokens to which amounts are rounded up, so that not every step writes to the table


class SharedBacklog:
    """The tokens of one model that callers wait for, in this process and in the others."""

    def __init__(self, limits: SharedLimits, model: str):
        self.limits, self.name = limits, f"tokens {model}"
        self._shared: dict[str, int] = {}  # amounts of this process that the others know of

    def share(self, backlog: Mapping[str, float]) -> None:
        """Let the other processes know what each caller waits for in this one.

        Amounts are set, not added up: whatever happens to a request, the next call puts them right.
        """
        if self.limits.processes == 1:
            return
        amounts = {f"{self.name} {caller}": GRAIN * math.ceil(tokens / GRAIN) for caller, tokens in backlog.items()}
        amounts[self.name] = sum(amounts.values())
        names = self._shared.keys() | amounts.keys()
        if changed := {name: amounts.get(name, 0) for name in names if amounts.get(name, 0) != self._shared.get(name, 0)}:
            self.limits.set_held(changed)
            self._shared = amounts

    def elsewhere(self, caller: str | None = None) -> int:
        """Return the tokens that a caller, or all callers, wait for in other processes."""
        if self.limits.processes == 1:
            return 0
        return self.limits.held_elsewhere(self.name if caller is None else f"{self.name} {caller}")
