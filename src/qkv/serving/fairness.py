"""Fair shares of the machine between callers, by the time that is computed for each.

Every caller has a clock, which runs while something is computed for it, by its share of the batch. The caller whose clock is the
furthest behind is next. A caller who comes back after a pause gets a little time in advance, so that a short request overtakes
the long work of others; but it cannot save up time by waiting.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

ADVANCE = 0.25  # seconds that a caller who comes back may compute before the others go on
MAX_CALLERS = 10_000  # that are remembered


class FairClock:
    """The clocks of all callers of one model."""

    def __init__(self) -> None:
        self._used: OrderedDict[str, float] = OrderedDict()  # seconds computed for each caller
        self._now = 0.0  # the clock of the last caller that was first

    def enter(self, caller: str) -> None:
        """Let a caller that had nothing to do come back."""
        self._used[caller] = max(self._used.pop(caller, 0.0), self._now - ADVANCE)
        if len(self._used) > MAX_CALLERS:
            self._used.popitem(last=False)

    def order(self, callers: Iterable[str]) -> list[str]:
        """Return callers in the order of their turns."""
        order = sorted(callers, key=lambda caller: (self._clock(caller), caller))
        if order:
            self._now = max(self._now, self._clock(order[0]))
        return order

    def close(self, order: Sequence[str], grace: float) -> list[str]:
        """Return those of ordered callers who have had at most `grace` seconds more than their mean."""
        most = sum(map(self._clock, order)) / max(1, len(order)) + grace
        return [caller for caller in order if self._clock(caller) <= most]

    def _clock(self, caller: str) -> float:
        return self._used.get(caller, 0.0)

    def charge(self, shares: Mapping[str, float], seconds: float) -> None:
        """Divide the time of a turn over callers, by their shares."""
        whole = sum(shares.values()) or 1.0
        for caller, share in shares.items():
            self._used[caller] = self._used.get(caller, self._now) + seconds * share / whole
