"""Co-occurrence counts in limited memory: each pair of words of a line within the window counts 1 / distance.

A hash table collects counts until it is full; then they are sorted and written to disk as a run (external sorting). Runs are
merged range by range. Windows are symmetric, so X_ij = X_ji, and only pairs with i <= j are stored. Words below the minimum count
are removed before distances are measured, as in the authors' program. The result depends on neither memory nor threads.
"""

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from qkv.vectors.corpus import WordCorpus

POLL_EVERY = 0.2  # seconds
CHUNK = 1 << 18  # ids counted between two looks at the stop flag
SLOT_BYTES = 44  # per slot of the table: 16 of its own, the rest for sorting the slots in use
MAX_LOAD = 0.7  # share of slots in use at which a table is written out
MERGE_SIZE = 1 << 22  # counts merged at once
BUCKET_PAIRS, MAX_BUCKETS = 1 << 18, 256  # target size of a bucket, unless that makes too many buckets
PAIR = np.dtype([("first", "<i4"), ("second", "<i4"), ("count", "<f4")])


@dataclass
class CooccurrenceCounts:
    """Co-occurrence counts on disk, in buckets that each hold a random sample of the pairs."""

    folder: Path
    sizes: list[int]  # pairs in each bucket
    entries: int  # nonzero entries of the matrix X, where X_ij and X_ji count both

    def __len__(self) -> int:
        return sum(self.sizes)

    def bucket(self, number: int) -> np.ndarray:
        """Read the pairs of one bucket, as PAIR records."""
        return np.fromfile(self.folder / f"bucket-{number:03}", PAIR)


