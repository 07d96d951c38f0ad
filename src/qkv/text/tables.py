"""Readers of pairs in tables: TSV, CSV, JSONL, Parquet, and two files of aligned lines."""

import csv
import itertools
import json
from collections.abc import Iterator
from typing import Any

from qkv.base.errors import ConfigError, DataError
from qkv.base.urls import BLOCK
from qkv.text.files import COMPRESSED, read_lines
from qkv.text.input_files import InputFile
from qkv.text.pair import UNDECODABLE, SideNames, TextPair, is_decodable
from qkv.text.table_layout import LONGEST_CELL, TableLayout, detect_layout, refuse_missing, text_lines
from qkv.text.treebank import TextWithHeads

NOT_TEXT = "field missing or not text"

Row = tuple[int, list[str] | None]  # line, cells; None if the line cannot be decoded


def read_aligned(source: InputFile, target: InputFile) -> Iterator[TextPair]:
    """Read two files line by line; raise a DataError with both counts if one ends before the other."""
    ended: Any = object()
    file = str(source)
    lines = itertools.zip_longest(read_lines(source), read_lines(target), fillvalue=ended)
    for number, (left, right) in enumerate(lines, 1):
        if left is ended or right is ended:
            more = number + sum(1 for _ in lines)
            counts = (number - 1, more) if left is ended else (more, number - 1)
            raise DataError(
                f"misaligned: {source} has {counts[0]} lines, {target} has {counts[1]}; "
                "line n of one must translate line n of the other"
            )
        if left is None or right is None:
            yield TextPair("", "", number, UNDECODABLE, file)
        else:
            yield TextPair(left, right, number, "", file)


def read_tsv(path: InputFile, columns: SideNames, languages: SideNames) -> Iterator[TextPair]:
    """Read cells between tabs; quotes belong to the text, unless all show that they do not."""
    return read_table(path, detect_layout(path, "\t", columns, languages))


def read_csv(path: InputFile, columns: SideNames, languages: SideNames) -> Iterator[TextPair]:
    """Read cells between commas, semicolons or tabs, quoted if they hold these, quotes or line ends."""
    return read_table(path, detect_layout(path, ",", columns, languages))


def read_table(path: InputFile, layout: TableLayout, begins: bool = True) -> Iterator[TextPair]:
    """Yield the two wanted cells of each row, below the header if the first row `begins` the file."""
    left, right = layout.columns
    width = max(left, right) + 1
    file = str(path)
    rows = _csv_rows(path, layout.delimiter) if layout.quoted else _plain_rows(path, layout.delimiter)
    for line, cells in itertools.islice(rows, 1 if layout.header and begins else 0, None):
        if cells is None:
            yield TextPair("", "", line, UNDECODABLE, file)
        elif len(cells) >= width:
            yield TextPair(cells[left], cells[right], line, "", file)
        elif not any(cells):
            yield TextPair("", "", line, "", file)
        else:
            yield TextPair("", "", line, f"fewer than {width} columns", file)


def _plain_rows(path: InputFile, delimiter: str) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path), 1):
        yield number, None if line is None else line.split(delimiter)


