"""What a model takes on: no more than it can do in time, by the speed that was measured.

Whatever is accepted is computed to its end. Amounts of work are costs of items, in tokens.
"""

from collections import defaultdict
from collections.abc import Mapping

from qkv.serving.batching import QueuedRequest
from qkv.serving.errors import overloaded, too_much_work
from qkv.serving.settings import ServiceSettings
from qkv.serving.shared_limits import SharedBacklog
from qkv.serving.speed import Average

LONGEST = 4  # times the time limit, within which all that is accepted should be done
KNOWN = 1.0  # seconds of computing from which on a speed is believed


class Admission:
    """Decides whether a request is accepted."""

    def __init__(self, settings: ServiceSettings, most_rows: int):
        """`most_rows` are the rows that are computed at once, at most."""
        self.settings, self.most_rows = settings, most_rows
        self._speed = Average()
        self._speeds: dict[int, Average] = defaultdict(Average)  # by the rows computed together, as a power of two

    def note(self, work: float, rows: int, seconds: float) -> None:
        """Note how much work a turn has done, with how many rows at once, in how many seconds."""
        for speed in (self._speed, self._speeds[rows.bit_length()]):
            speed.add(work, seconds)

    @property
    def rate(self) -> float | None:
        """The work done in a second; None before it is known."""
        return self._speed.rate if self._speed.seconds > KNOWN else None

    def check(self, request: QueuedRequest, backlog: Mapping[str, float], shared: SharedBacklog) -> None:
        """Raise if a request would take too long; `backlog` is the work of this process that is not done yet, by caller.

        The budget of tokens is one of all processes together.
        """
        cost, limit = request.cost, self.settings.time_limit
        if (alone := self._seconds_alone(request, cost)) > LONGEST * limit:
            raise too_much_work(alone, LONGEST * limit)
        total, own = sum(backlog.values()), backlog.get(request.caller, 0.0)
        callers, rate = len({*backlog, request.caller}), self.rate or float("inf")
        turn = min(own * callers, total) / rate  # a caller has its share of the speed, at least
        end = min((own + cost) * callers, total + cost) / rate
        excess = self._excess(cost, own + shared.elsewhere(request.caller), total + shared.elsewhere())
        if turn > limit or (total and end > LONGEST * limit) or excess > 0:
            raise overloaded(end, max(turn - limit, end - LONGEST * limit, min(excess, total) / rate))

    def _excess(self, cost: float, own: float, total: float) -> float:
        """Return by how much a request exceeds the budget of all callers or that of its own; the first has no limit."""
        most = self.settings.queued_tokens
        return max(total + cost - most if total else 0.0, own + cost - most // 2 if own else 0.0)

    def _seconds_alone(self, request: QueuedRequest, cost: float) -> float:
        """Return how long a request takes if nobody else asks for anything; 0 before the speed of as many rows is known."""
        rows = min(self.most_rows, sum(item.rows for item in request.items))
        known = [speed for size, speed in self._speeds.items() if size >= rows.bit_length() and speed.seconds > KNOWN]
        rate = max((speed.rate or 0.0 for speed in known), default=0.0)
        return cost / rate if rate else 0.0
