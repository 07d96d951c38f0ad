"""Checked pieces: the pairs of a piece of a corpus that pass the rules by themselves, with hashes by which duplicates are found.

`pairs.tsv` has a pair a line (source, target, heads, separated by tabs); line n is row n. `hashes` and `rows` are sorted by hash,
a million pairs at a time, so that the pairs of one bucket of hashes stand together. `lines` has the line of each row in the
piece, and `overlaps` the rows whose source is in dev or test, times 2, plus 1 if the target is the same too. A piece is a
function of its input, the rules and the held-out texts.
"""

from array import array
from collections.abc import Iterator, Set
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from qkv.text.check import CheckConfig, CheckReport, check_pairs, text_hash
from qkv.text.pair import TextPair
from qkv.text.treebank import TextWithHeads

PIECES = "pieces"  # the kind of these parts of the cache
PAIRS, HASHES, ROWS, LINES, OVERLAPS = "pairs.tsv", "hashes", "rows", "lines", "overlaps"
RUN = 1 << 20  # pairs sorted at once


def write_piece(
    folder: Path, pairs: Iterator[TextPair], files: tuple[str, ...], rules: CheckConfig, held_out: Set[int]
) -> dict[str, Any]:
    """Write the usable pairs of a piece and their hashes into a folder; return its counts."""
    report, runs, rows, last = CheckReport(), _Runs(folder), 0, 0

    def counted() -> Iterator[TextPair]:
        nonlocal last
        for pair in pairs:
            last = pair.line
            yield pair

    with runs, (folder / PAIRS).open("wb") as file:
        for rows, (source, target, line, *_) in enumerate(check_pairs(counted(), rules, report), 1):
            text = f"{source}\t{target}".encode()
            found = int.from_bytes(blake2b(text, digest_size=8).digest(), "little")
            heads = "\t" + " ".join(map(str, source.heads)) if isinstance(source, TextWithHeads) else ""
            file.write(text + heads.encode() + b"\n")
            runs.add(found, line)
            if held_out and text_hash(source) in held_out:
                runs.overlaps.append(2 * (rows - 1) + (found in held_out))
    return {"rows": rows, "lines": last, "runs": runs.lengths, "report": _without_names(report, files)}


class _Runs:
    """The files of numbers beside the pairs, while they are written."""

    def __init__(self, folder: Path):
        self.files = {name: (folder / name).open("wb") for name in (HASHES, ROWS, LINES, OVERLAPS)}
        self.hashes, self.lines, self.overlaps = array("Q"), array("I"), array("q")
        self.first = 0  # row of the run
        self.lengths: list[int] = []

    def add(self, found: int, line: int) -> None:
        self.hashes.append(found)
        self.lines.append(line)
        if len(self.hashes) == RUN:
            self._sort()

    def _sort(self) -> None:
        hashes = np.frombuffer(self.hashes, dtype=np.uint64)
        order = np.argsort(hashes, kind="stable")
        self.files[HASHES].write(hashes[order].tobytes())
        self.files[ROWS].write((order + self.first).astype(np.uint32).tobytes())
        self.files[LINES].write(self.lines.tobytes())
        self.files[OVERLAPS].write(self.overlaps.tobytes())
        self.lengths.append(len(order))
        self.first += len(order)
        self.hashes, self.lines, self.overlaps = array("Q"), array("I"), array("q")

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self.hashes:
            self._sort()
        self.files[OVERLAPS].write(self.overlaps.tobytes())
        for file in self.files.values():
            file.close()


def _without_names(report: CheckReport, files: tuple[str, ...]) -> dict[str, Any]:
    """Return a report with the number of a file in place of its name, which is no part of its content."""
    found = report.as_dict()
    for drops in found["dropped"].values():
        drops["first"] = [[files.index(file) if file in files else 0, line] for file, line in drops["first"]]
    return found
