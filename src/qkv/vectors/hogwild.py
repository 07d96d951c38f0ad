"""Lock-free training by several threads on shared arrays (Hogwild, Recht et al. 2011) that can be interrupted and resumed.

A task is cut into numbered chunks, and everything random in a chunk depends on its number; so with one thread a resumed training
equals the uninterrupted one bit for bit.
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
from qkv.vectors.snapshots import VectorSnapshotWriter
from qkv.vectors.tensors import map_tensors, write_tensors

SAVE_EVERY = 600  # seconds
POLL_EVERY = 0.2
LINE_EVERY = 15
STATE, SETTINGS = "state.safetensors", "about.json"


@dataclass(frozen=True)
class HogwildTask:
    """Training work cut into numbered chunks."""

    train_chunk: Callable[[int], None]
    chunks: int
    amount: int  # of all chunks together, in `unit`
    unit: str  # words or entries, for the progress bar


class TrainingInterrupted(QkvError):
    """Raised after an interrupted training was saved."""


class HogwildCheckpoint:
    """The state of an unfinished training, in a hidden folder beside the folder of the result."""

    def __init__(self, out: Path, settings: dict):
        self.folder = out.with_name(f".{out.name}.training")
        self.settings = json.loads(json.dumps(settings))

    def save(self, arrays: dict[str, np.ndarray], done: int) -> None:
        """Write the arrays and the number of finished chunks."""
        with atomic_folder(self.folder) as aside:
            write_tensors(aside / STATE, arrays, {"done": str(done)})
            (aside / SETTINGS).write_text(json.dumps(self.settings, indent=1))

    def load(self, arrays: dict[str, np.ndarray]) -> int:
        """Fill the arrays from the saved state, if there is one; return the number of finished chunks."""
        if not (self.folder / SETTINGS).exists():
            return 0
        saved = json.loads((self.folder / SETTINGS).read_text())
        if changed := [key for key in self.settings if saved.get(key) != self.settings[key]]:
            old, new = saved.get(changed[0]), self.settings[changed[0]]
            what = "other text" if changed[0] == "corpus" else f"{changed[0]} {old}, not {new}"
            raise CheckpointError(f"{self.folder}: an interrupted training with {what}; continue that one, or delete this folder")
        tensors, metadata = map_tensors(self.folder / STATE)
        for name, array in arrays.items():
            array[:] = tensors[name]
        return int(metadata["done"])

    def delete(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class WorkerPool:
    """Threads that take chunks of a task in order, from `first` to the one before `end`."""

    def __init__(self, task: HogwildTask, first: int, threads: int, end: int | None = None):
        self.task, self.next, self.end = task, first, task.chunks if end is None else end
        self.lock, self.stopped = threading.Lock(), False
        self.error: BaseException | None = None
        self.running, self.ended = threads, threading.Event()

    def start(self) -> None:
        """Start the threads."""
        for _ in range(self.running):
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        try:
            while (chunk := self._take()) is not None:
                self.task.train_chunk(chunk)
        except BaseException as error:
            self.error, self.stopped = error, True
        with self.lock:
            self.running -= 1
            if not self.running:
                self.ended.set()

    def _take(self) -> int | None:
        """Return the number of the next chunk, or None when there is none left."""
        with self.lock:
            if self.stopped or self.next >= self.end:
                return None
            self.next += 1
            return self.next - 1

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the threads to end; return whether they have."""
        # Not Thread.join: a Ctrl-C during it makes Python before 3.13 mistake a running thread for an ended one.
        return self.ended.wait(seconds)

    def stop(self) -> None:
        """Let each thread finish its chunk, then raise the first error."""
        self.stopped = True
        self.wait()
        if self.error:
            raise self.error


def train_hogwild(
    task: HogwildTask,
    arrays: dict[str, np.ndarray],
    threads: int,
    checkpoint: HogwildCheckpoint | None,
    quiet: bool = False,
    snapshots: VectorSnapshotWriter | None = None,
) -> float:
    """Train all remaining chunks on the shared arrays, saving now and then; return the speed in units per second.

    Threads wait for each other where a snapshot is made.
    """
    done = first = checkpoint.load(arrays) if checkpoint else 0
    begin, per_chunk = time.perf_counter(), task.amount / task.chunks
    if snapshots:
        snapshots.start(done)
    saved = time.monotonic()
    with progress_bar(task.amount, task.unit, quiet, first * per_chunk) as show:
        while done < task.chunks:
            pool = WorkerPool(task, done, threads, snapshots.next_step(done) if snapshots else None)
            pool.start()
            try:
                _wait_until_save(pool, saved + SAVE_EVERY, lambda chunk: show(chunk * per_chunk))
            except KeyboardInterrupt:
                pool.stop()
                if not checkpoint:
                    raise
                checkpoint.save(arrays, pool.next)
                so_far = f"{pool.next * per_chunk:,.0f} of {task.amount:,} {task.unit}"
                raise TrainingInterrupted(f"interrupted after {so_far}; run the same command to continue") from None
            pool.stop()
            done = pool.next
            if snapshots:
                snapshots.write(done)
            if checkpoint and done < task.chunks and time.monotonic() - saved >= SAVE_EVERY:
                checkpoint.save(arrays, done)
                saved = time.monotonic()
    return (task.chunks - first) * per_chunk / max(time.perf_counter() - begin, 1e-9)


def _wait_until_save(pool: WorkerPool, save_at: float, show: Callable[[int], None]) -> None:
    """Show progress until all chunks are done or it is time to save."""
    while not pool.wait(POLL_EVERY) and time.monotonic() < save_at:
        show(pool.next)


@contextlib.contextmanager
def progress_bar(amount: int, unit: str, quiet: bool, first: float = 0) -> Iterator[Callable[[float], None]]:
    """Show a bar with speed and time left, or a line now and then without a terminal; yields the function that updates it."""
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
