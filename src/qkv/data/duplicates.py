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

BUCKET_PAIRS = 1 << 21  # about as many are compared at once
DROPS = "drops-{}"  # the rows of a piece that are dropped, in order


class MadePiece(NamedTuple):
    """A piece of a corpus's files, and the part of the cache that holds its checked pairs."""

    piece: CorpusPiece
    part: Part
    meta: dict[str, Any]

    def numbers(self, name: str, kind: Any) -> np.ndarray:
        """Map one of the files of numbers into memory."""
        return self.part.open(name, lambda path: map_file(path, kind), self.meta["files"][name])


def merge_pieces(folder: Path, pieces: Sequence[MadePiece], rules: CheckConfig) -> dict[str, Any]:
    """Write the rows that are dropped from each piece into a folder; return the index of the corpus."""
    if rules.duplicates == "drop":
        _find_duplicates(folder, pieces)
    report, entries, lines, file = CheckReport(), [], 0, ""
    for number, made in enumerate(pieces):
        lines, file = (lines if made.piece.files[0] == file and not made.piece.begins else 0), made.piece.files[0]
        path = folder / DROPS.format(number)
        drops = np.sort(np.fromfile(path, dtype=np.uint32)) if path.exists() else np.zeros(0, dtype=np.uint32)
        _add_report(report, made, lines)
        _add_drops(report, DUPLICATE, made, drops, lines)
        overlaps = made.numbers(OVERLAPS, np.int64)
        overlaps = overlaps[~np.isin(overlaps // 2, drops)]
        report.overlap += len(overlaps)
        report.overlap_pairs += int((overlaps % 2).sum())
        if rules.overlap == "drop":
            _add_drops(report, OVERLAP, made, overlaps // 2, lines)
            drops = np.union1d(drops, (overlaps // 2).astype(np.uint32))
        if len(drops):
            drops.astype(np.uint32).tofile(path)
        entries.append({"key": made.part.key, "rows": made.meta["rows"] - len(drops), "files": made.meta["files"]})
        lines += made.meta["lines"]
    return {"pieces": entries, "report": report.as_dict()}


def _find_duplicates(folder: Path, pieces: Sequence[MadePiece]) -> None:
    """Write the rows of each piece whose pair occurs before, in any order."""
    runs = []  # number of the piece, hashes and rows, in the order of the corpus
    for number, made in enumerate(pieces):
        hashes, rows = made.numbers(HASHES, np.uint64), made.numbers(ROWS, np.uint32)
        for start, stop in pairwise(np.cumsum([0, *made.meta["runs"]]).tolist()):
            runs.append((number, hashes[start:stop], rows[start:stop]))
    buckets = max(1, sum(len(hashes) for _, hashes, _ in runs) // BUCKET_PAIRS)
    begins = np.array([bucket * (1 << 64) // buckets for bucket in range(buckets)], dtype=np.uint64)
    bounds = [np.append(np.searchsorted(hashes, begins), len(hashes)) for _, hashes, _ in runs]
    for bucket in range(buckets):
        spans = [slice(*bound[bucket : bucket + 2]) for bound in bounds]
        hashes = np.concatenate([run[span] for (_, run, _), span in zip(runs, spans, strict=True)] or [np.zeros(0)])
        order = np.argsort(hashes, kind="stable")  # of equal hashes, the first in the corpus stays first
        again = order[1:][hashes[order[1:]] == hashes[order[:-1]]]
        rows = np.concatenate([rows[span] for (_, _, rows), span in zip(runs, spans, strict=True)] or [np.zeros(0)])[again]
        lengths = [span.stop - span.start for span in spans]
        piece = np.repeat([number for number, _, _ in runs], lengths)[again]
        for number in np.unique(piece).tolist():
            with (folder / DROPS.format(number)).open("ab") as file:
                file.write(rows[piece == number].astype(np.uint32).tobytes())


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
