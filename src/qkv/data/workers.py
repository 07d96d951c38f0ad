"""Worker processes that make parts of the cache: each is given what they share once, then one task after the other, in JSON.

A maker is a class that is built from the shared values and called with a task; it writes its result into the cache.
`python -m qkv.data.workers` is a worker.
"""

import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from qkv.base import errors
from qkv.base.errors import DataError, QkvError

Maker = Callable[[dict[str, Any]], dict[str, Any]]
WORKERS = "QKV_WORKERS"  # variable with the number of processes
SMALL = 8 << 20  # bytes, less than which is done sooner than processes start
SAY_EVERY = 30.0  # seconds, where there is no terminal


class Work:
    """How tasks are done: by how many processes, and who hears of their progress."""

    def __init__(self, processes: int | None = None, quiet: bool = True, say: Callable[[str], None] | None = None):
        given = os.environ.get(WORKERS, "")
        self.processes = processes or (int(given) if given.isdecimal() else 0) or len(os.sched_getaffinity(0))
        self.quiet, self.say = quiet, say

    def run(self, maker: type, shared: dict[str, Any], tasks: Sequence[dict[str, Any]], what: str, unit: str) -> None:
        """Do all tasks, in this process if they are small; the first error ends the work, what was done stays.

        The `size` of a task is in bytes of text.
        """
        with _Shown(self, what, unit, len(tasks)) as shown:
            if len(tasks) < 2 or self.processes < 2 or sum(task["size"] for task in tasks) < SMALL:
                make: Maker = maker(**shared)
                for task in tasks:
                    shown.add(make(task))
            else:
                _run_in_processes(min(self.processes, len(tasks)), maker, shared, tasks, shown)


class _Shown:
    """Progress of tasks: a bar on a terminal, else a line from time to time."""

    def __init__(self, work: Work, what: str, unit: str, total: int):
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
        hidden = work.quiet or not console.is_terminal or total < 2
        self.bar = Progress(*columns, console=console, transient=True, disable=hidden)
        self.what, self.unit, self.total, self.say = what, unit, total, work.say
        self.task = self.bar.add_task(what, total=total)
        self.done = self.items = 0
        self.begun = self.said = time.monotonic()

    def __enter__(self) -> "_Shown":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def add(self, result: dict[str, Any]) -> None:
        self.done += 1
        self.items += result["items"]
        passed = time.monotonic() - self.begun
        rate = f"{self.items / max(passed, 1e-3):,.0f} {self.unit}/s"
        self.bar.update(self.task, advance=1, description=f"{self.what}, {rate}")
        if self.say is not None and (time.monotonic() - self.said > SAY_EVERY or self.done == self.total > 1):
            left = passed / self.done * (self.total - self.done)
            self.say(
                f"{self.what}: {self.done:,} of {self.total:,} pieces, {self.items:,} {self.unit}, {rate}, {left:,.0f} s left"
            )
            self.said = time.monotonic()


def _run_in_processes(count: int, maker: type, shared: dict[str, Any], tasks: Sequence[dict[str, Any]], shown: _Shown) -> None:
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    results: queue.SimpleQueue[dict[str, Any] | QkvError] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    # One thread of numbers and tokenizers each: the processes share the cores.
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "qkv.data.workers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(count)
    ]
    beginning = {"maker": [maker.__module__, maker.__qualname__], "shared": shared}
    threads = [threading.Thread(target=_serve, args=(worker, beginning, waiting, results), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        for _ in tasks:
            result = results.get()
            if isinstance(result, QkvError):
                raise result
            shown.add(result)
    finally:
        for worker in workers:
            worker.kill()  # one that is done waits for its input
            worker.communicate()


def _serve(worker: Any, beginning: dict[str, Any], waiting: Any, results: Any) -> None:
    """Give a worker one task after the other; hand on its results, or the error."""
    message: dict[str, Any] = beginning
    while True:
        try:
            worker.stdin.write(json.dumps(message) + "\n")
            worker.stdin.flush()
            answer = worker.stdout.readline()
        except (OSError, ValueError):
            answer = ""
        if not answer:
            results.put(
                DataError(f"a worker process ended (status {worker.wait()}); run the same command again, nothing is lost")
            )
            return
        result = json.loads(answer)
        if "error" in result:
            kind = getattr(errors, result["error"], QkvError)
            results.put(kind(result["message"]))
            return
        if message is not beginning:
            results.put(result)
        try:
            message = waiting.get_nowait()
        except queue.Empty:
            return


def main() -> None:
    """Read what the tasks share, then tasks, and answer each; end with the input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that gives the tasks decides when to end
    answers, sys.stdout = sys.stdout, sys.stderr
    make: Maker | None = None
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if make is None:
                module, name = message["maker"]
                make = getattr(importlib.import_module(module), name)(**message["shared"])
                result: dict[str, Any] = {}
            else:
                result = make(message)
        except QkvError as error:
            result = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
