"""Time and memory of encoders against the length of the text, measured in rounds, with fitted exponents."""

import contextlib
import math
import signal
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError
from qkv.bench.measure import ShowProgress, WorkerError, WorkerProcess
from qkv.bench.systems import System
from qkv.bench.workers.length import ENCODERS
from qkv.bench.workload import EncoderSize

SYSTEMS = tuple(ENCODERS)
PASSES = {"forward pass": False, "training step": True}  # whether gradients are computed
OUT_OF_MEMORY = "out of memory"
VOCAB = 1000  # small, so that the embedding table's memory is negligible


@dataclass
class LengthCurve:
    """The measurements of one encoder in one kind of pass."""

    system: str
    kind: str  # in PASSES
    seconds: dict[int, list[float]] = field(default_factory=dict)  # by length, one for each round
    memory: dict[int, int] = field(default_factory=dict)  # by length, peak in bytes
    weights: dict[int, int] = field(default_factory=dict)  # by length, parameters of the layers
    recorded: dict[int, bool] = field(default_factory=dict)  # by length, whether a CUDA graph was timed
    ended: tuple[int, str] | None = None  # the length that failed, and the reason

    def goes_to(self, length: int) -> bool:
        """Return whether to try a length; one longer than a length that failed is not tried."""
        return self.ended is None or length < self.ended[0]

    def add(self, length: int, reply: dict[str, Any]) -> None:
        if "ended" in reply:
            self.ended = length, reply["ended"]
            for values in (self.seconds, self.memory, self.weights, self.recorded):
                values.pop(length, None)  # of earlier rounds, in which it fitted
            return
        self.seconds.setdefault(length, []).append(reply["seconds"])
        if "memory" in reply:  # measured in the first round only
            self.memory[length], self.weights[length] = reply["memory"], reply["weights"]
        self.recorded[length] = reply["recorded"]

    @property
    def times(self) -> dict[int, float]:
        """The median time by length, in seconds."""
        return {length: statistics.median(rounds) for length, rounds in self.seconds.items()}

    @property
    def comparable(self) -> list[int]:
        """The lengths that were timed in the same way as the longest: as a CUDA graph, or with the host's work."""
        return [length for length in self.seconds if self.recorded[length] == self.recorded[max(self.seconds)]]


def long_half(lengths: list[int]) -> list[int]:
    """Return the longer half of some lengths, at least two, where constant costs matter least."""
    return sorted(lengths)[-max(2, math.ceil(len(lengths) / 2)) :]


def exponent(values: dict[int, float]) -> float | None:
    """Return the slope of log value over log length, by least squares over the longer half; None for fewer than two lengths."""
    points = [(math.log(n), math.log(values[n])) for n in long_half(list(values)) if values[n] > 0]
    if len(points) < 2:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def choose_encoders(only: tuple[str, ...]) -> list[str]:
    """Return the encoders whose name has one of the words in it, in any case; without words return all."""
    for word in only:
        if not any(word.lower() in name.lower() for name in SYSTEMS):
            raise ConfigError(f"--only {word}: no such system; there are {'; '.join(SYSTEMS)}")
    return [name for name in SYSTEMS if not only or any(word.lower() in name.lower() for word in only)]


def encoder_size(width: int, heads: int, layers: int) -> EncoderSize:
    """Check and return the size of all encoders; the feed-forward width is for those with attention."""
    if width % heads:
        raise ConfigError(f"--width {width} does not split into {heads} heads; choose --heads that divide it")
    if width % 2:
        raise ConfigError(f"--width {width} is odd, and a bidirectional RNN halves it; choose an even one")
    return EncoderSize("bert", width, 4 * width, heads, layers, width, vocab=VOCAB)


Send = Callable[..., dict[str, Any]]


def measure_curves(curves: list[LengthCurve], lengths: list[int], rounds: int, send: Send, show: ShowProgress) -> None:
    """Measure all curves at each length in turn, so that a busy moment of the machine affects all."""
    for number in range(1, rounds + 1):
        for length in lengths:
            show(f"round {number} of {rounds}, length {length:,}")
            for curve in curves:
                if curve.goes_to(length):
                    curve.add(length, send(encoder=curve.system, length=length, training=PASSES[curve.kind]))


@contextlib.contextmanager
def restarting_worker(system: System, folder: Path) -> Iterator[Send]:
    """Return the `send` of one process for all measurements; if the process dies, the next command starts another."""
    worker: WorkerProcess | None = None

    def send(**command: Any) -> dict[str, Any]:
        nonlocal worker
        try:
            if worker is None:
                worker = WorkerProcess(system, folder)
                worker.wait_until_ready()
            return worker.send(**command)
        except WorkerError as error:
            assert worker is not None
            worker.close()
            # When main memory runs out, Linux kills the process that uses most of it.
            killed = sys.platform != "win32" and worker.process.returncode == -signal.SIGKILL
            worker = None
            return {"ended": OUT_OF_MEMORY if killed else str(error)}

    try:
        yield send
    finally:
        if worker is not None:
            worker.close()
