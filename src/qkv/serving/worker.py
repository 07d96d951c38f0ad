"""The worker of a model: one thread that computes what waits, in turns, each for the caller who has had least.

A turn is a batch of items that are computed at once, such as texts to embed, or one step of a lane: of texts that are generated
token by token. New texts join a lane between two steps, and each leaves when it is done. Callers share lanes as long as each has
few texts in them; whoever has many gets a lane of its own, so that the others' steps stay short.
"""

import asyncio
import contextlib
import logging
import math
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from qkv.base.errors import QkvError
from qkv.serving.admission import Admission
from qkv.serving.batching import ANYBODY, BatchItem, ComputesBatches, OnResult, QueuedRequest
from qkv.serving.errors import RequestError, internal_error, no_turn, queue_full
from qkv.serving.fairness import FairClock
from qkv.serving.lanes import Lane, may_join
from qkv.serving.metrics import Metrics
from qkv.serving.settings import ServiceSettings
from qkv.serving.shared_limits import SharedBacklog, SharedLimits
from qkv.serving.speed import BatchTime

log = logging.getLogger("qkv.serving")
MAX_LANES = 8  # each has caches of its own
READ_TOKENS = 512  # of new texts that are read between two steps
TOGETHER = 8  # texts of a lane for each one that joins: reading one takes as long as reading several
TURN = 0.025  # seconds that a step should take, so that others come to their turn soon
# Seconds that a batch should take beside twice the fixed time of one. A short request takes the fixed time and about 10 ms, so
# with a batch of others to wait for, it takes at most about three times as long as alone.
BATCH_TURN = 0.01
ROW_TOKENS = 16  # tokens of the limit of a batch that a row of a lane counts for
SHARED = 4  # times as long as a turn a step may take where several callers wait for it
SLOWDOWN = 3.0  # how many times as long as the shortest one a step may take before no more texts join


Finished = list[tuple[BatchItem, Any]]  # items that are done, with their results


class Turn(NamedTuple):
    """What a turn is for: a step of a lane, a new lane, or items that are computed at once."""

    lane: Lane | None
    items: list[BatchItem]  # those that begin


