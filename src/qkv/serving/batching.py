"""Dynamic batching: one thread for each model computes together what waits at the same time.

A request is split into items, the pieces of text that batches are made of. Items with the same key, that is the same task with
the same options, may share a batch. A client may disconnect at any time; the items of a cancelled request are dropped.
"""

import asyncio
import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from qkv.base.errors import QkvError
from qkv.serving.errors import RequestError, internal_error, queue_full, timed_out
from qkv.serving.metrics import Metrics
from qkv.serving.settings import ServiceSettings

log = logging.getLogger("qkv.serving")
OnResult = Callable[[int, Any], object]
STAGGER = 0.02  # seconds by which each item of a request is due later than the one before


class ComputesBatches(Protocol):
    """Anything that computes items of one key and returns one result for each."""

    def compute(self, key: Hashable, items: "Sequence[BatchItem]") -> Sequence[Any]: ...


@dataclass(eq=False)
class BatchItem:
    """A piece of work that is computed together with others."""

    value: Any
    tokens: int  # read, and generated where that is known
    cost: float  # in tokens of the batch's budget
    request: "QueuedRequest" = field(init=False, repr=False)
    index: int = field(init=False)  # in its request

    @property
    def due(self) -> float:
        """The time that orders the queue: later items of a long request let other requests pass, but not for ever."""
        return self.request.arrived + STAGGER * self.index


class OutputPlace(NamedTuple):
    """Where the output of an item stands: in which text, and between which strings."""

    text: int
    before: str
    after: str


class PreparedRequest(NamedTuple):
    """A request's items, and the function that turns their results into the answer."""

    key: Hashable
    items: list[BatchItem]
    answer: Callable[[list[Any]], Any]
    places: Sequence[OutputPlace] = ()  # of each item's output, where outputs are streamed


class QueuedRequest:
    """A request in a worker's queue: its items and their results."""

    def __init__(self, key: Hashable, items: Sequence[BatchItem], on_result: OnResult | None = None):
        self.key, self.items, self.on_result = key, items, on_result
        self.results: list[Any] = [None] * len(items)
        self.remaining, self.cancelled, self.started, self.arrived = len(items), False, False, time.monotonic()
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[Any]] = self.loop.create_future()
        for index, item in enumerate(items):
            item.request, item.index = self, index
        if not items:
            self.done.set_result([])

    def finish(self, item: BatchItem, result: Any) -> None:
        """Store the result of an item; called by the worker's thread."""
        self.results[item.index] = result
        if self.on_result is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, so nobody waits
                self.loop.call_soon_threadsafe(self.on_result, item.index, result)
        self.remaining -= 1
        if not self.remaining:
            self._resolve(lambda: self.done.set_result(self.results))

    def fail(self, error: BaseException) -> None:
        """Give up the whole request; called by the worker's thread."""
        self.cancelled = True
        self._resolve(lambda: self.done.set_exception(error))

    def _resolve(self, act: Callable[[], None]) -> None:
        try:
            self.loop.call_soon_threadsafe(lambda: None if self.done.done() else act())
        except RuntimeError:  # the event loop is closed, so nobody waits
            self.cancelled = True


class BatchWorker:
    """The queue of one model, and the thread that computes it."""

    def __init__(self, name: str, handler: ComputesBatches, settings: ServiceSettings, metrics: Metrics):
        self.name, self.handler, self.settings, self.metrics = name, handler, settings, metrics
        self.active = 0  # requests that hold a slot
        self._waiting: list[BatchItem] = []  # ordered by due time
        self._changed = threading.Condition()
        self._closed = False
        metrics.watch_queue(name, lambda: self.active, lambda: self.waiting)
        self._thread = threading.Thread(target=self._run, name=f"qkv-{name}", daemon=True)
        self._thread.start()

    async def compute(self, key: Hashable, items: Sequence[BatchItem]) -> list[Any]:
        """Return the results of items, in order; cancelling the call removes the items from the queue."""
        request = self.put(key, items)
        try:
            async with asyncio.timeout(self.settings.time_limit):
                return await request.done
        except TimeoutError:
            raise timed_out(request.started, self.settings.time_limit) from None
        finally:
            request.cancelled = True

    def reserve(self) -> "QueueSlot":
        """Return a slot for a request; raise if all slots are taken."""
        if self.active >= self.settings.queue:
            self.metrics.count_refusal(self.name)
            raise queue_full(self.settings.queue)
        return QueueSlot(self)

    def put(self, key: Hashable, items: Sequence[BatchItem], on_result: OnResult | None = None) -> QueuedRequest:
        """Put items into the queue; the event loop calls `on_result` with the index and the result of each that is computed."""
        request = QueuedRequest(key, items, on_result)
        with self._changed:
            if self._closed:
                raise RequestError(503, "stopping", "the service is stopping; ask again in a moment", retry_after=5)
            self._waiting.extend(items)
            self._waiting.sort(key=lambda item: item.due)
            self._changed.notify()
        return request

    @property
    def waiting(self) -> int:
        """The number of items that are not computed yet."""
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

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._compute(batch)

    def _next_batch(self) -> list[BatchItem] | None:
        """Wait for the first item and those that fit into a batch with it; return None once the queue is closed and empty."""
        with self._changed:
            while True:
                self._waiting = [item for item in self._waiting if not item.request.cancelled]
                if not self._waiting:
                    if self._closed:
                        return None
                    self._changed.wait()
                    continue
                batch, budget = self._fitting_items()
                ends = batch[0].request.arrived + self.settings.wait
                full = budget < batch[0].cost or len(batch) < len(self._waiting)
                if full or self._closed or time.monotonic() >= ends:
                    taken = set(map(id, batch))
                    self._waiting = [item for item in self._waiting if id(item) not in taken]
                    for item in batch:
                        item.request.started = True
                    return batch
                self._changed.wait(ends - time.monotonic())

    def _fitting_items(self) -> tuple[list[BatchItem], float]:
        """Return the items with the first one's key that fit into a batch, and what is left of the batch's budget."""
        first, budget = self._waiting[0], float(self.settings.batch_tokens)
        batch: list[BatchItem] = []
        for item in self._waiting:
            if item.request.key != first.request.key:
                continue
            if batch and item.cost > budget:
                break
            budget -= item.cost
            batch.append(item)
        return batch, budget

    def _compute(self, batch: list[BatchItem]) -> None:
        """Compute a batch; if that fails, compute each request alone, so that one bad text fails only its own request."""
        started = time.monotonic()
        key = batch[0].request.key
        try:
            results = self.handler.compute(key, batch)
        except Exception as error:
            requests = list(dict.fromkeys(item.request for item in batch))
            if len(requests) == 1:
                return requests[0].fail(_as_request_error(error))
            for request in requests:
                self._compute([item for item in batch if item.request is request])
            return None
        self.metrics.count_batch(self.name, len(batch), sum(item.tokens for item in batch), time.monotonic() - started)
        for item, result in zip(batch, results, strict=True):
            item.request.finish(item, result)
        return None


class QueueSlot:
    """One of a worker's slots for requests, held inside a `with` block."""

    def __init__(self, worker: BatchWorker):
        self.worker = worker

    def __enter__(self) -> BatchWorker:
        self.worker.active += 1
        return self.worker

    def __exit__(self, *_: object) -> None:
        self.worker.active -= 1


def _as_request_error(error: Exception) -> RequestError:
    """Return the error that the client gets; an unexpected one is logged without its message, which may hold a user's text."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, QkvError):
        return RequestError(400, "unsuitable", str(error))
    log.error("%s in a worker:\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
    return internal_error()
