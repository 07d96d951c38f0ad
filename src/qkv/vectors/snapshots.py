"""Snapshots of word vectors through training: the most frequent words, in half precision, at log-spaced times."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_file
from qkv.base.snapshots import SNAPSHOTS, delete_other_snapshots, log_spaced_steps, snapshot_files, snapshot_path, snapshot_steps
from qkv.vectors.tensors import map_tensors, write_tensors
from qkv.vectors.word_vectors import MissingWord, WordVectors

MAX_WORDS = 10_000  # of a snapshot: 2 MB at 100 numbers each
MATRIX, SHARE = "matrix", "share"


class VectorSnapshotWriter:
    """Writes snapshots beside the folder of the result, and moves them into it at the end. A step is a chunk of the task."""

    def __init__(self, out: Path, count: int, chunks: int, vectors: Callable[[int], np.ndarray]):
        self.out, self.count, self.chunks, self.vectors = out, count, chunks, vectors
        self.folder = out.with_name(f".{out.name}.snapshots")

    def start(self, done: int) -> None:
        """Forget snapshots after the chunks that are done; write the one that is due now: training may have stopped before it."""
        delete_other_snapshots(self.folder, [step for step in snapshot_files(self.folder) if step <= done and done])
        self.write(done)

    def next_step(self, done: int) -> int:
        """Return the next number of chunks at which a snapshot is made."""
        return next((step for step in log_spaced_steps(self.count, self.chunks) if step > done), self.chunks)

    def write(self, done: int) -> None:
        """Write the vectors after `done` chunks, if a snapshot is due."""
        kept = snapshot_steps(self.count, done, done == self.chunks)
        if done not in kept:
            return
        with atomic_file(snapshot_path(self.folder, done)) as aside:
            half = self.vectors(MAX_WORDS).astype(np.float16)
            write_tensors(aside, {MATRIX: half}, {SHARE: f"{done / self.chunks:.6f}"})
        delete_other_snapshots(self.folder, kept)

    def finish(self) -> None:
        """Move all snapshots into the folder of the result."""
        (self.folder / SNAPSHOTS).rename(self.out / SNAPSHOTS)
        shutil.rmtree(self.folder, ignore_errors=True)


def read_snapshots(folder: Path, vectors: WordVectors) -> list[tuple[float, WordVectors]]:
    """Return the share of the training that was done at each snapshot of a folder of vectors, and the vectors then."""
    found = snapshot_files(folder)
    if not found:
        raise ConfigError(f"{folder} has no snapshots of its training; train vectors with --set snapshots=8")
    snapshots = []
    for path in found.values():
        tensors, metadata = map_tensors(path)
        matrix = tensors.get(MATRIX)
        if matrix is None or matrix.ndim != 2 or len(matrix) > len(vectors):
            raise DataError(f"{path}: not a snapshot of these vectors; delete it")
        snapshots.append((float(metadata.get(SHARE, 0)), WordVectors(vectors.words[: len(matrix)], matrix)))
    return snapshots


def require_frequent(word: str, vectors: WordVectors) -> None:
    """Refuse a word that snapshots do not hold."""
    if word not in vectors.index:
        raise MissingWord(word, next((w for w in (word.lower(), word.title()) if w in vectors.index), None))
    if vectors.index[word] >= MAX_WORDS:
        raise ConfigError(f"{word!r} is not among the {MAX_WORDS:,} most frequent words, which snapshots hold; choose another")
