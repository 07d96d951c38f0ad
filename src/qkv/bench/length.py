"""Time and memory of encoders against the length of the text: ask a worker, round after round, and fit exponents."""

import contextlib
import math
import signal
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError
from qkv.bench.catalogue import System
from qkv.bench.rounds import Say, Worker, WorkerError
from qkv.bench.systems.qkv_length import ENCODERS
from qkv.bench.work import EncoderSize

SYSTEMS = tuple(ENCODERS)
PASSES = {"forward pass": False, "training step": True}  # whether gradients are computed
OUT_OF_MEMORY = "out of memory"
VOCAB = 1000  # of the random words; small, so that its table is nothing beside what grows


@dataclass
class Curve:
    """What was found of one encoder in one kind of pass."""

    system: str
    kind: str  # in PASSES
    seconds: dict[int, list[float]] = field(default_factory=dict)  # of each length, one for each round
    memory: dict[int, int] = field(default_factory=dict)  # of each length, in bytes, at most
    weights: dict[int, int] = field(default_factory=dict)  # of each length, those of the layers
    recorded: dict[int, bool] = field(default_factory=dict)  # of each length, whether a CUDA graph was timed
    ended: tuple[int, str] | None = None  # the length that could not be measured, and why

    def goes_to(self, length: int) -> bool:
        """Whether that length is worth trying: what does not fit into memory will not, when it is longer."""
        return self.ended is None or length < self.ended[0]

    def add(self, length: int, answer: dict[str, Any]) -> None:
        if "ended" in answer:
            self.ended = length, answer["ended"]
            for values in (self.seconds, self.memory, self.weights, self.recorded):
                values.pop(length, None)  # from rounds in which it did fit
            return
        self.seconds.setdefault(length, []).append(answer["seconds"])
        if "memory" in answer:  # told in a first round only
            self.memory[length], self.weights[length] = answer["memory"], answer["weights"]
        self.recorded[length] = answer["recorded"]

    @property
    def times(self) -> dict[int, float]:
        """The median of the rounds, in seconds."""
        return {length: statistics.median(rounds) for length, rounds in self.seconds.items()}

    @property
    def comparable(self) -> list[int]:
        """The lengths that were timed as the longest one was: with the host's work, or without it."""
        return [length for length in self.seconds if self.recorded[length] == self.recorded[max(self.seconds)]]


def long_half(lengths: list[int]) -> list[int]:
    """The longer half of some lengths, and two at least, where costs that do not grow matter least."""
    return sorted(lengths)[-max(2, math.ceil(len(lengths) / 2)) :]


def exponent(values: dict[int, float]) -> float | None:
    """The slope of log value over log length, by least squares over the longer half of the lengths; None for fewer than two."""
    points = [(math.log(n), math.log(values[n])) for n in long_half(list(values)) if values[n] > 0]
    if len(points) < 2:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def chosen(only: tuple[str, ...]) -> list[str]:
    """Systems with one of the words in their name, whatever the case; all where there are none."""
    for word in only:
        if not any(word.lower() in name.lower() for name in SYSTEMS):
            raise ConfigError(f"--only {word}: no such system; there are {'; '.join(SYSTEMS)}")
    return [name for name in SYSTEMS if not only or any(word.lower() in name.lower() for word in only)]


def shape(width: int, heads: int, layers: int) -> EncoderSize:
    """The size of all encoders, checked; the inner width is of those with attention."""
    if width % heads:
        raise ConfigError(f"--width {width} does not split into {heads} heads; choose --heads that divide it")
    if width % 2:
        raise ConfigError(f"--width {width} is odd, and an RNN that reads both ways halves it; choose an even one")
    return EncoderSize("bert", width, 4 * width, heads, layers, width, vocab=VOCAB)


Ask = Callable[..., dict[str, Any]]


def measure(curves: list[Curve], lengths: list[int], rounds: int, ask: Ask, say: Say) -> None:
    """All curves at each length in turn, so that a busy moment meets all."""
    for number in range(1, rounds + 1):
        for length in lengths:
            say(f"round {number} of {rounds}, length {length:,}")
            for curve in curves:
                if curve.goes_to(length):
                    curve.add(length, ask(encoder=curve.system, length=length, training=PASSES[curve.kind]))


@contextlib.contextmanager
def one_worker(system: System, folder: Path) -> Iterator[Ask]:
    """One process for all, so that none of another's memory is in the way; where it ends, another takes its place."""
    worker: Worker | None = None

    def ask(**command: Any) -> dict[str, Any]:
        nonlocal worker
        try:
            if worker is None:
                worker = Worker(system, folder)
                worker.ready()
            return worker.ask(**command)
        except WorkerError as error:
            assert worker is not None
            worker.close()
            # Where main memory runs out, Linux kills the process that has most of it.
            killed = worker.process.returncode == -signal.SIGKILL
            worker = None
            return {"ended": OUT_OF_MEMORY if killed else str(error)}

    try:
        yield ask
    finally:
        if worker is not None:
            worker.close()
