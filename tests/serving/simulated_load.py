"""A worker under load in simulated time: what its schedule gives, without noise.

    PYTHONPATH=src python tests/serving/simulated_load.py

Costs are those of gpt-mini on one core (seconds; measured with `time.process_time`). Callers ask again a moment after they are
answered, for completions whose lengths are spread 1:20.
"""

import asyncio
import contextlib
import heapq
import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from qkv.serving import batching, worker
from qkv.serving.batching import BatchItem, QueuedRequest
from qkv.serving.metrics import Metrics
from qkv.serving.settings import ServiceSettings

READING, READING_TOKEN = 0.0025, 0.0001  # of a pass over prompts, and of each token in it
LAYERS = (0.2, 0.2, 0.2, 0.4)  # parts of a step
STEP, STEP_ROW = 0.002, 0.00025  # of a step, and of each row in it
ROUND_TRIP = 0.002  # between an answer and the caller's next request
BROKEN = -1  # tokens of a text that cannot be read
Lengths = Callable[[random.Random], tuple[int, int]]  # tokens of a prompt, and of its continuation


@dataclass(eq=False)
class Text:
    """A text that a caller asks for."""

    caller: int
    asked: float
    tokens: int
    steps: list[float] = field(default_factory=list)  # when it got each token


class SimulatedTexts:
    """Texts that grow; computing lets the clock go on."""

    def __init__(self, load: "SimulatedLoad", items: Sequence[BatchItem], piece: int):
        self.load, self.items, self.piece = load, list(items), piece
        self.unread = max(item.tokens for item in items)  # of each, filled up to the longest

    def __len__(self) -> int:
        return len(self.items)

    @property
    def reading(self) -> bool:
        return self.unread > 0

    def joins(self, other: "SimulatedTexts") -> bool:
        return not other.reading

    def join(self, other: "SimulatedTexts") -> None:
        self.items += other.items

    def drop(self, items: Sequence[BatchItem]) -> None:
        self.items = [item for item in self.items if item not in items]

    def step(self, meanwhile: Callable[[], object]) -> list[tuple[BatchItem, Any]]:
        rows = len(self.items)
        if self.reading:
            if any(item.value.tokens == BROKEN for item in self.items):
                raise RuntimeError
            tokens = min(self.unread, max(1, self.piece // rows))
            self.unread -= tokens
            self.load.now += READING + READING_TOKEN * rows * tokens
            self.load.turns.append(("read", [item.value.caller for item in self.items]))
            if self.reading:
                return []
        else:
            self.load.turns.append(("step", [item.value.caller for item in self.items]))
            for part in LAYERS:
                self.load.now += part * (STEP + STEP_ROW * rows)
                self.load.arrive()
                meanwhile()
        for item in self.items:
            item.value.steps.append(self.load.now)
        done = [item for item in self.items if len(item.value.steps) == item.value.tokens]
        self.drop(done)
        self.load.done += [item.value for item in done]
        for item in done if self.load.callers else ():
            heapq.heappush(self.load.asking, (self.load.now + ROUND_TRIP, item.value.caller))
        return [(item, item.value) for item in done]


class SimulatedWorker(worker.BatchWorker):
    """A worker whose turns are taken by the simulation instead of a thread."""

    def _run(self) -> None:
        pass


class SimulatedLoad:
    """Callers that ask a worker again and again, in simulated time."""

    def __init__(self, callers: Sequence[Lengths] = (), seed: int = 1):
        self.now, self.callers, self.random = 0.0, callers, random.Random(seed)
        self.done: list[Text] = []
        self.turns: list[tuple[str, list[int]]] = []  # "read" or "step", and whose texts
        self.asking = [(ROUND_TRIP * self.random.random(), number) for number in range(len(callers))]  # when, and who
        heapq.heapify(self.asking)

    def begin(self, items: Sequence[BatchItem], piece: int) -> SimulatedTexts:
        """Begin texts, as a model's handler does."""
        return SimulatedTexts(self, items, piece)

    @contextlib.contextmanager
    def worker(self) -> Iterator[SimulatedWorker]:
        """Return a worker that computes in simulated time."""
        real = worker.time, batching.time
        worker.time = batching.time = SimpleNamespace(monotonic=lambda: self.now)  # type: ignore[assignment]
        try:
            yield SimulatedWorker("simulated", self, ServiceSettings(queued_tokens=10**6), Metrics())  # type: ignore[arg-type]
        finally:
            worker.time, batching.time = real

    def put(self, one: SimulatedWorker, caller: int, prompt: int, tokens: int, asked: float | None = None) -> QueuedRequest:
        """Let a caller ask for a text."""
        text = Text(caller, self.now if asked is None else asked, tokens)
        return one.put("a", [BatchItem(text, prompt, prompt + tokens, lane="texts")], f"caller {caller}")

    def run(self, seconds: float) -> None:
        """Let some seconds pass; `done` has the texts that were answered."""

        async def simulate() -> None:
            with self.worker() as one:
                self.asked = one
                while self.now < seconds:
                    self.arrive()
                    if (turn := one.schedule.next_turn(self.now)) is None:
                        self.now = self.asking[0][0]
                        continue
                    one._take(turn)

        self.asking.append((math.inf, -1))
        asyncio.run(simulate())

    def arrive(self) -> None:
        """Let those callers ask whose time has come."""
        while self.asking and self.asking[0][0] <= self.now:
            when, caller = heapq.heappop(self.asking)
            self.put(self.asked, caller, *self.callers[caller](self.random), asked=when)

    def first_tokens(self) -> list[float]:
        """Return the seconds until the first token of each text, without the first second, when all callers come at once."""
        return sorted(text.steps[0] - text.asked for text in self.done if text.asked > 1)


def spread(rng: random.Random) -> tuple[int, int]:
    """Prompts of about a sentence, and lengths from 10 to 200."""
    return rng.randint(8, 30), round(10 * 20 ** rng.random())


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def main() -> None:
    for callers in (1, 16, 64):
        load = SimulatedLoad([spread] * callers)
        load.run(60)
        first = load.first_tokens()
        tokens = sum(text.tokens for text in load.done) / load.now
        print(
            f"{callers} callers: first token p50 {1e3 * statistics.median(first):.1f} ms, p99 {1e3 * p99(first):.1f} ms", end=""
        )
        print(f", slowest {1e3 * first[-1]:.1f} ms; {tokens:.0f} tokens/s; {len(first)} texts")


if __name__ == "__main__":
    main()
