"""The layout of a table of pairs: its delimiter and quotes, its header, and the columns of source and target."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from qkv.base.errors import DataError
from qkv.text.files import read_byte_lines
from qkv.text.input_files import InputFile
from qkv.text.pair import SideNames
from qkv.text.table_header import Sides, find_sides

LONGEST_CELL = 1 << 26  # characters of a cell in CSV; a longer one is a quote that is never closed
SAMPLED = 200  # lines that show the layout
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}

Rows = list[list[str]]


class TableLayout(NamedTuple):
    """How a table is read."""

    delimiter: str
    quoted: bool  # whether quotes around a cell belong to the format and not to the text
    header: tuple[str, ...]  # names of the columns; empty if the first row is a pair
    columns: tuple[int, int]  # indices of source and target

    def __str__(self) -> str:
        names = [f"{i + 1} ({self.header[i]})" if i < len(self.header) else str(i + 1) for i in self.columns]
        header = "header skipped" if self.header else "no header"
        return f"columns {names[0]} and {names[1]} between {DELIMITERS[self.delimiter]}, {header}"


class _Candidate(NamedTuple):
    """A way to split the first lines of a table into cells."""

    delimiter: str
    quoted: bool
    rows: Rows
    sound: bool  # whether all quotes stand where the format allows them
    width: int  # the most frequent number of cells
    share: float  # of rows with this width, among rows that are not empty; 0 if the width is 1
    sides: Sides | None  # the header, if the first row is one

    @property
    def rank(self) -> tuple[bool, bool, bool, float, int]:
        """Larger is better: a header that is recognised, then regular rows of few columns."""
        return self.share > 0, self.sides is not None, self.sound, round(self.share, 1), -self.width


def detect_layout(path: InputFile, default: str, columns: SideNames, languages: SideNames) -> TableLayout:
    """Return the layout of a file that its name or format says to be CSV (`default` is a comma) or TSV (a tab).

    Raise a DataError where more than two columns could be the sides.
    """
    return layout_of(path, islice(text_lines(path), SAMPLED), default, columns, languages)


def layout_of(path: InputFile, first: Iterable[str], default: str, columns: SideNames, languages: SideNames) -> TableLayout:
    """Return the layout that the first lines of a file show; `path` is for messages."""
    lines = list(first)
    if default == "\t":
        best = _best_of_tsv(lines, columns, languages)
    else:
        # max returns the first of equals.
        best = max((_split(lines, sign, True, columns, languages) for sign in DELIMITERS), key=lambda found: found.rank)
        if not best.share:
            best = _split(lines, default, True, columns, languages)
    names = tuple(cell.strip() for cell in best.rows[0]) if best.rows else ()
    header = names if best.sides is not None else ()
    return TableLayout(best.delimiter, best.quoted, header, _choose_columns(path, best, names, columns))


def _best_of_tsv(lines: list[str], columns: SideNames, languages: SideNames) -> _Candidate:
    """Return the layout of a TSV: tabs, unless no line has one and another delimiter explains every line."""
    plain = _split(lines, "\t", False, columns, languages)
    if any("\t" in line for line in lines):
        return _split(lines, "\t", True, columns, languages) if _has_quoted_cells(plain.rows) else plain
    for sign in (";", ","):
        other = _split(lines, sign, True, columns, languages)
        # Commas of sentences must not pass for a delimiter.
        if other.sound and other.share == 1 and (other.sides is not None or (other.width == 2 and len(other.rows) >= 5)):
            return other
    return plain


def _has_quoted_cells(rows: Rows) -> bool:
    """Return whether quotes around cells between tabs belong to the format, and not to the text as in most TSV files.

    Either all cells are quoted, or quotes in cells are doubled wherever they occur.
    """
    cells = [cell.strip() for row in rows for cell in row if cell.strip()]
    quoted = [len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells]
    if len(rows) >= 3 and all(quoted):
        return True
    inner = [cell[1:-1] for cell, is_quoted in zip(cells, quoted, strict=True) if is_quoted]
    contradicted = any('"' in cell for cell, is_quoted in zip(cells, quoted, strict=True) if not is_quoted)
    doubled = [text for text in inner if '""' in text]
    return bool(doubled) and not contradicted and not any('"' in text.replace('""', "") for text in inner)


def _split(lines: Sequence[str], delimiter: str, quoted: bool, columns: SideNames, languages: SideNames) -> _Candidate:
    rows: Rows = []
    sound = True
    if quoted:
        csv.field_size_limit(LONGEST_CELL)
        try:
            rows.extend(csv.reader(iter(lines), delimiter=delimiter, strict=True))
        except csv.Error as error:
            # The sample may end inside a cell; else the reader itself says what is wrong.
            sound = "unexpected end" in str(error)
    else:
        rows = [line.rstrip("\n").split(delimiter) for line in lines]
    full = [row for row in rows if any(cell.strip() for cell in row)]
    width, count = Counter(map(len, full)).most_common(1)[0] if full else (1, 0)
    sides = find_sides(rows[0], full[1:], columns, languages) if rows and width > 1 else None
    return _Candidate(delimiter, quoted, rows, sound, width, count / len(full) if width > 1 else 0.0, sides)


def _choose_columns(path: InputFile, found: _Candidate, names: tuple[str, ...], columns: SideNames) -> tuple[int, int]:
    """Return the indices of the two sides, by `columns`, by the header, or because there are only two."""
    if not names:
        return 0, 1
    if columns is not None and columns[0].isdigit() and columns[1].isdigit():
        return int(columns[0]) - 1, int(columns[1]) - 1
    if columns is not None:
        refuse_missing(path, columns, names)
        left, right = (names.index(name) if name in names else int(name) - 1 for name in columns)
        return left, right
    if found.sides is not None and found.sides.columns is not None:
        return found.sides.columns
    if found.sides is not None or (found.width > 2 and any(cell.strip() for row in found.rows for cell in row[2:])):
        has = ", ".join(names[:12])[:200]
        raise DataError(
            f"{path}: which of its {found.width} columns are source and target? its first row is {has}; "
            "give a file of two columns",
            "or name two, by columns: [2, 3] in a recipe or --set columns=[2,3] for qkv translate",
        )
    return 0, 1


def refuse_missing(path: InputFile, wanted: Sequence[str], names: Sequence[str]) -> None:
    """Refuse columns that a file does not have."""
    for name in wanted:
        if name not in names and not (name.isdigit() and 1 <= int(name) <= len(names)):
            found = ", ".join(names[:12]) or "none"
            raise DataError(f"{path}: no column {name!r}; it has {found[:200]}; name two of them in columns:")


def text_lines(path: InputFile) -> Iterator[str]:
    """Yield the lines of a file as the csv module reads them."""
    for raw in read_byte_lines(path):
        # Bytes that are not UTF-8 pass as lone surrogates, so that the quotes around them still count.
        line = raw.decode(errors="surrogateescape").removesuffix("\r")
        # The csv module treats \r as a line end; here it is white space.
        yield line.replace("\r", " ") + "\n"
