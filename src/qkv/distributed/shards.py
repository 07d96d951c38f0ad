"""Shards: files of text, JSONL or Parquet, found on a disk or an object store, and read in chunks of rows."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qkv.base.errors import ConfigError, DataError
from qkv.base.urls import exists, file_name, is_url, list_files
from qkv.distributed.manifest import BATCH_MANIFEST
from qkv.text.files import COMPRESSED, read_lines
from qkv.text.pair import is_decodable

CHUNK = 2048  # rows computed at once; batches of texts of similar length are made among them
PARQUET_BUFFER = 1 << 20  # bytes read at once, of each column
FORMATS = {".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
KNOWN = "text (.txt), JSONL (.jsonl) or Parquet (.parquet); text and JSONL may be compressed (.gz, .xz, .zst)"
VECTORS = ".npy"


class Shard(NamedTuple):
    """An input: where it is, and its name, which is unique among those of one command."""

    location: str
    name: str


def format_of(name: str) -> str | None:
    """Return the format that a file's name shows: text, jsonl or parquet; None for any other."""
    lower = name.lower()
    plain = Path(lower).stem if Path(lower).suffix in COMPRESSED else lower
    found = FORMATS.get(Path(plain).suffix)
    return None if found == "parquet" and plain != lower else found


def find_shards(inputs: Sequence[str]) -> tuple[list[Shard], list[str]]:
    """Return the shards that files, folders and patterns name, and the files there that are no shards."""
    shards, others = dict[str, Shard](), list[str]()
    for given in inputs:
        given = given if is_url(given) else str(Path(given).expanduser().absolute())
        is_file = exists(given)
        found = [given] if is_file else list_files(given)
        if not found:
            raise DataError(f"{given}: no such file, or no file there; name shards, a folder of them or a pattern")
        for location in found:
            name = file_name(location)
            if format_of(name) is None:
                if is_file:
                    raise ConfigError(f"{location}: its name does not say that it is a shard of {KNOWN}")
                others += [location] if name != BATCH_MANIFEST else []
            elif shards.setdefault(name, Shard(location, name)).location != location:
                raise ConfigError(f"{shards[name].location} and {location} would both be written as {name}; rename one of them")
    if not shards:
        raise DataError(f"{inputs[0]}: no shards there, of {KNOWN}")
    return sorted(shards.values(), key=lambda shard: shard.name), others


def output_name(name: str, suffix: str) -> str:
    """Return the name of a shard's output: its own, with `suffix` where the format of the output is another one."""
    compressed = Path(name).suffix if Path(name).suffix.lower() in COMPRESSED else ""
    return name if not suffix else name.removesuffix(compressed) + suffix + (compressed if suffix != VECTORS else "")


class Chunk(NamedTuple):
    """Some rows of a shard: a value for each, or a tuple of several, and the records that they come from."""

    values: list[Any]
    numbers: list[int]  # of the rows: lines of text and JSONL
    records: Any  # dicts of JSONL, a batch of Parquet, None for text


def read_chunks(path: Path, columns: Sequence[str]) -> Iterator[Chunk]:
    """Yield the rows of a shard; `columns` are keys of JSONL or columns of Parquet, and tabs stand between them in text."""
    kind = format_of(path.name)
    if kind == "parquet":
        yield from _parquet_chunks(path, columns)
        return
    chunk = Chunk([], [], [] if kind == "jsonl" else None)
    for number, line in enumerate(read_lines(path), 1):
        if line is None:
            raise DataError(f"line {number:,} is not UTF-8 text; convert it with iconv")
        line = line.removesuffix("\r")
        if kind == "jsonl":
            if not line.strip():
                continue
            chunk.records.append(_parse_record(line, number))
            chunk.values.append(_values([chunk.records[-1].get(name) for name in columns], columns, number))
        else:
            cells = line.split("\t") if len(columns) > 1 else [line]
            if len(cells) != len(columns):
                wanted = ", a tab and ".join(columns)
                raise DataError(f"line {number:,} has {len(cells) - 1} tabs; each line must be {wanted}")
            chunk.values.append(_values(cells, columns, number))
        chunk.numbers.append(number)
        if len(chunk.values) == CHUNK:
            yield chunk
            chunk = Chunk([], [], None if chunk.records is None else [])
    if chunk.values:
        yield chunk


def _parse_record(line: str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"line {number:,} is not valid JSON ({str(error)[:100]}); it may be damaged or cut short") from None
    if not isinstance(record, dict):
        raise DataError(f"line {number:,} is a JSON {type(record).__name__}; an object with keys is wanted")
    return record


def _values(found: Sequence[Any], columns: Sequence[str], number: int) -> Any:
    """Return the values of a row; a single one by itself. They are texts, or lists of words."""
    for name, value in zip(columns, found, strict=True):
        words = value if isinstance(value, list) else [value]
        if not all(isinstance(word, str) for word in words):
            got = "none" if value is None else type(value).__name__
            raise DataError(f"row {number:,} has {got} for {name!r}, a text is wanted; check the name of the column")
        if not all(map(is_decodable, words)):
            raise DataError(f"row {number:,} has half a character for {name!r} (an escape of JSON); write both halves")
    return found[0] if len(columns) == 1 else tuple(found)


def _parquet_chunks(path: Path, columns: Sequence[str]) -> Iterator[Chunk]:
    arrow, parquet = import_pyarrow()
    number = 0
    try:
        # Pages are read as they are needed, not a whole row group.
        with parquet.ParquetFile(path, buffer_size=PARQUET_BUFFER, pre_buffer=False) as table:
            names = table.schema_arrow.names
            for name in columns:
                if name not in names:
                    raise DataError(f"no column {name!r}; there are: {', '.join(names)[:200]}")
            for batch in table.iter_batches(batch_size=CHUNK):
                rows = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
                numbers = [*range(number + 1, number + 1 + batch.num_rows)]
                yield Chunk([_values(row, columns, n) for n, row in zip(numbers, rows, strict=True)], numbers, batch)
                number += batch.num_rows
            if not number:  # its columns are still to be written
                yield Chunk([], [], arrow.RecordBatch.from_pylist([], schema=table.schema_arrow))
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"cannot be read as Parquet: {str(error).partition(chr(10))[0][:150]}; fetch it again") from None


def import_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and pyarrow.parquet."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError("shards of Parquet need pyarrow: pip install 'qkv[data]'") from None
    return pyarrow, pyarrow.parquet
