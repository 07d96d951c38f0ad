"""Pieces of a corpus's files, which can be read one without the other, on any number of machines.

A large file of lines is cut every 32 MiB, at the next line; others (compressed, quoted CSV, Parquet, XML, catalogues) are one
piece each. The cuts depend on the files alone.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

from qkv.base.errors import DataError
from qkv.base.urls import ask_at_once
from qkv.text.corpus import (
    ONE_FILE,
    TABLES,
    TWO_FILES,
    ParallelCorpusConfig,
    aligned_files,
    corpus_files,
    format_of,
    format_of_two,
    with_prefix,
)
from qkv.text.files import COMPRESSED
from qkv.text.input_files import FilePiece, InputFile, UrlFile, WholeFile, file_size, input_file
from qkv.text.pair import SideNames, TextPair
from qkv.text.table_layout import detect_layout
from qkv.text.tables import first_fields, read_jsonl, read_table

PIECE = 32 << 20  # bytes
BLOCK = 1 << 22  # bytes scanned at once

Cut = tuple[int, ...]  # where a piece begins, in each of its files


class CorpusPiece(NamedTuple):
    """One file, or two aligned ones, or the lines of them within ranges of bytes."""

    files: tuple[str, ...]
    ranges: tuple[tuple[int, int], ...] = ()  # of each file; none for whole files

    @property
    def begins(self) -> bool:
        """Whether the piece holds the beginning of its files."""
        return not self.ranges or self.ranges[0][0] == 0

    @property
    def size(self) -> int:
        """The number of bytes to read; 0 where a server does not say."""
        spans = self.ranges or [(0, file_size(input_file(name)) or 0) for name in self.files]
        return sum(stop - start for start, stop in spans)

    def inputs(self) -> list[InputFile]:
        """Return the files to read."""
        files = [input_file(name) for name in self.files]
        return [FilePiece(file, *span) for file, span in zip(files, self.ranges, strict=True)] if self.ranges else [*files]


def cut_corpus(
    corpus: ParallelCorpusConfig,
    languages: SideNames,
    trees: bool,
    cut_two: Callable[[WholeFile, WholeFile], list[Cut]] | None = None,
) -> list[CorpusPiece]:
    """Return the pieces of a corpus, in order; `cut_two` replaces `cut_aligned`, where its results are known."""
    if corpus.pairs is None:
        found = []
        for files in aligned_files(corpus):
            lines = format_of_two(*files, corpus) == "lines" and all(map(is_long, files))
            found += _pieces(files, (cut_two or cut_aligned)(*files) if lines else [])
        return found
    of_files = cut_files(lambda file: _cut_file(file, corpus, languages, trees), corpus_files(corpus))
    return [piece for pieces in of_files for piece in pieces]


def cut_files(cut: Callable[[WholeFile], list[CorpusPiece]], files: Sequence[WholeFile]) -> list[list[CorpusPiece]]:
    """Return the pieces of each file; stores are asked for sizes at the same time."""
    return ask_at_once(cut, files, any(isinstance(file, UrlFile) for file in files))


def _cut_file(file: WholeFile, corpus: ParallelCorpusConfig, languages: SideNames, trees: bool) -> list[CorpusPiece]:
    kind = format_of(file, corpus)
    # Heads are checked with the number of their line in the whole file.
    if trees or kind not in ("jsonl", *TABLES) or not is_long(file):
        return _pieces([file], [])
    if kind in TABLES and detect_layout(file, TABLES[kind], corpus.columns, languages).quoted:  # a cell may hold line ends
        return _pieces([file], [])
    return cut_lines(file)


def cut_lines(file: WholeFile) -> list[CorpusPiece]:
    """Return the pieces of a file that is read by line."""
    return _pieces([file], [(start,) for start in range(0, file_size(file) or 0, PIECE)] if is_long(file) else [])


def is_long(file: WholeFile) -> bool:
    """Return whether a file is cut, if it is read by line."""
    return file.suffix not in COMPRESSED and (file_size(file) or 0) > PIECE


def _pieces(files: Sequence[WholeFile], cuts: Sequence[Cut]) -> list[CorpusPiece]:
    names = tuple(map(str, files))
    if not cuts:
        return [CorpusPiece(names)]
    sizes = tuple(file_size(file) or 0 for file in files)
    return [CorpusPiece(names, tuple(zip(start, stop, strict=True))) for start, stop in itertools.pairwise([*cuts, sizes])]


def cut_aligned(source: WholeFile, target: WholeFile) -> list[Cut]:
    """Return where pieces of two files begin, at the same lines of both; reads both files once."""
    cuts, lines, count = [0], [0], 0  # byte and line in the source
    with source.open("rb") as file:
        for offset, block, breaks in _line_breaks(file):
            wanted = cuts[-1] + PIECE
            while len(after := breaks[breaks + offset + 1 >= wanted]) and wanted < offset + len(block):
                cuts.append(offset + int(after[0]) + 1)
                lines.append(count + int(np.searchsorted(breaks, after[0])) + 1)
                wanted = cuts[-1] + PIECE
            count += len(breaks)
            unfinished = not block.endswith(b"\n")
    starts, many = [0], 0
    with target.open("rb") as file:
        for offset, block, breaks in _line_breaks(file):
            while len(starts) < len(lines) and lines[len(starts)] <= many + len(breaks):
                starts.append(offset + int(breaks[lines[len(starts)] - many - 1]) + 1)
            many += len(breaks)
            ends = block.endswith(b"\n")
    count, many = count + unfinished, many + (not ends)
    if count != many:
        raise DataError(
            f"misaligned: {source} has {count} lines, {target} has {many}; line n of one must translate line n of the other"
        )
    # A last piece without a line would be empty.
    return [cut for cut, line in zip(zip(cuts, starts, strict=False), lines, strict=False) if line < count]


def _line_breaks(file: BinaryIO) -> Iterator[tuple[int, bytes, np.ndarray]]:
    """Yield blocks of a file: the offset of each, its bytes, and where it has line feeds."""
    offset = 0
    while block := file.read(BLOCK):
        yield offset, block, np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
        offset += len(block)


def lines_before(piece: CorpusPiece) -> int:
    """Return the number of lines of a piece's file before the piece; reads them."""
    if piece.begins:
        return 0
    with FilePiece(input_file(piece.files[0]), 0, piece.ranges[0][0]).open() as file:
        return sum(len(breaks) for _, _, breaks in _line_breaks(file))


def read_piece(piece: CorpusPiece, corpus: ParallelCorpusConfig, languages: SideNames, trees: bool) -> Iterator[TextPair]:
    """Yield the pairs of a piece; lines are counted from its beginning."""
    files = piece.inputs()
    whole = [input_file(name) for name in piece.files]
    if len(whole) == 2:
        return with_prefix(TWO_FILES[format_of_two(whole[0], whole[1], corpus)](*files), corpus)
    [file], kind = whole, format_of(whole[0], corpus)
    if trees:
        return read_jsonl(file, corpus.columns, languages, trees=True)
    if not piece.ranges:
        pairs = ONE_FILE[kind](file, corpus.columns, languages)
    elif kind == "jsonl":
        chosen = first_fields(file, corpus.columns, languages)
        pairs = read_jsonl(files[0], corpus.columns, languages, chosen=chosen)
    else:
        pairs = read_table(files[0], detect_layout(file, TABLES[kind], corpus.columns, languages), piece.begins)
    return with_prefix(pairs, corpus)
