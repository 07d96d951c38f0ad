"""Files to read text from: on a disk, behind a URL, or the lines within a range of bytes of either.

Readers use what these have in common with `pathlib.Path`: `name`, `suffix`, `stem`, `open("rb")`, and `str` for messages.
"""

import io
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from qkv.base.urls import file_name, find_info, is_url, open_binary


@dataclass(frozen=True)
class UrlFile:
    """A file behind a URL, read by ranges."""

    location: str

    @property
    def name(self) -> str:
        return file_name(self.location)

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def suffixes(self) -> list[str]:
        return PurePosixPath(self.name).suffixes

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    def open(self, mode: str = "rb", buffering: int = -1) -> BinaryIO:
        """Open the file for reading bytes, with seeking; `buffering` of more than 1 is the number of bytes read at once."""
        assert mode == "rb"
        return open_binary(self.location, buffering if buffering > 1 else None)

    def __str__(self) -> str:
        return self.location


@dataclass(frozen=True)
class FilePiece:
    """The lines of a file that begin within a range of bytes."""

    file: Path | UrlFile
    start: int
    stop: int

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def suffix(self) -> str:
        return self.file.suffix

    @property
    def suffixes(self) -> list[str]:
        return self.file.suffixes

    @property
    def stem(self) -> str:
        return self.file.stem

    def open(self, mode: str = "rb", buffering: int = -1) -> BinaryIO:
        """Open the lines for reading bytes, from the first to the last."""
        assert mode == "rb"
        return io.BufferedReader(_Lines(self.file.open("rb"), self.start, self.stop))

    def __str__(self) -> str:
        return f"{self.file} (from byte {self.start:,})" if self.start else str(self.file)  # lines are counted from there


WholeFile = Path | UrlFile
InputFile = WholeFile | FilePiece


class _Lines(io.RawIOBase):
    """The bytes of the lines that begin within a range; the last one may end after it."""

    def __init__(self, file: BinaryIO, start: int, stop: int):
        self.file = file
        if start:
            file.seek(start - 1)
            file.readline()  # the line that began before the range, or the line feed in front of it
        self.left = stop - file.tell()
        self.rest = memoryview(b"")  # what the last line has after the range

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.left > 0:
            block = self.file.read(min(len(buffer), self.left))
            self.left = self.left - len(block) if block else 0
            if self.left == 0 and block and not block.endswith(b"\n"):
                self.rest = memoryview(self.file.readline())
        else:
            block = bytes(self.rest[: len(buffer)])
            self.rest = self.rest[len(block) :]
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self.file.close()
        super().close()


def input_file(location: str) -> WholeFile:
    """Return the file at a path or a URL."""
    return UrlFile(location) if is_url(location) else Path(location)


def file_size(file: WholeFile) -> int | None:
    """Return the size of a file in bytes; None where a server does not say."""
    return find_info(file.location).size if isinstance(file, UrlFile) else file.stat().st_size
