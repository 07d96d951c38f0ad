"""The schedule of a model's worker: what waits, which lanes run, and whose turn is next.

Between two steps at most a piece is read: a certain number of tokens of new texts together, or of one long text. Texts that come
during a long step are read within it, as long as steps take as much time as reading. Steps are for the caller who has had least.
Whoever has had no more than the mean has texts read at once; others a little later, since the time until a first token passes
meanwhile, but reading for them takes no more time than steps, and nobody gets far ahead.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from qkv.serving.batching import BatchItem, QueuedRequest
from qkv.serving.fairness import FairClock
from qkv.serving.lanes import Lane, Members
from qkv.serving.settings import ServiceSettings
from qkv.serving.speed import BatchTime
from qkv.serving.waiting import WaitingItems

MAX_LANES = 8  # each has caches of its own
MAX_KINDS = 1000  # of lanes that are remembered
MAX_CANDIDATES = 512  # texts among which those of similar length are looked for
MAX_READING = 4  # long texts that are read in turns
PIECES = 8  # the part of `batch_tokens` that is read between two steps: 256 tokens on a CPU
# Reading a text delays all rows that run. Between two readings steps take as long as the last one for each 16 of these rows, but
# no longer than nobody minds: where reading takes longer than a step, as on a GPU, several texts are read together.
ROWS_PER_READING, REST = 16, 0.01
GRACE = 50.0  # how many times as long as a reading takes a caller may have had more than the mean, and have texts read
TURN = 0.025  # seconds that a step should take, so that others come to their turn soon
# Seconds that a batch should take beside twice the fixed time of one. A short request takes the fixed time and about 10 ms, so
# with a batch of others to wait for, it takes at most about three times as long as alone.
BATCH_TURN = 0.01
LANE_TOKENS, MAX_ROWS = 6, 1024  # tokens that a row of a lane counts for in the limit of a batch; and the most rows
SLOWDOWN = 3.0  # how many times as long as the shortest one a step may take in any case before no more texts join
SHARED = 4  # times as long it may take where several callers wait for it


class Turn(NamedTuple):
    """What a turn is for: a step of a lane, texts that begin and then join a lane, or items that are computed at once."""

    lane: Lane | None
    items: list[BatchItem]  # those that begin

    @property
    def at_once(self) -> bool:
        """Whether its items are computed at once."""
        return bool(self.items) and self.items[0].lane is None

    @property
    def reads(self) -> bool:
        """Whether it reads texts that are then generated step by step."""
        return not self.at_once if self.items else self.lane is not None and self.lane.reading


class Schedule:
    """What waits for one model and what runs, and the choice of the next turn."""

    def __init__(self, settings: ServiceSettings):
        self.settings = settings
        self.rows = max(1, min(MAX_ROWS, settings.batch_tokens // LANE_TOKENS))  # of a lane, at most
        self.piece = max(1, settings.batch_tokens // PIECES)  # tokens that are read between two steps
        self.waiting = WaitingItems()
        self._firsts: dict[tuple[str, bool], BatchItem] = {}  # the first that waits, by caller and whether it grows step by step
        self._kinds: dict[Hashable, Hashable] = {}
        self.lanes: list[Lane] = []
        self.clock = FairClock()
        self.batch_times: dict[Hashable, BatchTime] = defaultdict(BatchTime)  # of what is computed at once, by its key
        self.batched = 0.0  # when the last such batch ended
        self.shortest = math.inf  # seconds of the shortest step
        self._last_reading = self._mean_reading = 0.0  # seconds of a turn that reads
        self._since_reading = math.inf  # seconds of steps since texts were read

    def add(self, request: QueuedRequest) -> None:
        """Add a request's items to those that wait."""
        if request.caller not in self._callers():
            self.clock.enter(request.caller)
        for item in request.items:
            item.lane = self._one_of_equals(item.lane)
        self.waiting.add(request.items)

    def _one_of_equals(self, lane: Hashable | None) -> Hashable | None:
        """Return the same object for equal lanes: comparing configs at every turn takes long."""
        if len(self._kinds) > MAX_KINDS:
            self._kinds.clear()  # texts that are equal in it may run apart for a while
        return None if lane is None else self._kinds.setdefault(lane, lane)

    def running(self) -> list[BatchItem]:
        """Return the items of all lanes."""
        return [item for lane in self.lanes for item in lane.items]

    def unfinished(self) -> list[BatchItem]:
        """Return the items that wait and those that run."""
        return [*self.waiting, *self.running()]

    def backlog(self) -> defaultdict[str, float]:
        """Return the work that is not done yet, by caller."""
        backlog = self.waiting.backlog()
        for item in self.running():
            if not item.request.cancelled:
                backlog[item.request.caller] += item.cost - item.done
        return backlog

    def _callers(self) -> set[str]:
        waiting = {request.caller for request in self.waiting.requests()}
        return waiting | {item.request.caller for item in self.running()}

    def next_turn(self, now: float, closing: bool = False) -> Turn | None:
        """Return what to do now; None if there is nothing, or if others may come in a moment to be computed with what waits."""
        self._forget_cancelled()
        callers = self._order()
        turn = self._reading(callers, self._since_reading)
        turn = turn or _first(self._step_for(caller, now, closing) for caller in callers)
        return self._begun(turn or _first(map(self._reading_for, callers)))

    def next_reading(self, stepped: float) -> Turn | None:
        """Return new texts to read during a step; `stepped` are its seconds since it began, or since texts were read."""
        since = self._since_reading + stepped
        if since < self._last_reading:  # steps take as long as reading, at least
            return None
        self._index_waiting()
        turn = self._reading(self._order(), since)
        return self._begun(turn) if turn is not None and turn.items else None

    def _order(self) -> list[str]:
        """Return the callers who have something that waits or runs, in the order of their turns."""
        return self.clock.order({*(caller for caller, _ in self._firsts), *(item.request.caller for item in self.running())})

    def _reading(self, callers: Sequence[str], since: float) -> Turn | None:
        """Return what to read now; nothing if it is too soon. `since` are the seconds of steps since the last reading."""
        rows = sum(item.rows for lane in self.lanes if not lane.reading for item in lane.items)
        if not since or since < min(REST, self._last_reading * rows / ROWS_PER_READING):
            return None
        rested = since >= self._last_reading
        return _first(map(self._reading_for, self.clock.close(callers, GRACE * self._mean_reading if rested else 0.0)))

    def _begun(self, turn: Turn | None) -> Turn | None:
        """Return a turn whose items do not wait any more."""
        if turn is not None:
            for item in turn.items:
                item.request.started = True
            self.waiting.take(turn.items)
        return turn

    def charge(self, turn: Turn, items: Sequence[BatchItem], seconds: float, since_reading: float, reads: bool) -> None:
        """Charge the callers of a turn's items for its time; `since_reading` is the part of it after texts were last read."""
        costs = defaultdict[str, float](float)
        for item in items:
            costs[item.request.caller] += item.cost if turn.at_once else item.rows
        self.clock.charge(costs, seconds)
        if reads:
            self._last_reading, self._since_reading = seconds, 0.0
            self._mean_reading += 0.1 * (seconds - self._mean_reading) if self._mean_reading else seconds
        else:
            self._since_reading += since_reading

    def _index_waiting(self) -> None:
        """Forget cancelled items that wait, and note whose are first."""
        self.waiting.forget_cancelled()
        self._firsts = self.waiting.firsts()

    def _forget_cancelled(self) -> None:
        self._index_waiting()
        for lane in self.lanes:
            gone = [item for item in lane.items if item.request.cancelled]
            if gone:
                lane.running.drop(gone)
                lane.items = [item for item in lane.items if not item.request.cancelled]
        self.lanes = [lane for lane in self.lanes if lane.items]

    def _candidates(self, first: BatchItem) -> Iterator[BatchItem]:
        """Yield items that wait and may be computed with one: its caller's own, then others'."""
        grows, key, caller = first.lane is not None, first.key, first.request.caller
        wanted = {request for request in self.waiting.requests() if grows or request.key == key}
        own = {request for request in wanted if request.caller == caller}
        for requests in (own, wanted - own):
            yield from (item for item in self.waiting.in_order(grows, requests) if item.lane is first.lane)

    def _reading_for(self, caller: str) -> Turn | None:
        """Return what to read for a caller now: the next piece of a long text, or new texts."""
        reading = [lane for lane in self.lanes if lane.reading]
        for lane in reading:
            if caller in lane.callers():
                return Turn(lane, [])
        first = self._firsts.get((caller, True))
        if first is None or (first.tokens > self.piece and len(reading) >= MAX_READING):
            return None
        lanes = self._lanes_for(first)
        for lane in lanes:
            if joining := self._joining(first, lane):
                return Turn(lane, joining)
        return Turn(None, self._joining(first, None)) if not lanes and len(self.lanes) < MAX_LANES else None

    def _step_for(self, caller: str, now: float, closing: bool) -> Turn | None:
        """Return a caller's next step, or its next batch of what is computed at once, in turn."""
        own = [lane for lane in self.lanes if caller in lane.callers() and not lane.reading]
        oldest = min(own, key=lambda lane: lane.stepped, default=None)
        step = None if oldest is None else Turn(oldest, [])
        first = self._firsts.get((caller, False))
        if first is None:
            return step
        batch = self._batch_with(first, closing or oldest is not None, now)
        return Turn(None, batch) if batch and not (oldest and oldest.stepped < self.batched) else step

    def _lanes_for(self, item: BatchItem) -> list[Lane]:
        """Return the lanes that an item may join when they have room: the first of its caller's own, else those of others."""
        same = [lane for lane in self.lanes if lane.kind is item.lane and not lane.reading]
        own = [lane for lane in same if lane.is_own(item.request.caller)]
        last = self.lanes[MAX_LANES - 1 :]
        return [lane for lane in own[:1] or same if Members(lane.items).admit(item, lane in last)]

    def _batch_with(self, first: BatchItem, hurry: bool, now: float) -> list[BatchItem]:
        """Return items to compute at once, the caller's own before others'; none while others may come in a moment."""
        most = min(self.settings.batch_tokens, self.batch_times[first.key].cost_of(BATCH_TURN))
        batch: list[BatchItem] = []
        members, budget = Members(), most
        for item in self._candidates(first):
            if batch and (item.cost > budget or not members.admit(item)):
                break
            budget -= item.cost
            batch.append(item)
            members.add(item)
        full = budget < first.cost or len(batch) < len(self.waiting)
        return batch if full or hurry or now >= first.request.arrived + self.settings.wait else []

    def _joining(self, first: BatchItem, lane: Lane | None) -> list[BatchItem]:
        """Return the items that begin in a lane, or in a new one: `first`, and others that fit; none if it is full."""
        room = self._room(lane, first.request.caller)
        if lane and first.rows > room:
            return []
        members = Members(lane.items if lane else ())
        # The last lane is for callers with few texts.
        few_only = (len(self.lanes) if lane is None else self.lanes.index(lane)) >= MAX_LANES - 1
        same = list(itertools.islice(self._candidates(first), MAX_CANDIDATES))
        same.sort(key=lambda item: (item.request.caller != first.request.caller, abs(item.tokens - first.tokens)))
        found: list[BatchItem] = []
        longest = 0
        for item in same if first.tokens <= self.piece else [first]:
            if item.tokens > self.piece and item is not first:
                continue  # long texts are read alone
            longest = max(longest, item.tokens)  # texts that are read together are as long as the longest
            if (members.counts and item.rows > room) or not members.admit(item, few_only):
                break
            if found and longest * (len(found) + 1) > self.piece:
                break
            members.add(item)
            found.append(item)
            room -= item.rows
        return found

    def _room(self, lane: Lane | None, caller: str) -> int:
        """Return how many rows a lane, or a new one, has room for; none where its steps take too long already."""
        if lane is None:
            return self.rows
        longest = max(TURN, SLOWDOWN * self.shortest)
        slow = lane.seconds > longest * (1 if lane.is_own(caller) else SHARED)
        return 0 if slow else self.rows - sum(item.rows for item in lane.items)

    def settle(self, lane: Lane, target: Lane | None = None) -> None:
        """Let the texts of a lane, which have been read, join another one: the target, or any that has room for them."""
        self.lanes.remove(lane)
        caller, rows = lane.items[0].request.caller, sum(item.rows for item in lane.items)
        others = [one for one in self._lanes_for(lane.items[0]) if self._room(one, caller) >= rows]
        for other in others if target is None else [target]:
            if other.running.joins(lane.running):
                other.join(lane.running, lane.items)
                return
        self.lanes.append(lane)


def _first(turns: Iterable[Turn | None]) -> Turn | None:
    return next((turn for turn in turns if turn is not None), None)
