"""How parts of the cache are made: by which workers, how many of them, and who hears of their progress.

A maker is a class that is built from the values that all tasks share, and called with a task; it writes into the cache.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from qkv.base.errors import DataError
from qkv.base.hardware import cpu_cores
from qkv.base.pool import LocalWorkers, Workers, run_tasks

Maker = Callable[[dict[str, Any]], dict[str, Any]]
WORKERS = "QKV_WORKERS"  # variable with the number of processes
SMALL = 8 << 20  # bytes, less than which is done sooner than processes start
SAY_EVERY = 30.0  # seconds, where there is no terminal


class Work:
    """How tasks are done: by how many processes, of which kind, and who hears of their progress."""

    def __init__(
        self,
        processes: int | None = None,
        quiet: bool = True,
        say: Callable[[str], None] | None = None,
        workers: Callable[..., Workers] = LocalWorkers,
    ):
        given = os.environ.get(WORKERS, "")
        self.processes = processes or (int(given) if given.isdecimal() else 0) or cpu_cores()
        self.quiet, self.say, self.workers = quiet, say, workers

    def run(self, maker: type, shared: dict[str, Any], tasks: Sequence[dict[str, Any]], what: str, unit: str) -> None:
        """Do all tasks, in this process if they are small; the first error ends the work, what was done stays.

        The `size` of a task is in bytes of text.
        """
        with _Shown(self, what, unit, len(tasks)) as shown:
            here = self.workers is LocalWorkers and (self.processes < 2 or sum(task["size"] for task in tasks) < SMALL)
            if len(tasks) < 2 or here:
                make: Maker = maker(**shared)
                for task in tasks:
                    shown.add(make(task))
                return
            # One thread of numbers and tokenizers each: the processes share the cores.
            variables = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
            if "QKV_CACHE" in os.environ:  # a worker on another machine has an environment of its own
                variables["QKV_CACHE"] = os.environ["QKV_CACHE"]
            workers = self.workers(f"{maker.__module__}:{maker.__qualname__}", shared, variables=variables)
            for _, result, lost in run_tasks(workers, self.processes, [{"task": task} for task in tasks]):
                if lost:
                    raise DataError(f"{lost}; run the same command again with fewer --workers, nothing is lost")
                shown.add(result)


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
