"""CSV and TSV with a column of sources and one of targets: empty cells of the target column are filled in."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from qkv.base.errors import DataError
from qkv.text.pair import SideNames
from qkv.text.table_layout import SAMPLED, layout_of
from qkv.text.translatable.file import Edit, Extent, FileText, Segment, TranslatableFile, decode


def parse(path: Path, content: bytes, delimiter: str, columns: SideNames, languages: SideNames) -> TranslatableFile:
    """Parse a table; the delimiter is the one its format suggests, the layout is recognised as in corpora."""
    source = decode(path, content)
    lines = (line.removesuffix("\r").replace("\r", " ") + "\n" for line in source.text.removeprefix("\ufeff").split("\n"))
    layout = layout_of(path, islice(lines, SAMPLED), delimiter, columns, languages)
    rows = list(_rows(source, layout.delimiter, layout.quoted))
    width = max([2, *map(len, rows)])  # a file of sources alone gets a second column
    for column in layout.columns:
        if not 0 <= column < width:
            problem = f"{path}: no column {column + 1}; it has {width}; give a file of two columns"
            raise DataError(problem, f"or name two of them, such as --set columns=[1,{width}]")
    left, right = layout.columns
    segments = []
    for row in rows[bool(layout.header) :]:
        if left < len(row) and source.text[slice(*row[left])].strip():
            segments.append(_segment(source, row, left, right, layout.delimiter, layout.quoted))
    return TranslatableFile(source, segments)


def _rows(source: FileText, delimiter: str, quoted: bool) -> Iterator[list[Extent]]:
    """Yield the extents of the cells of each row, quotes included."""
    quote = r"\"(?:[^\"]|\"\")*\"(?=\r?\n|\r?\Z|" + re.escape(delimiter) + ")|" if quoted else ""
    cell = re.compile(f"({quote}[^\\n{re.escape(delimiter)}]*?)({re.escape(delimiter)}|\\r?\\n|\\r?\\Z)")
    position, row = int(source.text.startswith("\ufeff")), list[Extent]()
    while position < len(source.text) or row:
        found = cell.match(source.text, position)
        assert found is not None  # a cell may be empty
        if quoted and found[1].startswith('"') and (len(found[1]) == 1 or not found[1].endswith('"')):
            raise source.error(position, f"the quote of a cell is not closed before the next {delimiter!r}: {found[1][:30]}")
        row.append(Extent(*found.span(1)))
        position = found.end()
        if found[2] != delimiter:
            yield row
            row = []


def _segment(source: FileText, row: list[Extent], left: int, right: int, delimiter: str, quoted: bool) -> Segment:
    def read(extent: Extent) -> str:
        raw = source.text[slice(*extent)]
        return raw[1:-1].replace('""', '"') if quoted and len(raw) > 1 and raw[0] == raw[-1] == '"' else raw

    text = read(row[left])
    existing = read(row[right]) if right < len(row) else ""

    def write(translations: Sequence[str]) -> Iterator[Edit]:
        written = translations[0]
        was_quoted = source.text[row[left].start : row[left].end].startswith('"')
        if quoted and (was_quoted or any(sign in written for sign in f'"\r\n{delimiter}')):
            written = '"' + written.replace('"', '""') + '"'
        elif not quoted:
            written = re.sub(r"[\t\r\n]+", " ", written)
        if right < len(row):
            yield Edit(*row[right], (written,))
        else:
            end = row[-1].end
            yield Edit(end, end, (delimiter * (right - len(row) + 1) + written,))

    return Segment((text,), source.line(row[left].start), write, (existing,), bool(existing.strip()))