class BatchWorker:
    """The queue of one model, and the thread that computes it."""

    def __init__(
        self,
        name: str,
        handler: ComputesBatches,
        settings: ServiceSettings,
        metrics: Metrics,
        limits: SharedLimits | None = None,
    ):
        self.name, self.handler, self.settings, self.metrics = name, handler, settings, metrics
        self.limits = limits or SharedLimits()
        self.active = 0  # requests that hold a slot
        self._waiting: list[BatchItem] = []  # ordered by due time
        self._shared = SharedBacklog(self.limits, name)
        self._lanes: list[Lane] = []
        self._clock, self.admission = FairClock(), Admission(settings, settings.batch_tokens // ROW_TOKENS)
        self._batch_times: dict[Hashable, BatchTime] = defaultdict(BatchTime)  # of what is computed at once, by its key
        self._batched = 0.0  # when the last such batch ended
        self._shortest = math.inf  # seconds of the shortest step
        self._changed = threading.Condition()
        self._closed = False
        metrics.watch_queue(name, lambda: self.active, lambda: self.waiting)
        self._thread = threading.Thread(target=self._run, name=f"qkv-{name}", daemon=True)
        self._thread.start()

    async def compute(self, key: Hashable, items: Sequence[BatchItem], caller: str = ANYBODY) -> list[Any]:
        """Return the results of items, in order; cancelling the call removes the items from the queue."""
        request = self.put(key, items, caller)
        try:
            return await self.result(request)
        finally:
            request.cancelled = True

    async def result(self, request: QueuedRequest) -> list[Any]:
        """Wait for a request's results; raise if its turn does not come in time."""
        limit = self.settings.time_limit
        while (left := request.seconds_left(limit)) is None or left > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    return await asyncio.shield(request.done)
        raise no_turn(limit)

    def reserve(self) -> "QueueSlot":
        """Return a slot for a request; raise if all slots are taken, in all processes of the service together."""
        if not self.limits.hold(f"queue {self.name}", 1, self.settings.queue):
            self.metrics.count_refusal(self.name)
            raise queue_full(self.settings.queue)
        return QueueSlot(self)

    def put(
        self, key: Hashable, items: Sequence[BatchItem], caller: str = ANYBODY, on_result: OnResult | None = None
    ) -> QueuedRequest:
        """Put items into the queue; raise if they would have to wait too long.

        The event loop calls `on_result` with the index and the result of each that is computed.
        """
        request = QueuedRequest(key, items, caller, on_result)
        with self._changed:
            if self._closed:
                raise RequestError(503, "stopping", "the service is stopping; ask again in a moment", retry_after=5)
            backlog = self._backlog()
            try:
                self.admission.check(request, backlog, self._shared)
            except RequestError:
                self.metrics.count_refusal(self.name)
                raise
            if caller not in backlog:
                self._clock.enter(caller)
            backlog[caller] += request.cost
            self._shared.share(backlog)
            self._waiting.extend(items)
            self._waiting.sort(key=lambda item: item.due)
            self._changed.notify()
        return request

    @property
    def waiting(self) -> int:
        """The number of items that are not begun yet."""
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Compute what waits, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    # The thread

    def _run(self) -> None:
        while True:
            with self._changed:
                turn = self._next_turn()
            if turn is None:
                return
            self._take(turn)

    def _unfinished(self) -> list[BatchItem]:
        return [*self._waiting, *(item for lane in self._lanes for item in lane.items)]

    def _backlog(self) -> defaultdict[str, float]:
        """Return the work that is not done yet, by caller."""
        backlog = defaultdict[str, float](float)
        for item in self._unfinished():
            backlog[item.request.caller] += item.cost - item.done
        return backlog

    def _next_turn(self) -> Turn | None:
        """Wait for something to do, and return it; None once everything is done and the queue is closed."""
        while True:
            self._forget_cancelled()
            backlog = self._backlog()
            self._shared.share(backlog)
            callers = set(backlog)
            while callers:
                caller = self._clock.first(callers)
                if (turn := self._turn_for(caller)) is not None:
                    for item in turn.items:
                        item.request.started = True
                    taken = set(map(id, turn.items))
                    self._waiting = [item for item in self._waiting if id(item) not in taken]
                    return turn
                callers.remove(caller)
            if self._closed and not self._waiting:
                return None
            ends = min((item.request.arrived + self.settings.wait for item in self._waiting), default=None)
            self._changed.wait(None if ends is None else max(0.0, ends - time.monotonic()))

    def _forget_cancelled(self) -> None:
        self._waiting = [item for item in self._waiting if not item.request.cancelled]
        for lane in self._lanes:
            gone = [item for item in lane.items if item.request.cancelled]
            if gone:
                lane.running.drop(gone)
                lane.items = [item for item in lane.items if not item.request.cancelled]
        self._lanes = [lane for lane in self._lanes if lane.items]

    def _turn_for(self, caller: str) -> Turn | None:
        """Return what to do for a caller now: its next batch or its next step, in turn."""
        own = sorted((lane for lane in self._lanes if caller in lane.callers()), key=lambda lane: lane.stepped)
        step = Turn(own[0], []) if own else None
        first = next((item for item in self._waiting if item.request.caller == caller), None)
        if first is None:
            return step
        if first.lane is None:
            batch = self._batch_with(first, bool(own))
            return Turn(None, batch) if batch and not (own and own[0].stepped < self._batched) else step
        lanes = self._lanes_for(first)
        for lane in lanes:
            if joining := self._joining(first, lane):
                few = len(joining) < len(lane.items) // TOGETHER and time.monotonic() - first.request.arrived < TURN
                return Turn(lane, [] if few else joining)  # a moment later others may be read with it
        if not lanes and len(self._lanes) < MAX_LANES:
            return Turn(None, self._joining(first, None))
        return step

    def _lanes_for(self, item: BatchItem) -> list[Lane]:
        """Return the lanes that an item may join when they have room: the first of its caller's own, else those of others."""
        same, caller = [lane for lane in self._lanes if lane.kind == item.lane], item.request.caller
        own = [lane for lane in same if lane.is_own(caller)]
        last = self._lanes[MAX_LANES - 1 :]
        return [lane for lane in own[:1] or same if may_join(item, lane.items, lane in last)]

    def _batch_with(self, first: BatchItem, hurry: bool) -> list[BatchItem]:
        """Return items to compute at once, the caller's own before others'; none while others may come in a moment."""
        most = min(self.settings.batch_tokens, self._batch_times[first.key].cost_of(BATCH_TURN))
        same = [item for item in self._waiting if item.lane is None and item.key == first.key]
        same.sort(key=lambda item: item.request.caller != first.request.caller)
        batch: list[BatchItem] = []
        budget = most
        for item in same:
            if batch and (item.cost > budget or not may_join(item, batch)):
                break
            budget -= item.cost
            batch.append(item)
        full = budget < first.cost or len(batch) < len(self._waiting)
        ready = full or hurry or self._closed or time.monotonic() >= first.request.arrived + self.settings.wait
        return batch if ready else []

    def _joining(self, first: BatchItem, lane: Lane | None) -> list[BatchItem]:
        """Return the items that begin in a lane, or in a new one: `first`, and others that fit; none if it is full."""
        members = list(lane.items) if lane else []
        room = self.settings.batch_tokens // ROW_TOKENS - sum(item.rows for item in members)
        if lane and lane.seconds > max(TURN * (1 if lane.is_own(first.request.caller) else SHARED), SLOWDOWN * self._shortest):
            return []
        # The last lane is for callers with few texts.
        polite = len(self._lanes) == MAX_LANES - 1 if lane is None else self._lanes.index(lane) == MAX_LANES - 1
        same = [item for item in self._waiting if item.lane == first.lane]
        same.sort(key=lambda item: item.request.caller != first.request.caller)
        found: list[BatchItem] = []
        tokens = 0
        for item in same:
            if (members and item.rows > room) or not may_join(item, members, polite) or tokens > READ_TOKENS:
                break
            members.append(item)
            found.append(item)
            room, tokens = room - item.rows, tokens + item.tokens
        return found

    def _take(self, turn: Turn) -> None:
        """Take a turn, and charge those for whom it was."""
        started, costs = time.monotonic(), defaultdict[str, float](float)
        items = [*turn.items, *(turn.lane.items if turn.lane else ())]
        stepwise = turn.lane is not None or turn.items[0].lane is not None
        for item in items:
            costs[item.request.caller] += item.rows if stepwise else item.cost
        finished = self._step(turn.lane, turn.items) if stepwise else self._compute(turn.items)
        seconds = time.monotonic() - started
        with self._changed:
            self._clock.charge(costs, seconds)
        # A text that ends sooner than it might have is all done.
        work = sum(item.advance(item.tokens) for item in turn.items) + sum(item.advance(item.step_cost) for item in items)
        work += sum(item.advance(item.cost) for item, _ in finished)
        self.admission.note(work, sum(item.rows for item in items), seconds)
        self.metrics.count_batch(self.name, len(items), sum(item.tokens for item, _ in finished), seconds)
        for item, result in finished:
            item.request.finish(item, result)

    def _step(self, lane: Lane | None, joining: list[BatchItem]) -> Finished:
        """Read the texts that join a lane, or make a new one of them, and take a step; return the items that are done."""
        if joining:
            try:
                running = self.handler.begin(joining)
            except Exception as error:
                self._failed(joining, error)
                return []
            if lane is not None and lane.running.joins(running):
                lane.join(running, joining)
            else:
                lane = Lane(running, joining)
                self._lanes.append(lane)
        assert lane is not None
        started = time.monotonic()
        try:
            finished = list(lane.running.step())
        except Exception as error:
            self._lanes.remove(lane)
            self._failed(lane.items, error)
            return []
        lane.stepped = time.monotonic()
        lane.seconds = lane.stepped - started
        self._shortest = min(self._shortest, lane.seconds)
        done = {id(item) for item, _ in finished}
        lane.items = [item for item in lane.items if id(item) not in done]
        if not lane.items:
            self._lanes.remove(lane)
        return finished

    def _compute(self, batch: list[BatchItem]) -> Finished:
        """Compute a batch at once; return its items with their results."""
        key, started = batch[0].key, time.monotonic()
        try:
            results = self.handler.compute(key, batch)
        except Exception as error:
            self._failed(batch, error)
            return []
        self._batched = time.monotonic()
        self._batch_times[key].add(sum(item.cost for item in batch), self._batched - started)
        return list(zip(batch, results, strict=True))

    def _failed(self, items: list[BatchItem], error: Exception) -> None:
        """Let each request of a batch that failed try again alone, so that one bad text fails only its own request."""
        requests = dict.fromkeys(item.request for item in items)
        for request in requests:
            if len(requests) == 1 or any(item.streamed for item in request.items):
                request.fail(_as_request_error(error, request.id))
            request.alone = True
        with self._changed:
            again = [item for item in items if not item.request.cancelled]
            self._waiting = sorted([*self._waiting, *again], key=lambda item: item.due)


class QueueSlot:
    """One of a worker's slots for requests, held inside a `with` block."""

    def __init__(self, worker: BatchWorker):
        self.worker = worker

    def __enter__(self) -> BatchWorker:
        self.worker.active += 1
        return self.worker

    def __exit__(self, *_: object) -> None:
        self.worker.active -= 1
        self.worker.limits.release(f"queue {self.worker.name}", 1)


def _as_request_error(error: Exception, request: str) -> RequestError:
    """Return the error that the client gets; an unexpected one is logged without its message, which may hold a user's text."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, QkvError):
        return RequestError(400, "unsuitable", str(error))
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s in a worker:\n%s", type(error).__name__, where, extra={"request_id": request})
    return internal_error()