def count_cooccurrences(
    corpus: WordCorpus,
    vocab: int,
    window: int,
    folder: Path,
    memory: float = 1.0,
    threads: int = 1,
    show: Callable[[float], None] = lambda words: None,
) -> CooccurrenceCounts:
    """Count pairs of the first `vocab` words into a folder, using `memory` GiB; after an error the caller deletes the folder."""
    slots = min(memory * 2**30 / SLOT_BYTES / threads, 2 * corpus.length * window / MAX_LOAD)  # no more than all pairs need
    slots = 1 << (int(max(slots, 2 * window / MAX_LOAD)).bit_length() - 1)
    parts = [_CorpusPart(corpus, start, end) for start, end in itertools.pairwise(_part_bounds(corpus, threads))]
    stop = threading.Event()
    with ThreadPoolExecutor(threads) as pool:
        try:
            tasks = [
                pool.submit(_count_part, part, vocab, window, slots, folder / f"run-{t}", stop) for t, part in enumerate(parts)
            ]
            while (state := wait(tasks, POLL_EVERY, FIRST_EXCEPTION)).not_done:
                _ = [task.result() for task in state.done]  # raises if one has failed
                show(sum(part.counted for part in parts))
            runs = [run for task in tasks for run in task.result()]
        except BaseException:
            stop.set()
            raise
    buckets = min(1 + corpus.length * window // BUCKET_PAIRS, MAX_BUCKETS)
    counts = _scatter(_merge_runs(runs), buckets, vocab, folder)
    for run in runs:
        run.unlink()
    (folder / "pairs.json").write_text(json.dumps({"sizes": counts.sizes, "entries": counts.entries}))
    return counts


def open_cooccurrences(folder: Path) -> CooccurrenceCounts:
    """Open counts that `count_cooccurrences` wrote."""
    return CooccurrenceCounts(folder, **json.loads((folder / "pairs.json").read_text()))


@dataclass
class _CorpusPart:
    """One thread's part of a corpus, and how many of its ids are counted."""

    corpus: WordCorpus
    start: int
    end: int
    counted: int = 0

    def chunks(self) -> Iterator[np.ndarray]:
        for start in range(self.start, self.end, CHUNK):
            stop = min(start + CHUNK, self.end)
            yield np.asarray(self.corpus.ids(start, stop))
            self.counted = stop - self.start


def _part_bounds(corpus: WordCorpus, threads: int) -> list[int]:
    """Split the corpus at line ends into a part per thread; return the first start and all ends."""
    bounds = [0]
    for t in range(1, threads):
        position = corpus.length * t // threads
        while position < corpus.length:
            chunk = corpus.ids(position, min(position + CHUNK, corpus.length))
            if (line_ends := np.flatnonzero(chunk < 0)).size:
                position += int(line_ends[0])
                break
            position += len(chunk)
        bounds.append(position)
    return [*bounds, corpus.length]


def _count_part(part: _CorpusPart, vocab: int, window: int, slots: int, name: Path, stop: threading.Event) -> list[Path]:
    """Count one part of the corpus into runs."""
    from qkv.vectors.kernels.cooccurrence import count_window_pairs

    keys, sums = np.full(slots, -1, np.int64), np.zeros(slots, np.int64)
    recent, state = np.zeros(window, np.int64), np.zeros(2, np.int64)
    runs: list[Path] = []
    for ids in part.chunks():
        position = 0
        while position < len(ids):
            if stop.is_set():
                return runs
            position = count_window_pairs(ids, position, vocab, recent, state, keys, sums, int(MAX_LOAD * slots))
            if position < len(ids):
                runs.append(_write_run(keys, sums, name.with_name(f"{name.name}-{len(runs)}")))
                state[1] = 0
    return [*runs, _write_run(keys, sums, name.with_name(f"{name.name}-{len(runs)}"))]


def _write_run(keys: np.ndarray, sums: np.ndarray, path: Path) -> Path:
    """Write the table as a sorted run, keys and then sums, and empty it."""
    used = np.flatnonzero(keys >= 0)
    used = used[np.argsort(keys[used])]
    with path.open("wb") as file:
        file.write(keys[used].data)
        file.write(sums[used].data)
    keys.fill(-1)
    sums.fill(0)
    return path


def _merge_runs(runs: list[Path]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the keys and sums of all runs together, sorted, a range of keys at a time."""
    mapped = []
    for path in runs:
        if count := path.stat().st_size // 16:
            mapped.append((np.memmap(path, "<i8", "r", 0, (count,)), np.memmap(path, "<i8", "r", 8 * count, (count,))))
    total = sum(len(keys) for keys, _ in mapped)
    # Many more samples than ranges make the ranges about MERGE_SIZE long.
    step = max(1, MERGE_SIZE // 64)
    samples = np.sort(np.concatenate([keys[::step] for keys, _ in mapped] or [np.zeros(0, np.int64)]))
    ranges = -(-total // MERGE_SIZE)
    inner = sorted({int(samples[len(samples) * r // ranges]) for r in range(1, ranges)})
    for low, high in itertools.pairwise([0, *inner, np.iinfo(np.int64).max]):
        slices = [(keys, sums, *np.searchsorted(keys, [low, high])) for keys, sums in mapped]
        keys = np.concatenate([keys[a:b] for keys, _, a, b in slices] or [np.zeros(0, np.int64)])
        sums = np.concatenate([sums[a:b] for _, sums, a, b in slices] or [np.zeros(0, np.int64)])
        if len(keys):
            order = np.argsort(keys, kind="stable")
            firsts = np.flatnonzero(np.diff(keys[order], prepend=-1))
            yield keys[order][firsts], np.add.reduceat(sums[order], firsts)


def _scatter(blocks: Iterator[tuple[np.ndarray, np.ndarray]], buckets: int, vocab: int, folder: Path) -> CooccurrenceCounts:
    """Scatter pairs over buckets by a hash; reading one bucket after another then is a random order of all pairs."""
    from qkv.vectors.kernels.cooccurrence import ONE

    sizes, entries = np.zeros(buckets, np.int64), 0
    with contextlib.ExitStack() as stack:
        files: list[BinaryIO] = [stack.enter_context((folder / f"bucket-{n:03}").open("wb")) for n in range(buckets)]
        for keys, sums in blocks:
            pairs = np.empty(len(keys), PAIR)
            pairs["first"], pairs["second"], pairs["count"] = keys // vocab, keys % vocab, sums / ONE
            sizes += _append_to_buckets(pairs, _mix(keys) % np.uint64(buckets), files)
            entries += len(pairs) + int((pairs["first"] != pairs["second"]).sum())
    return CooccurrenceCounts(folder, sizes.tolist(), entries)


def _mix(keys: np.ndarray) -> np.ndarray:
    """Hash keys to uniform 64-bit numbers (the finaliser of splitmix64)."""
    mixed = keys.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _append_to_buckets(pairs: np.ndarray, chosen: np.ndarray, files: list[BinaryIO]) -> np.ndarray:
    """Append each pair to its chosen file; return how many each file got."""
    sizes = np.bincount(chosen.astype(np.int64), minlength=len(files))
    pairs = pairs[np.argsort(chosen, kind="stable")]
    for file, end, size in zip(files, np.cumsum(sizes), sizes, strict=True):
        file.write(pairs[end - size : end].data)
    return sizes
