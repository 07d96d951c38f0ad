"""The engine: for each model a thread that computes together what waits at the same time.

A request is a ticket, and its texts, cut into pieces, are the units that batches are made of. Units with the same key (the same
work, the same options) can be computed together. Whoever asked may leave at any time: units of a ticket that is gone are dropped.
"""

import asyncio
import logging
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from qkv.base.errors import QkvError
from qkv.serving.metrics import Metrics
from qkv.serving.refusals import Refusal, busy, too_late
from qkv.serving.settings import Settings

log = logging.getLogger("qkv.serving")
YIELD = 0.02  # seconds by which each unit of a request counts as later than the one before


class Work(Protocol):
    """What a model does with units of one key; gives one result for each."""

    def compute(self, key: Hashable, units: "Sequence[Unit]") -> Sequence[Any]: ...


@dataclass(eq=False)
class Unit:
    """A piece of work that is computed with others."""

    value: Any
    tokens: int  # that are read, and written where that is known
    cost: float  # of the room in a batch
    ticket: "Ticket" = field(init=False, repr=False)
    place: int = field(init=False)  # among those of its ticket

    @property
    def due(self) -> float:
        """When its turn is: of a request with many units the later ones let those of others go first, but not for ever."""
        return self.ticket.arrived + YIELD * self.place


class Asked(NamedTuple):
    """What a worker is asked: units that belong together, and how their results become the answer."""

    key: Hashable
    units: list[Unit]
    answer: Callable[[list[Any]], Any]


class Ticket:
    """A request's place in the queue: its units and what comes of them."""

    def __init__(self, key: Hashable, units: Sequence[Unit]):
        self.key, self.units = key, units
        self.results: list[Any] = [None] * len(units)
        self.left, self.gone, self.begun, self.arrived = len(units), False, False, time.monotonic()
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[Any]] = self.loop.create_future()
        for place, unit in enumerate(units):
            unit.ticket, unit.place = self, place
        if not units:
            self.done.set_result([])

    def finish(self, unit: Unit, result: Any) -> None:
        """Note what came of a unit; called by the worker."""
        self.results[unit.place] = result
        self.left -= 1
        if not self.left:
            self._tell(lambda: self.done.set_result(self.results))

    def fail(self, error: BaseException) -> None:
        """Give up the whole request; called by the worker."""
        self.gone = True
        self._tell(lambda: self.done.set_exception(error))

    def _tell(self, act: Callable[[], None]) -> None:
        try:
            self.loop.call_soon_threadsafe(lambda: None if self.done.done() else act())
        except RuntimeError:  # the loop is closed, and with it whoever waited
            self.gone = True


class Worker:
    """A model, the units that wait for it, and the thread that computes them."""

    def __init__(self, name: str, work: Work, settings: Settings, metrics: Metrics):
        self.name, self.work, self.settings, self.metrics = name, work, settings, metrics
        self.inside = 0  # requests that have a place
        self._waiting: list[Unit] = []  # by when they are due
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"qkv-{name}", daemon=True)
        self._thread.start()

    async def ask(self, key: Hashable, units: Sequence[Unit]) -> list[Any]:
        """The results of units, in order; leaving before they are there frees their places."""
        ticket = self.put(key, units)
        try:
            async with asyncio.timeout(self.settings.time_limit):
                return await ticket.done
        except TimeoutError:
            raise too_late(ticket.begun, self.settings.time_limit) from None
        finally:
            ticket.gone = True

    def enter(self) -> "Place":
        """A place for a request, or a refusal where there is none."""
        if self.inside >= self.settings.queue:
            self.metrics.refused(self.name)
            raise busy(self.settings.queue)
        return Place(self)

    def put(self, key: Hashable, units: Sequence[Unit]) -> Ticket:
        """Let units wait for their turn."""
        ticket = Ticket(key, units)
        with self._changed:
            if self._closed:
                raise Refusal(503, "stopping", "the service is stopping; ask again in a moment", retry_after=5)
            self._waiting.extend(units)
            self._waiting.sort(key=lambda unit: unit.due)
            self._changed.notify()
        return ticket

    @property
    def waiting(self) -> int:
        """Units that nobody computes yet."""
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        """Whether there is somebody who computes."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End the thread when nothing waits any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            self._compute(batch)

    def _next(self) -> list[Unit] | None:
        """The oldest unit and those that can be computed with it; None when there will be no more."""
        with self._changed:
            while True:
                self._forget_the_gone()
                if not self._waiting:
                    if self._closed:
                        return None
                    self._changed.wait()
                    continue
                chosen, room = self._together()
                ends = chosen[0].ticket.arrived + self.settings.wait
                full = room < chosen[0].cost or len(chosen) < len(self._waiting)
                if full or self._closed or time.monotonic() >= ends:
                    return self._take(chosen)
                self._changed.wait(ends - time.monotonic())

    def _forget_the_gone(self) -> None:
        self._waiting = [unit for unit in self._waiting if not unit.ticket.gone]

    def _together(self) -> tuple[list[Unit], float]:
        """Units of the oldest one's key, as many as there is room for, and how much room is left."""
        first, room = self._waiting[0], float(self.settings.batch_tokens)
        chosen: list[Unit] = []
        for unit in self._waiting:
            if unit.ticket.key != first.ticket.key:
                continue
            if chosen and unit.cost > room:
                break
            room -= unit.cost
            chosen.append(unit)
        return chosen, room

    def _take(self, chosen: list[Unit]) -> list[Unit]:
        taken = set(map(id, chosen))
        self._waiting = [unit for unit in self._waiting if id(unit) not in taken]
        for unit in chosen:
            unit.ticket.begun = True
        return chosen

    def _compute(self, batch: list[Unit]) -> None:
        """Compute a batch; where that fails, each ticket by itself, so that nobody suffers from another's text."""
        started = time.monotonic()
        key = batch[0].ticket.key
        try:
            results = self.work.compute(key, batch)
        except Exception as error:
            tickets = list(dict.fromkeys(unit.ticket for unit in batch))
            if len(tickets) == 1:
                return tickets[0].fail(_as_refusal(error))
            for ticket in tickets:
                self._compute([unit for unit in batch if unit.ticket is ticket])
            return None
        self.metrics.batch(self.name, len(batch), sum(unit.tokens for unit in batch), time.monotonic() - started)
        for unit, result in zip(batch, results, strict=True):
            unit.ticket.finish(unit, result)
        return None


class Place:
    """A request's place among those that a model has; given back at the end, whatever happens."""

    def __init__(self, worker: Worker):
        self.worker = worker

    def __enter__(self) -> Worker:
        self.worker.inside += 1
        return self.worker

    def __exit__(self, *_: object) -> None:
        self.worker.inside -= 1


def _as_refusal(error: Exception) -> Refusal:
    """What to tell whoever asked; of what should not have happened the place is logged, not the words, which may be theirs."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, QkvError):
        return Refusal(400, "unsuitable", str(error))
    log.error("%s in a worker:\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
    return Refusal(500, "internal", "something went wrong here; the log says where")
