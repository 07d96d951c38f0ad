"""Duplicates and held-out texts of a whole corpus, found from the hashes of its checked pieces, one bucket of hashes at a time.

Memory depends on the size of a bucket, not on the corpus. The first of equal pairs is kept, in the order of the corpus.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qkv.data.checked_pieces import HASHES, LINES, OVERLAPS, ROWS
from qkv.data.store import Part
from qkv.data.tokens import map_file
from qkv.text.check import DUPLICATE, FIRST, OVERLAP, CheckConfig, CheckReport, DropCount
from qkv.text.pieces import CorpusPiece

BUCKET_PAIRS = 1 << 19  # about as many are compared at once
DROPS = "drops-{}"  # the rows of a piece that are dropped, in order


class MadePiece(NamedTuple):
    """A piece of a corpus's files, and the part of the cache that holds its checked pairs."""

    piece: CorpusPiece
    part: Part
    meta: dict[str, Any]

    def numbers(self, name: str, kind: Any, compared: bool = False) -> np.ndarray:
        """Map one of the files of numbers into memory; its fingerprint is compared unless it was `compared` before."""
        return self.part.open(name, lambda path: map_file(path, kind), None if compared else self.meta["files"][name])


def merge_pieces(folder: Path, pieces: Sequence[MadePiece], rules: CheckConfig) -> dict[str, Any]:
    """Write the rows that are dropped from each piece into a folder; return the index of the corpus."""
    if rules.duplicates == "drop":
        _find_duplicates(folder, pieces)
    report, entries, lines, file = CheckReport(), [], 0, ""
    for number, made in enumerate(pieces):
        lines, file = (lines if made.piece.files[0] == file and not made.piece.begins else 0), made.piece.files[0]
        path = folder / DROPS.format(number)
        drops = _sort_rows(path)
        _add_report(report, made, lines)
        _add_drops(report, DUPLICATE, made, drops, lines)
        overlaps = made.numbers(OVERLAPS, np.int64)
        rows = (overlaps // 2).astype(np.uint32)
        new = np.searchsorted(drops, rows) == np.searchsorted(drops, rows, side="right")  # not dropped as duplicates
        overlaps, rows = overlaps[new], rows[new]
        report.overlap += len(overlaps)
        report.overlap_pairs += int((overlaps % 2).sum())
        if rules.overlap == "drop":
            _add_drops(report, OVERLAP, made, rows, lines)
            _add_rows(path, rows)
            drops = _sort_rows(path)
        entries.append({"key": made.part.key, "rows": made.meta["rows"] - len(drops), "files": made.meta["files"]})
        lines += made.meta["lines"]
    return {"pieces": entries, "report": report.as_dict()}


def _add_rows(path: Path, rows: np.ndarray) -> None:
    if len(rows):
        with path.open("ab") as file:
            file.write(rows.tobytes())


def _sort_rows(path: Path) -> np.ndarray:
    """Sort a file of rows on the disk, and return them, mapped into memory; none where there is no file."""
    if not path.exists():
        return np.zeros(0, dtype=np.uint32)
    rows = np.memmap(path, dtype=np.uint32, mode="r+")
    rows.sort()
    rows.flush()
    return rows


class _Run:
    """A sorted run of a piece's hashes, which is taken from its beginning, one bucket after the other."""

    def __init__(self, made: MadePiece, begin: int, end: int, drops: Path):
        self.made, self.begin, self.end, self.drops = made, begin, end, drops

    def take(self, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the next hashes, up to `last`, and their rows.

        Files are mapped only meanwhile: a corpus may have more pieces than files that a process may have open.
        """
        hashes = self.made.numbers(HASHES, np.uint64, compared=True)[self.begin : self.end]
        hashes = np.array(hashes[: np.searchsorted(hashes, np.uint64(last), side="right")])
        rows = self.made.numbers(ROWS, np.uint32, compared=True)[self.begin : self.begin + len(hashes)]
        self.begin += len(hashes)
        return hashes, np.array(rows)


def _find_duplicates(folder: Path, pieces: Sequence[MadePiece]) -> None:
    """Write the rows of each piece whose pair occurs before, in any order."""
    runs = []  # in the order of the corpus
    for number, made in enumerate(pieces):
        made.numbers(HASHES, np.uint64), made.numbers(ROWS, np.uint32)  # compares fingerprints
        for begin, end in pairwise(np.cumsum([0, *made.meta["runs"]]).tolist()):
            runs.append(_Run(made, begin, end, folder / DROPS.format(number)))
    buckets = -(-sum(run.end - run.begin for run in runs) // BUCKET_PAIRS)
    for bucket in range(1, buckets + 1):
        taken = []
        for run in runs:
            hashes, rows = run.take(bucket * (1 << 64) // buckets - 1)
            first = np.ones(len(hashes), dtype=bool)
            first[1:] = hashes[1:] != hashes[:-1]
            # Of equal hashes one per run is left, so that a pair that occurs very often does not fill a bucket.
            _add_rows(run.drops, rows[~first])
            taken.append((hashes[first], rows[first]))
        ends = np.cumsum([len(rows) for _, rows in taken])
        hashes, rows = (np.concatenate(column) for column in zip(*taken, strict=True))
        del taken
        order = np.argsort(hashes, kind="stable")  # of equal hashes, the first in the corpus stays first
        hashes = hashes[order]
        again = np.sort(order[1:][hashes[1:] == hashes[:-1]])
        for run, some in zip(runs, np.split(again, np.searchsorted(again, ends[:-1])), strict=True):
            _add_rows(run.drops, rows[some])


def _add_report(report: CheckReport, made: MadePiece, lines: int) -> None:
    """Add the counts of a piece, which begins after a number of lines of its file."""
    found = made.meta["report"]
    report.read += found["read"]
    for reason, drops in found["dropped"].items():
        first = [(made.piece.files[file], line + lines) for file, line in drops["first"]]
        _count(report, reason, drops["count"], first)


def _add_drops(report: CheckReport, reason: str, made: MadePiece, rows: np.ndarray, lines: int) -> None:
    if len(rows):
        found = made.numbers(LINES, np.uint32)[rows[:FIRST]].tolist()
        _count(report, reason, len(rows), [(made.piece.files[0], line + lines) for line in found if line])


def _count(report: CheckReport, reason: str, count: int, first: list[tuple[str, int]]) -> None:
    found = report.dropped.setdefault(reason, DropCount())
    found.count += count
    found.first += first[: FIRST - len(found.first)]
