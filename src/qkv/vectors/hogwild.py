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
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from qkv.base.errors import CheckpointError, QkvError
from qkv.base.files import whole_folder
from qkv.vectors.tensors import map_tensors, write_tensors

SAVE_EVERY = 600  # seconds
LOOK_EVERY = 0.2
LINE_EVERY = 15
STATE, ABOUT = "state.safetensors", "about.json"


class Interrupted(QkvError):
    """Training that was stopped from outside after it was saved."""


class Kept:
    """What an interrupted training goes on from: a hidden folder beside the one that will hold the result."""

    def __init__(self, out: Path, about: dict):
        self.folder = out.with_name(f".{out.name}.training")
        self.about = json.loads(json.dumps(about))

    def save(self, arrays: dict[str, np.ndarray], done: int) -> None:
        with whole_folder(self.folder) as aside:
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

    def __init__(self, piece: Callable[[int], None], first: int, pieces: int, threads: int):
        self.piece, self.next, self.pieces = piece, first, pieces
        self.lock, self.stopped = threading.Lock(), False
        self.failed: BaseException | None = None
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]

    def _take(self) -> int | None:
        with self.lock:
            if self.stopped or self.next >= self.pieces:
                return None
            self.next += 1
            return self.next - 1

    def _work(self) -> None:
        try:
            while (number := self._take()) is not None:
                self.piece(number)
        except BaseException as error:
            self.failed, self.stopped = error, True

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether all work is done or was stopped."""
        self.threads[0].join(seconds)
        return not any(thread.is_alive() for thread in self.threads)

    def stop(self) -> None:
        """Let each thread finish the piece it has."""
        self.stopped = True
        for thread in self.threads:
            thread.join()
        if self.failed:
            raise self.failed


def train(
    arrays: dict[str, np.ndarray],
    piece: Callable[[int], None],
    pieces: int,
    words: int,
    threads: int,
    kept: Kept | None,
    quiet: bool = False,
) -> float:
    """Do all pieces of work, which count for so many words together; saves now and then. Words per second."""
    done = first = kept.load(arrays) if kept else 0
    begin, share = time.perf_counter(), words / pieces
    with _showing(words, quiet) as show:
        while done < pieces:
            crew = Crew(piece, done, pieces, threads)
            crew.start()
            try:
                _watch(crew, lambda at: show(at * share, (at - first) * share / (time.perf_counter() - begin)))
            except KeyboardInterrupt:
                crew.stop()
                if not kept:
                    raise
                kept.save(arrays, crew.next)
                raise Interrupted(
                    f"interrupted after {crew.next * share:,.0f} of {words:,} words; the same command goes on"
                ) from None
            crew.stop()
            done = crew.next
            if kept and done < pieces:
                kept.save(arrays, done)
    return (pieces - first) * share / max(time.perf_counter() - begin, 1e-9)


def _watch(crew: Crew, show: Callable[[int], None]) -> None:
    """Wait until all is done, or until it is time to save."""
    begin = time.monotonic()
    while not crew.wait(LOOK_EVERY) and time.monotonic() - begin < SAVE_EVERY:
        show(crew.next)


@contextlib.contextmanager
def _showing(words: int, quiet: bool) -> Iterator[Callable[[float, float], None]]:
    """A bar with words per second and the time left; where there is no terminal, a line now and then."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (TaskProgressColumn(), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    last = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("", total=words)

        def show(done: float, speed: float) -> None:
            nonlocal last
            bar.update(task, completed=done, description=f"{speed:,.0f} words/s")
            if not quiet and not console.is_terminal and time.monotonic() - last > LINE_EVERY:
                left = (words - done) / max(speed, 1)
                console.print(f"{done / words:.0%}  {speed:,.0f} words/s  {left:,.0f} s left", markup=False)
                last = time.monotonic()

        yield show
