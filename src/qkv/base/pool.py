"""A pool of workers that do tasks: a worker that dies is replaced, and its task is done again by another.

The pool knows nothing of what is done (see worker.py) and little of where: workers are processes of this machine (LocalWorkers)
or actors of a Ray cluster (distributed/ray_workers.py).
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import warnings
from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from qkv.base import errors

MOST_DEATHS = 3  # of workers at the same task, or in a row while they start; then it is given up


class WorkerEvent(NamedTuple):
    """An answer of a worker, or its death. The first answer says that it is set up."""

    worker: int
    answer: str | None  # None if it has died
    reason: str = ""  # of its death


class Workers(Protocol):
    """Workers of one kind, all set up for the same work."""

    def start(self) -> int:
        """Start a worker, and return its number; no number is used twice."""
        ...

    def send(self, worker: int, task: str) -> None:
        """Give a task to a worker that has answered everything before."""
        ...

    def wait(self) -> list[WorkerEvent]:
        """Wait until a worker answers or dies."""
        ...

    def close(self) -> None:
        """End all workers, also in the middle of a task."""
        ...


class TaskResult(NamedTuple):
    """The result of a task; `lost` says why there is none: all workers that were given it died."""

    task: int
    result: Any
    lost: str = ""


def run_tasks(workers: Workers, count: int, tasks: Sequence[dict[str, Any]]) -> Generator[TaskResult]:
    """Yield the results of tasks as `count` workers finish them, in any order; an error of the work ends all.

    Warnings of the work are given once each, in this process.
    """
    pending, running, idle = deque(range(len(tasks))), dict[int, int](), list[int]()
    ready = set[int]()  # workers that are set up
    deaths, early_deaths, warned = Counter[int](), 0, set[str]()
    try:
        for _ in range(min(count, len(tasks))):
            workers.start()
        while pending or running:
            for worker, answer, reason in workers.wait():
                task = running.pop(worker, None)
                if answer is not None:
                    result = _read_answer(answer, warned)
                    early_deaths = 0
                    ready.add(worker)
                    idle.append(worker)
                    if task is not None:
                        yield TaskResult(task, result)
                    continue
                idle = [one for one in idle if one != worker]
                if task is None:
                    early_deaths += worker not in ready
                    if early_deaths == MOST_DEATHS:
                        raise errors.QkvError(f"{MOST_DEATHS} workers died before they did anything: {reason}")
                else:
                    deaths[task] += 1
                    if deaths[task] < MOST_DEATHS:
                        pending.appendleft(task)
                    else:
                        yield TaskResult(task, None, f"{MOST_DEATHS} workers died at it ({reason})")
                if pending or running:
                    workers.start()
            while idle and pending:
                worker = idle.pop()
                running[worker] = pending.popleft()
                workers.send(worker, json.dumps(tasks[running[worker]]))
    finally:
        workers.close()


def _read_answer(line: str, warned: set[str]) -> Any:
    """Return the result in an answer, and give the warnings that are new; raise the error in it."""
    found = json.loads(line)
    for message in found["warnings"]:
        if message not in warned:
            warned.add(message)
            warnings.warn(message, errors.QkvWarning, stacklevel=3)
    if "error" in found:
        raise getattr(errors, found["kind"], errors.QkvError)(found["error"])
    if "bug" in found:
        raise RuntimeError(f"a worker failed:\n{found['bug']}")
    return found["result"]


class LocalWorkers:
    """Workers that are processes of this machine; each sees one of the `gpus`, named as in CUDA_VISIBLE_DEVICES.

    `variables` are added to their environment.
    """

    def __init__(self, work: str, setup: dict[str, Any], gpus: Sequence[str] = (), variables: Mapping[str, str] | None = None):
        self.first_line, self.gpus, self.variables = json.dumps({"work": work, "setup": setup}), gpus, dict(variables or {})
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self.readers: dict[int, threading.Thread] = {}
        self.gpu_of: dict[int, str] = {}
        self.started = 0
        self.events: queue.Queue[WorkerEvent] = queue.Queue()

    def start(self) -> int:
        worker = self.started
        self.started += 1
        # It finds the same modules; -P keeps it from finding those of the current folder first.
        environment = {**os.environ, **self.variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        if self.gpus:
            self.gpu_of[worker] = min(self.gpus, key=list(self.gpu_of.values()).count)
            environment["CUDA_VISIBLE_DEVICES"] = self.gpu_of[worker]
        command = [sys.executable, "-P", "-m", "qkv.base.worker"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment
        )
        self.processes[worker] = process
        self.readers[worker] = threading.Thread(target=self._read, args=(worker, process), daemon=True)
        self.readers[worker].start()
        self.send(worker, self.first_line)
        return worker

    def send(self, worker: int, task: str) -> None:
        stream = self.processes[worker].stdin
        assert stream is not None
        with contextlib.suppress(OSError):  # it has died, which the reader of its answers sees too
            stream.write(f"{task}\n")
            stream.flush()

    def wait(self) -> list[WorkerEvent]:
        event = self.events.get()
        if event.answer is None:
            self._forget(event.worker)
        return [event]

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
        for worker in list(self.processes):
            self._forget(worker)

    def _read(self, worker: int, process: "subprocess.Popen[str]") -> None:
        """Pass on the answers of a worker, then its end."""
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.events.put(WorkerEvent(worker, line))
        code = process.wait()
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        self.events.put(WorkerEvent(worker, None, f"{how}; is there enough memory?"))

    def _forget(self, worker: int) -> None:
        process = self.processes.pop(worker)
        self.readers.pop(worker).join()
        with contextlib.suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        self.gpu_of.pop(worker, None)
