"""A binary file that is memory-mapped and read from front to back, with errors that name the byte."""

import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.errors import DataError
from qkv.text.files import COMPRESSED, open_uncompressed

FLOAT = np.dtype("<f4")


class BinaryReader:
    """A cursor over the bytes of a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0
        with open_uncompressed(path) as file:
            mappable = path.suffix not in COMPRESSED and path.stat().st_size
            self.data: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if mappable else file.read()

    def __len__(self) -> int:
        return len(self.data)

    def unpack(self, format: str, what: str) -> tuple[Any, ...]:
        """Read little-endian values by their letters in `struct`."""
        start = self._advance(struct.calcsize(f"<{format}"), what)
        return struct.unpack_from(f"<{format}", self.data, start)

    def floats(self, count: int, what: str) -> np.ndarray:
        """Return the next `count` float32 as a view of the file, (count,)."""
        start = self._advance(count * FLOAT.itemsize, what)
        return np.frombuffer(self.data, FLOAT, count, start)

    def string(self, terminator: bytes, max_bytes: int, what: str) -> str:
        """Read UTF-8 up to a terminator byte, and skip the terminator."""
        stop = self.data.find(terminator, self.offset, self.offset + max_bytes)
        if stop < 0:
            truncated = self.offset + max_bytes > len(self)
            reason = "the file ends" if truncated else f"there is no end to it within {max_bytes} bytes"
            raise self.error(f"{what} was expected, but {reason}")
        raw = self.data[self.offset : stop]
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{self.path}, byte {self.offset + error.start}: {what} is not UTF-8") from None
        self.offset = stop + 1
        return text

    def error(self, reason: str) -> DataError:
        """Build an error about the current offset."""
        return DataError(
            f"{self.path}, byte {self.offset}: {reason}; "
            "the file is damaged, or has another format (`qkv vectors convert --from`)"
        )

    def _advance(self, count: int, what: str) -> int:
        """Skip `count` bytes; return the offset before them."""
        if count < 0 or self.offset + count > len(self):
            raise self.error(f"cut short: {what} needs {count:,} bytes, {len(self) - self.offset:,} are left")
        self.offset += count
        return self.offset - count
