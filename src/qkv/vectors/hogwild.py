"""Threads that train together on one set of arrays without locks (Recht et al. 2011), and can be interrupted.

Work is numbered, and everything random about a piece of it comes from its number; so with one thread a resumed training is the
uninterrupted one, bit for bit.
"""

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from qkv.base.errors import CheckpointError, QkvError
from qkv.base.files import atomic_folder
from qkv.vectors.tensors import map_tensors, write_tensors

SAVE_EVERY = 600  # seconds
LOOK_EVERY = 0.2
LINE_EVERY = 15
STATE, ABOUT = "state.safetensors", "about.json"


@dataclass(frozen=True)
class Work:
    """Numbered pieces of work, and what all of them count for together."""

    piece: Callable[[int], None]
    pieces: int
    amount: int
    unit: str  # that the amount is told in


class Interrupted(QkvError):
    """Training that was stopped from outside after it was saved."""


class Kept:
    """What an interrupted training goes on from: a hidden folder beside the one that will hold the result."""

    def __init__(self, out: Path, about: dict):
        self.folder = out.with_name(f".{out.name}.training")
        self.about = json.loads(json.dumps(about))

    def save(self, arrays: dict[str, np.ndarray], done: int) -> None:
        with atomic_folder(self.folder) as aside:
            write_tensors(aside / STATE, arrays, {"done": str(done)})
            (aside / ABOUT).write_text(json.dumps(self.about, indent=1))

    def load(self, arrays: dict[str, np.ndarray]) -> int:
        """Fill the arrays with what was saved, if anything was; how much work was done by then."""
        if not (self.folder / ABOUT).exists():
            return 0
        before = json.loads((self.folder / ABOUT).read_text())
        if changed := [key for key in self.about if before.get(key) != self.about[key]]:
            was, now = before.get(changed[0]), self.about[changed[0]]
            what = "other text" if changed[0] == "corpus" else f"{changed[0]} {was}, not {now}"
            raise CheckpointError(f"{self.folder}: an interrupted training with {what}; go on with that, or delete this folder")
        tensors, notes = map_tensors(self.folder / STATE)
        for name, array in arrays.items():
            array[:] = tensors[name]
        return int(notes["done"])

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Crew:
    """Threads that take pieces of work in order."""

    def __init__(self, work: Work, first: int, threads: int):
        self.work, self.next = work, first
        self.lock, self.stopped = threading.Lock(), False
        self.failed: BaseException | None = None
        self.working, self.ended = threads, threading.Event()

    def _take(self) -> int | None:
        with self.lock:
            if self.stopped or self.next >= self.work.pieces:
                return None
            self.next += 1
            return self.next - 1

    def _work(self) -> None:
        try:
            while (number := self._take()) is not None:
                self.work.piece(number)
        except BaseException as error:
            self.failed, self.stopped = error, True
        with self.lock:
            self.working -= 1
            if not self.working:
                self.ended.set()

    def start(self) -> None:
        for _ in range(self.working):
            threading.Thread(target=self._work, daemon=True).start()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether all work is done or was stopped."""
        # Not Thread.join: a Ctrl-C during it makes Python before 3.13 take a thread that works for one that has ended.
        return self.ended.wait(seconds)

    def stop(self) -> None:
        """Let each thread finish the piece it has."""
        self.stopped = True
        self.wait()
        if self.failed:
            raise self.failed


def train(work: Work, arrays: dict[str, np.ndarray], threads: int, kept: Kept | None, quiet: bool = False) -> float:
    """Do all of the work on these arrays, which are saved now and then; how much of its unit a second."""
    done = first = kept.load(arrays) if kept else 0
    begin, share = time.perf_counter(), work.amount / work.pieces
    with showing(work.amount, work.unit, quiet, first * share) as show:
        while done < work.pieces:
            crew = Crew(work, done, threads)
            crew.start()
            try:
                _watch(crew, lambda at: show(at * share))
            except KeyboardInterrupt:
                crew.stop()
                if not kept:
                    raise
                kept.save(arrays, crew.next)
                so_far = f"{crew.next * share:,.0f} of {work.amount:,} {work.unit}"
                raise Interrupted(f"interrupted after {so_far}; the same command goes on") from None
            crew.stop()
            done = crew.next
            if kept and done < work.pieces:
                kept.save(arrays, done)
    return (work.pieces - first) * share / max(time.perf_counter() - begin, 1e-9)


def _watch(crew: Crew, show: Callable[[int], None]) -> None:
    """Wait until all is done, or until it is time to save."""
    begin = time.monotonic()
    while not crew.wait(LOOK_EVERY) and time.monotonic() - begin < SAVE_EVERY:
        show(crew.next)


@contextlib.contextmanager
def showing(amount: int, unit: str, quiet: bool, first: float = 0) -> Iterator[Callable[[float], None]]:
    """A bar with the speed since the first part and the time left; where there is no terminal, a line now and then."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (TaskProgressColumn(), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    begin = last = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("", total=amount)

        def show(done: float) -> None:
            nonlocal last
            now = time.monotonic()
            speed = (done - first) / max(now - begin, 1e-9)
            bar.update(task, completed=done, description=f"{speed:,.0f} {unit}/s")
            if not quiet and not console.is_terminal and now - last > LINE_EVERY:
                left = (amount - done) / max(speed, 1)
                console.print(f"{done / amount:.0%}  {speed:,.0f} {unit}/s  {left:,.0f} s left", markup=False)
                last = now

        yield show
