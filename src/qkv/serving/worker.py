"""The worker of a model: one thread that computes what waits, in turns, each for the caller who has had least.

A turn is a batch of items that are computed at once, such as texts to embed, or one step of a lane: of texts that are generated
token by token. New texts are read between two steps and join a lane, a long one piece by piece; each leaves when it is done.
Callers share lanes as long as each has few texts in them; whoever has many gets a lane of its own, so that the others' steps stay
short. `schedule.py` chooses the turns.
"""

import asyncio
import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Hashable, Sequence
from typing import Any

import torch

from qkv.base.errors import QkvError
from qkv.serving.admission import Admission
from qkv.serving.batching import ANYBODY, BatchItem, ComputesBatches, OnResult, Outbox, QueuedRequest
from qkv.serving.errors import RequestError, as_request_error, device_failed, internal_error, no_turn, queue_full
from qkv.serving.lanes import Lane
from qkv.serving.metrics import Metrics
from qkv.serving.schedule import Schedule, Turn
from qkv.serving.settings import ServiceSettings
from qkv.serving.shared_limits import SharedBacklog, SharedLimits

log = logging.getLogger("qkv.serving")
Finished = list[tuple[BatchItem, Any]]  # items that are done, with their results


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
        self.outbox = Outbox()
        self.schedule = Schedule(settings)
        self.admission = Admission(settings, self.schedule.rows)
        self._shared = SharedBacklog(self.limits, name)
        self._changed = threading.Condition()
        self._resumed = 0.0  # when the step that runs began, or was resumed after texts had been read meanwhile
        self._interrupted = 0.0  # seconds for which steps have been interrupted, in all
        self._read: list[Lane] | None = None  # those whose texts were read during the step that runs; None between steps
        self._closed = self._device_failed = False
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
            error = queue_full(self.settings.queue)
            self.metrics.count_refusal(self.name, error.code)
            raise error
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
            try:
                self.admission.check(request, self.schedule.backlog(), self._shared)
            except RequestError as error:
                self.metrics.count_refusal(self.name, error.code)
                raise
            self.schedule.add(request)
            self._share_backlog()
            self._changed.notify()
        return request

    def _share_backlog(self) -> None:
        """Let other processes know how much waits here."""
        if self.limits.processes > 1:
            self._shared.share(self.schedule.backlog())

    @property
    def waiting(self) -> int:
        """The number of items that are not begun yet."""
        return len(self.schedule.waiting)

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
                turn = None if self._device_failed else self._next_turn()
            if turn is None:
                return
            self._take(turn)

    def _next_turn(self) -> Turn | None:
        """Wait for something to do, and return it; None once everything is done and the queue is closed."""
        while True:
            self._share_backlog()
            if (turn := self.schedule.next_turn(time.monotonic(), self._closed)) is not None:
                return turn
            waiting = self.schedule.waiting
            if self._closed and not waiting:
                return None
            ends = min((request.arrived + self.settings.wait for request in waiting.requests()), default=None)
            self._changed.wait(None if ends is None else max(0.0, ends - time.monotonic()))

    def _take(self, turn: Turn) -> None:
        """Take a turn, and charge those for whom it was."""
        started, reads, items = self._clock(), turn.reads, turn.items or list(turn.lane.items if turn.lane else ())
        together = [*turn.items, *self.schedule.running()] if reads else items  # reading is part of what all that run take
        if turn.at_once:
            finished = self._compute(turn.items)
        elif turn.items:
            finished = self._begin(turn.items, turn.lane)
        else:
            assert turn.lane is not None
            finished = self._step(turn.lane)
        seconds = self._clock() - started
        with self._changed:
            self.schedule.charge(turn, items, seconds, min(seconds, self._clock() - self._resumed), reads)
        work = sum(item.advance(min(item.tokens, self.schedule.piece) if reads else item.step_cost) for item in items)
        work += sum(item.advance(item.cost) for item, _ in finished)  # one that ends sooner than it might have is all done
        self.admission.note(work, sum(item.rows for item in together), seconds)
        self.metrics.count_batch(self.name, len(items), sum(item.tokens for item, _ in finished), seconds)
        if generated := sum(item.left_to_hand_on(result) for item, result in finished):
            self.metrics.count_generated(self.name, generated)
        for item, result in finished:
            item.request.finish(item, result)
        self.outbox.send()

    def _begin(self, items: list[BatchItem], target: Lane | None) -> Finished:
        """Read texts, or the first piece of a long one, and let them join a lane; return the items that are done already."""
        try:
            running = self.handler.begin(items, self.schedule.piece)
        except Exception as error:
            self._failed(items, error)
            return []
        lane = Lane(running, items)
        with self._changed:
            self.schedule.lanes.append(lane)
            if not lane.reading:
                self._settle(lane, target)
                return []
        return self._step(lane, target)

    def _settle(self, lane: Lane, target: Lane | None) -> None:
        """Let the texts of a lane, which have been read, join others; during a step of others, once that is over."""
        if self._read is None:
            self.schedule.settle(lane, target)
        else:
            self._read.append(lane)

    def _step(self, lane: Lane, target: Lane | None = None) -> Finished:
        """Take a step of a lane, and return the items that are done; once texts have been read, let them join others."""
        reading, started = lane.reading, self._clock()
        if not reading:
            self._resumed, self._read = started, []
        try:
            finished = list(lane.running.step((lambda: None) if reading else self._read_meanwhile))
        except Exception as error:
            with self._changed:
                self.schedule.lanes.remove(lane)
                self._settle_read(reading)
            self._failed(lane.items, error, passed_on=not lane.reading)
            return []
        lane.stepped = time.monotonic()
        done = {id(item) for item, _ in finished}
        with self._changed:
            lane.items = [item for item in lane.items if id(item) not in done]
            streamed = [item for item in lane.items if item.streamed and not lane.reading]
            if not lane.items:
                self.schedule.lanes.remove(lane)
            elif reading and not lane.reading:
                self._settle(lane, target)
            self._settle_read(reading)
        for item in streamed:  # each has one more token
            item.handed_on += 1
        if streamed:
            self.metrics.count_generated(self.name, len(streamed))
        if not reading:
            lane.seconds = self._clock() - started
            self.schedule.shortest = min(self.schedule.shortest, lane.seconds)
        return finished

    def _settle_read(self, reading: bool) -> None:
        """After a step that was no reading, let the texts that were read meanwhile join others."""
        if not reading:
            read, self._read = self._read or [], None
            for lane in read:
                self.schedule.settle(lane)

    def _read_meanwhile(self) -> None:
        """Read texts that have come while a step runs, if it is time to."""
        if not self.schedule.waiting:
            return
        with self._changed:
            turn = self.schedule.next_reading(self._clock() - self._resumed)
        if turn is not None:
            started = time.monotonic()
            self._take(turn)
            self._interrupted += time.monotonic() - started
            self._resumed = self._clock()

    def _clock(self) -> float:
        """Return the time in seconds, which stands still for a step while it is interrupted."""
        return time.monotonic() - self._interrupted

    def _compute(self, batch: list[BatchItem]) -> Finished:
        """Compute a batch at once; return its items with their results."""
        key, started = batch[0].key, time.monotonic()
        try:
            results = self.handler.compute(key, batch)
        except Exception as error:
            self._failed(batch, error)
            return []
        self.schedule.batched = time.monotonic()
        self.schedule.batch_times[key].add(sum(item.cost for item in batch), self.schedule.batched - started)
        return list(zip(batch, results, strict=True))

    def _failed(self, items: list[BatchItem], error: Exception, passed_on: bool = False) -> None:
        """Let each request of a batch that failed try again alone, so that one bad text fails only its own request.

        A streamed one cannot be tried again once something of it has been passed on.
        """
        if isinstance(error, torch.AcceleratorError):
            self._give_up(items, error)
            return
        requests = dict.fromkeys(item.request for item in items)
        for request in requests:
            if len(requests) == 1 or (passed_on and any(item.streamed for item in request.items)):
                request.fail(_as_request_error(error, request.id))
            request.alone = True
        with self._changed:
            self.schedule.waiting.add(item for item in items if not item.request.cancelled)

    def _give_up(self, items: list[BatchItem], error: Exception) -> None:
        """Fail every request: after a failure of its GPU, a process cannot compute anything any more."""
        _log_failure(error, items[0].request.id)
        with self._changed:
            self._closed = self._device_failed = True
            for request in {item.request for item in (*items, *self.schedule.unfinished())}:
                request.fail(device_failed())


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
        return as_request_error(error)
    _log_failure(error, request)
    return internal_error()


def _log_failure(error: Exception, request: str) -> None:
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s in a worker:\n%s", type(error).__name__, where, extra={"request_id": request})
