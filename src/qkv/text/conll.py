"""Tagged sentences in the columns of the CoNLL shared tasks: one word per line, a blank line after a sentence."""

from collections.abc import Iterator
from typing import NamedTuple

from qkv.base.errors import DataError
from qkv.text.input_files import InputFile

DOCUMENT = "-DOCSTART-"  # the word of a line between documents


class TaggedExample(NamedTuple):
    """The words of a sentence and their tags; no tags if they are to be predicted."""

    words: list[str]
    tags: list[str]
    file: str
    line: int  # of its first word
    lines: list[int] | None = None  # of each word, if not on consecutive lines
    heads: list[int] | None = None  # the number, from 1, of each word's head; 0 for a root

    def line_of(self, word: int) -> str:
        return f"{self.file}, line {self.lines[word] if self.lines else self.line + word}"

    @property
    def where(self) -> str:
        return self.line_of(0)

    @property
    def texts(self) -> list[str]:
        return [" ".join(self.words)]

    @property
    def labels(self) -> list[str]:
        return self.tags


def tag_type(tag: str) -> str:
    """Return the type of a tag such as B-person: the part after the first hyphen."""
    return tag.partition("-")[2]


def read_conll(path: InputFile, lines: Iterator[tuple[int, str]], column: int | None, labelled: bool) -> Iterator[TaggedExample]:
    """Yield the sentences; the first column is the word, `column` (from 1, by default the last) its tag.

    Without labels all lines must have the same number of columns: texts of several words would be read as words with columns.
    """
    rows: list[list[str]] = []
    begins, width, columns = 0, 0, 0
    for number, line in lines:
        # Columns are separated by tabs or, if there is none, by spaces.
        cells = [cell.strip() for cell in line.split("\t")] if "\t" in line and line.strip() else line.split() or [""]
        if any(cells) and cells[0] != DOCUMENT:
            width = width or (max(2, column or len(cells)) if labelled else 1)
            if len(cells) < width or not all(cells[:width]):
                found = sum(map(bool, cells))
                raise DataError(f"{path}, line {number}: {found} columns, {width} are wanted, the first a word; check the line")
            columns = columns or len(cells)
            if not labelled and len(cells) != columns:
                raise DataError(
                    f"{path}, line {number}: {len(cells)} columns, the first line has {columns}; "
                    "give one word per line, or say --set format=lines for one text per line"
                )
            begins = begins or number
            rows.append(cells)
        elif rows:
            yield _sentence(path, begins, rows, column, labelled)
            rows, begins = [], 0
    if rows:
        yield _sentence(path, begins, rows, column, labelled)


def _sentence(path: InputFile, begins: int, rows: list[list[str]], column: int | None, labelled: bool) -> TaggedExample:
    index = -1 if column is None else column - 1
    tags = [row[index] for row in rows] if labelled else []
    return TaggedExample([row[0] for row in rows], tags, str(path), begins)
