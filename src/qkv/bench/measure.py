"""Measurements by workers in processes of their own, in rounds: each system has its turn, so a busy moment affects all."""

import contextlib
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.bench.systems import System

ShowProgress = Callable[[str], None]


class WorkerError(Exception):
    """A worker failed; the others go on."""


class WorkerProcess:
    """A worker's process: it gets a command and sends a reply."""

    def __init__(self, system: System, job: Path):
        self.system = system
        self.log = job / f"{Path(system.file).name}-{id(system)}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                system.command(job), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ)
            )

    def wait_until_ready(self) -> str:
        """Wait until the worker has built its model, and return the system's version."""
        return str(self._reply()["ready"])

    def send(self, **command: Any) -> dict[str, Any]:
        """Send a command and return the reply."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._last_words()) from None
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise WorkerError(self._last_words())
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply

    def _last_words(self) -> str:
        """Return the exit code and the last line of the log."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return f"ended with code {self.process.wait()}" + (f": {lines[-1].strip()[:300]}" if lines else "")

    def close(self) -> None:
        """End the process."""
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe and pipe.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass
class Measurement:
    """The results of one system."""

    system: System
    version: str = ""
    rates: dict[str, list[float]] = field(default_factory=dict)  # by case, one for each round
    memory: dict[str, int] = field(default_factory=dict)  # by case, peak in bytes
    losses: list[float] = field(default_factory=list)  # of each update, on text that can be learned
    error: str = ""  # why the system was not measured, or not in every round

    def add(self, case: str, reply: dict[str, Any]) -> None:
        self.rates.setdefault(case, []).append(reply["rate"])
        self.memory[case] = max(self.memory.get(case, 0), reply["memory"])

    def spread(self, case: str) -> tuple[float, float, float] | None:
        """Return the median, lowest and highest rate."""
        rates = self.rates.get(case)
        return (statistics.median(rates), min(rates), max(rates)) if rates else None


@contextlib.contextmanager
def workers(found: list[Measurement], job: Path, show: ShowProgress) -> Iterator[dict[int, WorkerProcess]]:
    """Start a worker for each system, by its index in the list; record the error of one that does not start."""
    alive: dict[int, WorkerProcess] = {}
    try:
        # One after the other: the memory and time that one takes to start must not make another fail.
        for index, measurement in enumerate(found):
            show(f"starting {measurement.system.label}")
            alive[index] = WorkerProcess(measurement.system, job)
            with _record_failure(measurement, index, alive):
                measurement.version = alive[index].wait_until_ready()
        yield alive
    finally:
        for worker in alive.values():
            worker.close()


@contextlib.contextmanager
def _record_failure(measurement: Measurement, index: int, alive: dict[int, WorkerProcess]) -> Iterator[None]:
    """Record a worker's error, and continue without it."""
    try:
        yield
    except WorkerError as error:
        measurement.error = str(error)
        alive.pop(index).close()


def measure_rounds(
    found: list[Measurement], job: Path, cases: dict[str, dict[str, Any]], rounds: int, warmup: dict[str, Any], show: ShowProgress
) -> None:
    """Measure all systems in turn, A B C, A B C, in each round; `warmup` changes the first round, which does not count."""
    with workers(found, job, show) as alive:
        for number in range(rounds + 1):
            show(f"round {number} of {rounds}" if number else "warming up")
            for case, command in cases.items():
                for index in list(alive):
                    with _record_failure(found[index], index, alive):
                        reply = alive[index].send(**(command if number else {**command, **warmup}))
                        if number:
                            found[index].add(case, reply)


def measure_losses(found: list[Measurement], job: Path, show: ShowProgress) -> None:
    """Record the losses of the systems that report them, one system after the other."""
    for measurement in found:
        if measurement.system.learns and not measurement.error:
            with workers([measurement], job, show) as alive:
                for worker in list(alive.values()):
                    with _record_failure(measurement, 0, alive):
                        measurement.losses = worker.send()["losses"]
