"""Workers in processes of their own, and rounds in which each has its turn, so that a busy moment of the machine meets all."""

import contextlib
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qkv.bench.catalogue import System


class WorkerError(Exception):
    """A system that cannot go on; the others can."""


class Worker:
    """The parent's end of a worker: a command in, an answer out."""

    def __init__(self, system: System, job: Path):
        self.system = system
        self.log = job / f"{system.file}-{id(system)}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                system.command(job), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ)
            )

    def ready(self) -> str:
        """Wait until it has made its model. -> its version."""
        return str(self._answer()["ready"])

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._last_words()) from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise WorkerError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def _last_words(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return f"ended with code {self.process.wait()}" + (f": {lines[-1].strip()[:300]}" if lines else "")

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe and pipe.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass
class Measured:
    """What was found of one system."""

    system: System
    version: str = ""
    rates: dict[str, list[float]] = field(default_factory=dict)  # of each case, one for each round
    memory: dict[str, int] = field(default_factory=dict)  # of each case, in bytes, at most
    losses: list[float] = field(default_factory=list)  # of each update, on text that can be learned
    error: str = ""  # why it is not, or not wholly, measured

    def add(self, case: str, answer: dict[str, Any]) -> None:
        self.rates.setdefault(case, []).append(answer["rate"])
        self.memory[case] = max(self.memory.get(case, 0), answer["memory"])

    def spread(self, case: str) -> tuple[float, float, float] | None:
        """Median, lowest and highest rate."""
        rates = self.rates.get(case)
        return (statistics.median(rates), min(rates), max(rates)) if rates else None


Say = Callable[[str], None]


@contextlib.contextmanager
def workers(found: list[Measured], job: Path, say: Say) -> Iterator[dict[int, Worker]]:
    """A worker for each system, by its place in the list; those that do not come up have their error noted."""
    alive: dict[int, Worker] = {}
    try:
        # One after the other: the memory and time that one takes to start must not fail another.
        for position, measured in enumerate(found):
            say(f"starting {measured.system.label}")
            alive[position] = Worker(measured.system, job)
            with _noting(measured, position, alive):
                measured.version = alive[position].ready()
        yield alive
    finally:
        for worker in alive.values():
            worker.close()


@contextlib.contextmanager
def _noting(measured: Measured, position: int, alive: dict[int, Worker]) -> Iterator[None]:
    """Note what goes wrong with a worker, and go on without it."""
    try:
        yield
    except WorkerError as error:
        measured.error = str(error)
        alive.pop(position).close()


def interleave(
    found: list[Measured], job: Path, cases: dict[str, dict[str, Any]], rounds: int, warm: dict[str, Any], say: Say
) -> None:
    """Round 1: A B C, round 2: A B C, and so on, for each case; `warm` changes the first, which does not count."""
    with workers(found, job, say) as alive:
        for number in range(rounds + 1):
            say(f"round {number} of {rounds}" if number else "warming up")
            for case, command in cases.items():
                for position in list(alive):
                    with _noting(found[position], position, alive):
                        answer = alive[position].ask(**(command if number else {**command, **warm}))
                        if number:
                            found[position].add(case, answer)


def learn(found: list[Measured], job: Path, say: Say) -> None:
    """The losses of those systems that give them, one after the other."""
    for measured in found:
        if measured.system.learns and not measured.error:
            with workers([measured], job, say) as alive:
                for worker in list(alive.values()):
                    with _noting(measured, 0, alive):
                        measured.losses = worker.ask()["losses"]
