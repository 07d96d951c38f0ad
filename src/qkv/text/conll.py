"""Sentences with a tag for each word, in the columns of the CoNLL shared tasks: a word a line, a blank line after a sentence."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from qkv.base.errors import DataError

DOCUMENT = "-DOCSTART-"  # the only word of a line between documents


class TaggedExample(NamedTuple):
    """The words of a sentence and their tags; none where they are to be predicted."""

    words: list[str]
    tags: list[str]
    file: str
    line: int  # of its first word
    lines: list[int] | None = None  # of each word, where they do not follow line by line
    heads: list[int] | None = None  # the number of the word that governs each word, from 1; 0 at a root

    def line_of(self, word: int) -> str:
        return f"{self.file}, line {self.lines[word] if self.lines else self.line + word}"

    @property
    def where(self) -> str:
        return self.line_of(0)


def tag_type(tag: str) -> str:
    """What a tag such as B-person says it is: the part after its first hyphen."""
    return tag.partition("-")[2]


def read_conll(path: Path, lines: Iterator[tuple[int, str]], column: int | None, labelled: bool) -> Iterator[TaggedExample]:
    """Sentence by sentence: the first column is the word, `column` (from 1, or the last) its tag."""
    rows: list[list[str]] = []
    begins, width = 0, 0
    for number, line in lines:
        cells = _cells(line)
        if any(cells) and cells[0] != DOCUMENT:
            width = width or (max(2, column or len(cells)) if labelled else 1)
            _check(path, number, cells, width)
            begins = begins or number
            rows.append(cells)
        elif rows:
            yield _sentence(path, begins, rows, column, labelled)
            rows, begins = [], 0
    if rows:
        yield _sentence(path, begins, rows, column, labelled)


def _cells(line: str) -> list[str]:
    """Columns stand between tabs or, where there is none, between spaces; at least one, maybe empty."""
    if "\t" in line and line.strip():
        return [cell.strip() for cell in line.split("\t")]
    return line.split() or [""]


def _check(path: Path, line: int, cells: list[str], width: int) -> None:
    """A line has as many columns as the first one had, and none of those that are read is empty."""
    if len(cells) < width or not all(cells[:width]):
        found = sum(map(bool, cells))
        raise DataError(f"{path}, line {line}: {found} columns, {width} are wanted, the first a word; check the line")


def _sentence(path: Path, begins: int, rows: list[list[str]], column: int | None, labelled: bool) -> TaggedExample:
    place = -1 if column is None else column - 1
    tags = [row[place] for row in rows] if labelled else []
    return TaggedExample([row[0] for row in rows], tags, str(path), begins)
