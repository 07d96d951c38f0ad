"""Arrays in a safetensors file: written without a copy in memory, read by memory-mapping."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qkv.base.errors import DataError

DTYPES: dict[str, np.dtype] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "I64": np.dtype("<i8")}
MAX_HEADER = 100_000_000  # bytes, the limit of the format


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write float32, float16 and int64 arrays by name, with metadata in the header."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, array in tensors.items():
        start, end = end, end + array.nbytes
        dtype = next(name for name, known in DTYPES.items() if known == array.dtype)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # aligns the arrays
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).data)  # ndarray.tofile does not report a full disk


def map_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays of a file, memory-mapped and read-only, and its metadata."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length <= MAX_HEADER else None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise DataError(f"{path}: is not a safetensors file, or its header is damaged; save it again")
    metadata = header.pop("__metadata__", {})
    try:
        return {name: _map_tensor(path, 8 + length, entry) for name, entry in header.items()}, metadata
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: a damaged safetensors header: {error}; save it again") from None


def _map_tensor(path: Path, data_offset: int, entry: dict) -> np.ndarray:
    """Map one array; `entry` is its header, `data_offset` the byte at which the arrays begin."""
    shape, (start, end) = tuple(entry["shape"]), entry["data_offsets"]
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"dtype {entry['dtype']}, where one of {', '.join(DTYPES)} was expected")
    dtype = DTYPES[entry["dtype"]]
    if end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{end - start} bytes for an array of shape {shape}")
    if data_offset + end > (size := path.stat().st_size):
        raise DataError(f"{path}: cut short: {size:,} bytes, {data_offset + end:,} were expected; copy it again")
    if start == end:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", data_offset + start, shape)
