"""Arrays in a safetensors file: written without a copy in memory, read by mapping the file into it."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qkv.base.errors import DataError

KINDS: dict[str, np.dtype] = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
LONGEST_HEADER = 100_000_000  # bytes; what the format itself allows


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], notes: Mapping[str, str]) -> None:
    """Write float32 and int64 arrays under their names, with notes in the header."""
    header: dict[str, object] = {"__metadata__": dict(notes)} if notes else {}
    end = 0
    for name, array in tensors.items():
        start, end = end, end + array.nbytes
        kind = next(name for name, known in KINDS.items() if known == array.dtype)
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # arrays begin where any processor likes to read numbers
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).data)  # ndarray.tofile would not say that the disk is full


def map_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a file, mapped into memory and not to be written to, and the notes of its header."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length)) if length <= LONGEST_HEADER else None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise DataError(f"{path}: is not a safetensors file, or is damaged in its header; save it again")
    notes = header.pop("__metadata__", {})
    try:
        return {name: _mapped(path, 8 + length, about) for name, about in header.items()}, notes
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: a damaged safetensors header: {error}; save it again") from None


def _mapped(path: Path, data: int, about: dict) -> np.ndarray:
    """One array of a file whose arrays begin at byte `data`."""
    shape, (start, end) = tuple(about["shape"]), about["data_offsets"]
    if about["dtype"] not in KINDS:
        raise ValueError(f"numbers of kind {about['dtype']}, where one of {', '.join(KINDS)} was expected")
    kind = KINDS[about["dtype"]]
    if end - start != math.prod(shape) * kind.itemsize:
        raise ValueError(f"{end - start} bytes for an array of shape {shape}")
    if data + end > (size := path.stat().st_size):
        raise DataError(f"{path}: cut short: {size:,} bytes, {data + end:,} were expected; copy it again")
    if start == end:
        return np.zeros(shape, kind)
    return np.memmap(path, kind, "r", data + start, shape)
