"""How often words stand near each other, counted in limited memory: 1 / distance for each two words of a line within a window.

A hash table takes counts until it is full; then they are sorted, written to disk as a run, and it starts again. Runs are merged
range by range. Windows are symmetric, so X_ij = X_ji, and only pairs with i <= j are kept. Words under the minimum count stand in
no one's way, as in the authors' program: distances are counted without them. The result depends on neither memory nor threads.
"""

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

LOOK_EVERY = 0.2  # seconds
STRETCH = 1 << 18  # words counted without a look at the world outside
SLOT = 44  # bytes for each slot of the table: 16 of its own, and what sorting those in use takes
FULL = 0.7  # share of slots in use at which a table is written out
TOGETHER = 1 << 22  # counts merged at once
BUCKET, MOST_BUCKETS = 1 << 18, 256  # pairs in a bucket at the most, as long as they are no more than so many
PAIR = np.dtype([("first", "<i4"), ("second", "<i4"), ("count", "<f4")])


class Numbers(Protocol):
    """A corpus as numbers of words, the most frequent first, with something negative between lines."""

    length: int

    def stretch(self, start: int, stop: int) -> np.ndarray:
        """Numbers from one place to another, int32."""


@dataclass
class Pairs:
    """Counts on disk, in buckets into which chance has put them."""

    folder: Path
    sizes: list[int]  # pairs in each bucket
    entries: int  # of the matrix X that are not zero: X_ij and X_ji count both

    def __len__(self) -> int:
        return sum(self.sizes)

    def bucket(self, number: int) -> np.ndarray:
        """All pairs of one bucket, as PAIR records."""
        return np.fromfile(self.folder / f"bucket-{number:03}", PAIR)


