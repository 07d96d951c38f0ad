"""Requests as a model's worker sees them: items, the pieces of text that batches are made of, and their results.

Items with the same key, that is the same task with the same options, may share a batch. A client may disconnect at any time; the
items of a cancelled request are dropped.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

from qkv.serving.logs import request_id

OnResult = Callable[[int, Any], object]
STAGGER = 0.02  # seconds by which each item of a request is due later than the one before
ANYBODY = "anybody"  # the caller of all requests, where callers are not distinguished


class ComputesBatches(Protocol):
    """Anything that computes items: those of one key at once, or those of one lane step by step."""

    def compute(self, key: Hashable, items: "Sequence[BatchItem]") -> Sequence[Any]:
        """Return the results of items that are computed at once."""
        ...

    def begin(self, items: "Sequence[BatchItem]", piece: int) -> "RunningItems":
        """Begin to compute items of one lane step by step; where steps read them, at most `piece` tokens in each."""
        ...


class RunningItems(Protocol):
    """Items that are computed together step by step, such as texts that grow by a token a step."""

    def __len__(self) -> int:
        """The number of items that are not done."""
        ...

    @property
    def reading(self) -> bool:
        """Whether the next step reads items, or a piece of long ones: it is short then, and others should not wait for it."""
        ...

    def joins(self, other: Self) -> bool:
        """Return whether others that have just begun can join these."""
        ...

    def join(self, other: Self) -> None:
        """Add others, which are not used any more."""
        ...

    def step(self, meanwhile: Callable[[], object]) -> "Sequence[tuple[BatchItem, Any]]":
        """Take a step; return the items that are done, with their results. A long step calls `meanwhile` now and then."""
        ...

    def drop(self, items: "Sequence[BatchItem]") -> None:
        """Forget items whose results nobody wants any more."""
        ...


@dataclass(eq=False)
class BatchItem:
    """A piece of work that is computed together with others."""

    value: Any
    tokens: int  # that the model reads
    cost: float  # in tokens of the batch's budget
    rows: int = 1  # hypotheses, where it grows step by step
    step_cost: float = 1.0  # of the cost that a step does
    lane: Hashable | None = None  # what it must have in common with others that grow step by step; None: computed at once
    streamed: bool = False  # whether parts of its result are passed on before it is complete
    count_generated: Callable[[Any], int] | None = None  # returns the tokens in its result; None: it has none
    done: float = field(default=0.0, init=False)  # of the cost
    handed_on: int = field(default=0, init=False)  # generated tokens that were passed on before the result is complete
    request: "QueuedRequest" = field(init=False, repr=False)
    index: int = field(init=False)  # in its request
    # The time that orders the queue: later items of a long request let other requests pass, but not for ever.
    due: float = field(init=False)

    @property
    def key(self) -> Hashable:
        """What it must have in common with others of its batch."""
        return self.request.key

    def advance(self, cost: float) -> float:
        """Note that some of it is done; return how much, which is never more than there is."""
        before, self.done = self.done, min(self.cost, self.done + cost)
        return self.done - before

    def left_to_hand_on(self, result: Any) -> int:
        """Return how many generated tokens its result has beside those that were passed on before."""
        return 0 if self.count_generated is None else max(0, self.count_generated(result) - self.handed_on)


class Outbox:
    """Calls for the event loop, sent together at the end of a turn: each request to another thread takes a system call, and may
    cost the model's thread its turn at Python.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[asyncio.AbstractEventLoop, Callable[[], object]]] = []

    def post(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        """Let a loop make a call once the turn is over."""
        self._calls.append((loop, call))

    def send(self) -> None:
        """Send what was posted."""
        calls, self._calls = self._calls, []
        for loop in dict.fromkeys(loop for loop, _ in calls):
            own = [call for its_loop, call in calls if its_loop is loop]
            with contextlib.suppress(RuntimeError):  # the event loop is closed, so nobody listens
                loop.call_soon_threadsafe(self.make, own)

    @staticmethod
    def make(calls: Sequence[Callable[[], object]]) -> None:
        """Make the calls, on the event loop."""
        for call in calls:
            call()


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

    def __init__(self, key: Hashable, items: Sequence[BatchItem], caller: str = ANYBODY, on_result: OnResult | None = None):
        self.key, self.items, self.caller, self.on_result = key, items, caller, on_result
        self.id = request_id.get()
        self.cost = sum(item.cost for item in items)
        self.alone = False  # whether it shares its batches with no other request, since one with it has failed
        self.results: list[Any] = [None] * len(items)
        self.remaining, self.cancelled, self.started, self.arrived = len(items), False, False, time.monotonic()
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[Any]] = self.loop.create_future()
        for index, item in enumerate(items):
            item.request, item.index, item.due = self, index, self.arrived + STAGGER * index
        if not items:
            self.done.set_result([])

    def seconds_left(self, limit: float) -> float | None:
        """Return how many seconds of the limit are left for its turn to come; None once it has: then it is computed."""
        return None if self.started else self.arrived + limit - time.monotonic()

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
