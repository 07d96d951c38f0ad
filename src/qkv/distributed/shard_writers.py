"""Writing of shards: rows with what was computed for them. Equal rows and outputs give equal bytes.

A shard of text gives lines. A shard of JSONL or Parquet gives the same records, each with new fields. A shard of compressed text
or JSONL gives a compressed one. Vectors are a NumPy array, one row for each row of any shard.
"""

import contextlib
import gzip
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from qkv.base.errors import ConfigError, DataError
from qkv.distributed.shards import VECTORS, Chunk, format_of, import_pyarrow


class RowOutputs(Protocol):
    """The form in which the outputs of rows are written."""

    types: Mapping[str, Any]  # each new field of a record, and its type in Parquet (see `_arrow_type`)

    def lines(self, values: Sequence[Any], outputs: Sequence[Any]) -> Iterable[str]:
        """Return the lines of text for some rows."""
        ...

    def fields(self, value: Any, output: Any) -> dict[str, Any]:
        """Return the new fields of a row's record."""
        ...


def write_shard(path: Path, name: str, form: RowOutputs, rows: Iterable[tuple[Chunk, Any]]) -> int:
    """Write rows with their outputs to `path`, in the format that `name` shows; return their number."""
    kind = VECTORS if name.endswith(VECTORS) else format_of(name)
    write = {"text": _write_lines, "jsonl": _write_records, "parquet": _write_parquet, VECTORS: _write_vectors}[kind or "text"]
    count = 0

    def counted() -> Iterator[tuple[Chunk, Any]]:
        nonlocal count
        for chunk, outputs in rows:
            yield chunk, outputs
            count += len(chunk.values)

    with path.open("wb") as file, _compressed(file, Path(name).suffix.lower()) as stream:
        write(stream, form, counted())
    return count


def _write_lines(stream: Any, form: RowOutputs, rows: Iterable[tuple[Chunk, Any]]) -> None:
    for chunk, outputs in rows:
        for line in form.lines(chunk.values, outputs):
            stream.write(f"{line}\n".encode())


def _write_records(stream: Any, form: RowOutputs, rows: Iterable[tuple[Chunk, Any]]) -> None:
    for chunk, outputs in rows:
        # A shard of text has no records of its own.
        records = [{"text": value} for value in chunk.values] if chunk.records is None else chunk.records
        for number, record, value, output in zip(chunk.numbers, records, chunk.values, outputs, strict=True):
            new = form.fields(value, output)
            if both := record.keys() & new.keys():
                raise DataError(f"row {number:,} has a field {min(both)!r} already, which would be replaced; rename it there")
            try:
                line = json.dumps({**record, **new}, ensure_ascii=False, allow_nan=False).encode()
            except ValueError as error:  # half a character, or a number beyond all numbers
                raise DataError(f"row {number:,}, with {str(value)[:40]!r}, cannot be written again: {error}") from None
            stream.write(line + b"\n")


def _write_parquet(stream: Any, form: RowOutputs, rows: Iterable[tuple[Chunk, Any]]) -> None:
    arrow, parquet = import_pyarrow()
    types = {name: _arrow_type(arrow, kind) for name, kind in form.types.items()}
    with contextlib.ExitStack() as stack:
        writer: Any = None
        for chunk, outputs in rows:
            batch = chunk.records
            if writer is None:
                if both := set(batch.schema.names) & types.keys():
                    raise DataError(f"has a column {min(both)!r} already, which would be replaced; rename it in the shard")
                schema = arrow.schema([*batch.schema, *(arrow.field(*one) for one in types.items())], batch.schema.metadata)
                writer = stack.enter_context(parquet.ParquetWriter(stream, schema))
            new = [form.fields(value, output) for value, output in zip(chunk.values, outputs, strict=True)]
            try:
                columns = [arrow.array([fields[name] for fields in new], kind) for name, kind in types.items()]
            except (arrow.ArrowException, UnicodeError) as error:
                rows_here = f"rows {chunk.numbers[0]:,} to {chunk.numbers[-1]:,}"
                raise DataError(f"the outputs of {rows_here} cannot be written as Parquet: {error}") from None
            writer.write_batch(arrow.RecordBatch.from_arrays([*batch.columns, *columns], schema=schema))


def _arrow_type(arrow: Any, kind: Any) -> Any:
    """Return the type in Parquet of text, a number, a list [of such], or a dict {name: such}."""
    if isinstance(kind, dict):
        return arrow.struct([arrow.field(name, _arrow_type(arrow, inner)) for name, inner in kind.items()])
    if isinstance(kind, list):
        return arrow.list_(_arrow_type(arrow, kind[0]))
    return arrow.string() if kind is str else arrow.float64()


def _write_vectors(stream: Any, form: RowOutputs, rows: Iterable[tuple[Chunk, Any]]) -> None:
    header: dict[str, Any] = {}
    count = 0
    for _, vectors in rows:
        if not header:
            header = np.lib.format.header_data_from_array_1_0(np.ascontiguousarray(vectors))
            np.lib.format.write_array_header_1_0(stream, header)
        stream.write(vectors.tobytes())
        count += len(vectors)
    if not header:
        raise DataError("has no text to embed; leave it out")
    # The header has room for any number of rows.
    stream.seek(0)
    np.lib.format.write_array_header_1_0(stream, {**header, "shape": (count, *header["shape"][1:])})


@contextlib.contextmanager
def _compressed(file: Any, suffix: str) -> Iterator[Any]:
    """Yield a stream that compresses into a file, as its suffix says; the result has no time and no name in it."""
    if suffix == ".gz":
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as stream:
            yield stream
    elif suffix == ".xz":
        with lzma.open(file, "wb") as stream:
            yield stream
    elif suffix == ".zst":
        try:
            import zstandard
        except ImportError:
            raise ConfigError("shards in .zst need zstandard: pip install 'qkv[data]'") from None
        with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as stream:
            yield stream
    else:
        yield file