def count_pairs(
    corpus: Numbers,
    size: int,
    window: int,
    folder: Path,
    memory: float = 1.0,
    threads: int = 1,
    show: Callable[[float], None] = lambda words: None,
) -> Pairs:
    """Count pairs of the first `size` words in so many GiB of memory into a folder, which its owner deletes after an error."""
    slots = min(memory * 2**30 / SLOT / threads, 2 * corpus.length * window / FULL)  # no more than all pairs could take
    slots = 1 << (int(max(slots, 2 * window / FULL)).bit_length() - 1)
    portions = [_Portion(corpus, start, end) for start, end in itertools.pairwise(_bounds(corpus, threads))]
    stop = threading.Event()
    with ThreadPoolExecutor(threads) as pool:
        try:
            tasks = [
                pool.submit(_count, portion, size, window, slots, folder / f"run-{t}", stop) for t, portion in enumerate(portions)
            ]
            while (state := wait(tasks, LOOK_EVERY, FIRST_EXCEPTION)).not_done:
                _ = [task.result() for task in state.done]  # where one failed, this raises
                show(sum(portion.counted for portion in portions))
            runs = [run for task in tasks for run in task.result()]
        except BaseException:
            stop.set()
            raise
    buckets = min(1 + corpus.length * window // BUCKET, MOST_BUCKETS)
    pairs = _scatter(_merged(runs), buckets, size, folder)
    for run in runs:
        run.unlink()
    (folder / "pairs.json").write_text(json.dumps({"sizes": pairs.sizes, "entries": pairs.entries}))
    return pairs


def open_pairs(folder: Path) -> Pairs:
    """Pairs that were counted before."""
    return Pairs(folder, **json.loads((folder / "pairs.json").read_text()))


@dataclass
class _Portion:
    """A part of a corpus, and how much of it was counted."""

    corpus: Numbers
    start: int
    end: int
    counted: int = 0

    def stretches(self) -> Iterator[np.ndarray]:
        for start in range(self.start, self.end, STRETCH):
            stop = min(start + STRETCH, self.end)
            yield np.asarray(self.corpus.stretch(start, stop))
            self.counted = stop - self.start


def _bounds(corpus: Numbers, threads: int) -> list[int]:
    """Where each thread's part of the corpus begins and the last one ends; lines stay whole."""
    return [0, *(_line_end(corpus, corpus.length * t // threads) for t in range(1, threads)), corpus.length]


def _line_end(corpus: Numbers, place: int) -> int:
    while place < corpus.length:
        block = corpus.stretch(place, min(place + STRETCH, corpus.length))
        if (ends := np.flatnonzero(block < 0)).size:
            return place + int(ends[0])
        place += len(block)
    return corpus.length


def _count(portion: _Portion, size: int, window: int, slots: int, name: Path, stop: threading.Event) -> list[Path]:
    """Count one portion into runs."""
    from qkv.vectors.kernels.cooccurrence import add_pairs

    keys, sums = np.full(slots, -1, np.int64), np.zeros(slots, np.int64)
    recent, state = np.zeros(window, np.int64), np.zeros(2, np.int64)
    runs: list[Path] = []
    for ids in portion.stretches():
        place = 0
        while place < len(ids):
            if stop.is_set():
                return runs
            place = add_pairs(ids, place, size, recent, state, keys, sums, int(FULL * slots))
            if place < len(ids):
                runs.append(_spill(keys, sums, name.with_name(f"{name.name}-{len(runs)}")))
                state[1] = 0
    return [*runs, _spill(keys, sums, name.with_name(f"{name.name}-{len(runs)}"))]


def _spill(keys: np.ndarray, sums: np.ndarray, path: Path) -> Path:
    """Write what the table holds as a sorted run, keys and then sums, and empty it."""
    taken = np.flatnonzero(keys >= 0)
    taken = taken[np.argsort(keys[taken])]
    with path.open("wb") as file:
        file.write(keys[taken].data)
        file.write(sums[taken].data)
    keys.fill(-1)
    sums.fill(0)
    return path


def _merged(runs: list[Path]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Keys and sums of all runs together, sorted, a range of keys at a time."""
    mapped = [_run(path) for path in runs if path.stat().st_size]
    total = sum(len(keys) for keys, _ in mapped)
    # Ranges are about as long as they are asked to be if there are many more samples than ranges.
    step = max(1, TOGETHER // 64)
    samples = np.sort(np.concatenate([keys[::step] for keys, _ in mapped] or [np.zeros(0, np.int64)]))
    ranges = -(-total // TOGETHER)
    inner = sorted({int(samples[len(samples) * r // ranges]) for r in range(1, ranges)})
    for low, high in itertools.pairwise([0, *inner, np.iinfo(np.int64).max]):
        parts = [(keys, sums, *np.searchsorted(keys, [low, high])) for keys, sums in mapped]
        keys = np.concatenate([keys[a:b] for keys, _, a, b in parts] or [np.zeros(0, np.int64)])
        sums = np.concatenate([sums[a:b] for _, sums, a, b in parts] or [np.zeros(0, np.int64)])
        if len(keys):
            order = np.argsort(keys, kind="stable")
            firsts = np.flatnonzero(np.diff(keys[order], prepend=-1))
            yield keys[order][firsts], np.add.reduceat(sums[order], firsts)


def _run(path: Path) -> tuple[np.ndarray, np.ndarray]:
    count = path.stat().st_size // 16
    return np.memmap(path, "<i8", "r", 0, (count,)), np.memmap(path, "<i8", "r", 8 * count, (count,))


def _scatter(blocks: Iterator[tuple[np.ndarray, np.ndarray]], buckets: int, size: int, folder: Path) -> Pairs:
    """Put pairs into buckets without order; buckets one after the other then are a random order of all."""
    from qkv.vectors.kernels.cooccurrence import UNIT

    sizes, entries = np.zeros(buckets, np.int64), 0
    with contextlib.ExitStack() as stack:
        files: list[BinaryIO] = [stack.enter_context((folder / f"bucket-{n:03}").open("wb")) for n in range(buckets)]
        for keys, sums in blocks:
            pairs = np.empty(len(keys), PAIR)
            pairs["first"], pairs["second"], pairs["count"] = keys // size, keys % size, sums / UNIT
            sizes += _put(pairs, _mixed(keys) % np.uint64(buckets), files)
            entries += len(pairs) + int((pairs["first"] != pairs["second"]).sum())
    return Pairs(folder, sizes.tolist(), entries)


def _mixed(keys: np.ndarray) -> np.ndarray:
    """Numbers that look drawn by chance, but are the same for the same keys (the end of splitmix64)."""
    mixed = keys.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _put(pairs: np.ndarray, chosen: np.ndarray, files: list[BinaryIO]) -> np.ndarray:
    """Add pairs to the files that were chosen for them; how many each got."""
    sizes = np.bincount(chosen.astype(np.int64), minlength=len(files))
    pairs = pairs[np.argsort(chosen, kind="stable")]
    for file, end, size in zip(files, np.cumsum(sizes), sizes, strict=True):
        file.write(pairs[end - size : end].data)
    return sizes