def _csv_rows(path: InputFile, delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(text_lines(path), delimiter=delimiter)
    line = 1
    try:
        for cells in reader:
            yield line, cells if is_decodable("".join(cells)) else None
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: not valid CSV ({error}); is a quote opened and never closed?") from None


def _choose(path: InputFile, names: list[str], columns: SideNames, languages: SideNames) -> tuple[str, str]:
    """Return the names of the two sides among the fields."""
    if columns:
        refuse_missing(path, columns, names)
        left, right = (name if name in names else names[int(name) - 1] for name in columns)
        return left, right
    for pair in (languages, ("source", "target"), ("src", "tgt")):
        for inside in ("", "translation."):
            if pair and {inside + pair[0], inside + pair[1]} <= set(names):
                return inside + pair[0], inside + pair[1]
    found = ", ".join(names[:12]) or "none"
    raise DataError(f"{path}: which two columns are source and target? it has {found[:200]}; name two in columns:")


def read_jsonl(
    path: InputFile, columns: SideNames, languages: SideNames, trees: bool = False, chosen: SideNames = None
) -> Iterator[TextPair]:
    """Read one JSON object (or list) per line; `a.b` names a nested field.

    The first record decides the fields of the two sides, unless they are `chosen`. With `trees`, sources have heads, which are
    checked.
    """
    file = str(path)
    for number, line in enumerate(read_lines(path), 1):
        if line is None or not line.strip():
            yield TextPair("", "", number, UNDECODABLE if line is None else "", file)
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            yield TextPair("", "", number, "not valid JSON", file)
            continue
        if chosen is None:
            chosen = _choose_fields(path, record, columns, languages)
        source, target = _field(record, chosen[0]), _field(record, chosen[1])
        if isinstance(source, str) and isinstance(target, str):
            if trees:
                source = TextWithHeads.from_record(source, record if isinstance(record, dict) else {}, f"{path}, line {number}")
            yield TextPair(source, target, number, "", file)
        else:
            yield TextPair("", "", number, NOT_TEXT, file)


def first_fields(path: InputFile, columns: SideNames, languages: SideNames) -> SideNames:
    """Return the fields of the two sides, which the first record of a JSONL file decides; None if there is none."""
    for line in read_lines(path):
        try:
            record = json.loads(line or "")
        except (ValueError, RecursionError):
            continue
        return _choose_fields(path, record, columns, languages)
    return None


def _choose_fields(path: InputFile, record: Any, columns: SideNames, languages: SideNames) -> tuple[str, str]:
    names = languages or (("1", "2") if isinstance(record, list) else None)
    return _choose(path, _field_names(record), columns, names)


def _field_names(record: Any) -> list[str]:
    """Return the names of a record's fields, nested ones as outer.inner."""
    if isinstance(record, list):
        return [str(number) for number in range(1, len(record) + 1)]
    if not isinstance(record, dict):
        return []
    nested = [f"{name}.{key}" for name, value in record.items() if isinstance(value, dict) for key in value]
    return [*record, *nested]


def _field(record: Any, name: str) -> Any:
    if isinstance(record, list):
        return record[int(name) - 1] if name.isdigit() and 0 < int(name) <= len(record) else None
    if not isinstance(record, dict):
        return None
    if name in record:
        return record[name]
    outer, dot, inner = name.partition(".")
    return _field(record.get(outer), inner) if dot else None


def read_parquet(path: InputFile, columns: SideNames, languages: SideNames) -> Iterator[TextPair]:
    """Read two columns of a Parquet file, a batch of rows at a time; `a.b` names a field of a struct column."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ConfigError(f"{path}: reading Parquet needs pyarrow: pip install 'qkv[data]'") from None
    if path.suffix in COMPRESSED:
        raise DataError(f"{path}: Parquet has its own compression; decompress the {path.suffix} first")
    try:
        # Pages are read as they are needed, not a whole row group.
        with path.open("rb") as file, parquet.ParquetFile(file, buffer_size=BLOCK, pre_buffer=False) as table:
            yield from _parquet_pairs(path, table, columns, languages)
    except (arrow.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0][:150]
        raise DataError(f"{path}: cannot be read as Parquet: {reason}") from None


def _parquet_pairs(path: InputFile, table: Any, columns: SideNames, languages: SideNames) -> Iterator[TextPair]:
    names = [name for field in table.schema_arrow for name in _struct_names(field)]
    chosen = _choose(path, names, columns, languages)
    file = str(path)
    numbers = itertools.count(1)
    for batch in table.iter_batches(batch_size=8192, columns=list(chosen)):
        for source, target, number in zip(_texts(batch, chosen[0]), _texts(batch, chosen[1]), numbers, strict=False):
            if not isinstance(source, str) or not isinstance(target, str):
                yield TextPair("", "", number, NOT_TEXT, file)
            elif not is_decodable(source + target):
                yield TextPair("", "", number, UNDECODABLE, file)
            else:
                yield TextPair(source, target, number, "", file)


def _struct_names(field: Any) -> list[str]:
    """Return the name of a column, or outer.inner for each field of a struct."""
    if not hasattr(field.type, "get_all_field_indices"):  # only structs have it
        return [field.name]
    return [f"{field.name}.{field.type.field(index).name}" for index in range(field.type.num_fields)]


def _texts(batch: Any, name: str) -> list[Any]:
    outer, _, inner = name.partition(".")
    column = batch.column(name) if name in batch.schema.names else batch.column(outer).field(inner)
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        values = column.cast("binary").to_pylist()
        return [value and value.decode(errors="surrogateescape") for value in values]
