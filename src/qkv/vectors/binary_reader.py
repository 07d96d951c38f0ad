"""The bytes of a binary file, mapped into memory, and the complaint where they end too soon."""

import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.errors import DataError
from qkv.text.files import COMPRESSED, open_uncompressed

FLOAT = np.dtype("<f4")


class Bytes:
    """A file that is read from front to back."""

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, 0
        with open_uncompressed(path) as file:
            plain = path.suffix not in COMPRESSED and path.stat().st_size
            self.data: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if plain else file.read()

    def __len__(self) -> int:
        return len(self.data)

    def numbers(self, kinds: str, what: str) -> tuple[Any, ...]:
        """Numbers by their letters in `struct`, the lowest byte first."""
        start = self._pass(struct.calcsize(f"<{kinds}"), what)
        return struct.unpack_from(f"<{kinds}", self.data, start)

    def floats(self, count: int, what: str) -> np.ndarray:
        """So many float32, still in the file, (count,)."""
        start = self._pass(count * FLOAT.itemsize, what)
        return np.frombuffer(self.data, FLOAT, count, start)

    def text(self, end: bytes, longest: int, what: str) -> str:
        """The text up to a byte, which is passed too."""
        stop = self.data.find(end, self.at, self.at + longest)
        if stop < 0:
            short = self.at + longest > len(self)
            why = "the file ends" if short else f"there is no end to it within {longest} bytes"
            raise self.wrong(f"{what} was expected, but {why}")
        raw = self.data[self.at : stop]
        try:
            word = raw.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{self.path}, byte {self.at + error.start}: {what} is not UTF-8") from None
        self.at = stop + 1
        return word

    def wrong(self, why: str) -> DataError:
        """A complaint about the place that has been reached."""
        return DataError(
            f"{self.path}, byte {self.at}: {why}; the file is damaged, or of another format (`qkv vectors convert --from`)"
        )

    def _pass(self, count: int, what: str) -> int:
        if count < 0 or self.at + count > len(self):
            raise self.wrong(f"cut short: {what} needs {count:,} bytes, {len(self) - self.at:,} are left")
        self.at += count
        return self.at - count
