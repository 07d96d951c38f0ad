"""Reading of corpus files: plain or compressed, UTF-8, with lines split on "\\n" only.

Every error in opening or decompressing becomes a DataError. A line that is not UTF-8 is yielded as None.
"""

import contextlib
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from qkv.base.errors import ConfigError, DataError
from qkv.base.urls import is_url, list_files
from qkv.text.input_files import InputFile, UrlFile, WholeFile

COMPRESSED = (".gz", ".xz", ".zst")
BLOCK = 1 << 16
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NOT_TEXT = {  # first bytes of files that are not UTF-8 text
    b"\x1f\x8b": "is compressed by gzip; give it a name that ends in .gz",
    b"\xfd7zXZ": "is compressed by xz; give it a name that ends in .xz",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; give it a name that ends in .zst",
    b"PK\x03\x04": "is a zip archive or a spreadsheet; unpack it, or save it as TSV",
    b"PAR1": "is Parquet; give it a name that ends in .parquet, or say format: parquet",
    b"\xff\xfe": "is UTF-16; convert it with: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "is UTF-16; convert it with: iconv -f UTF-16 -t UTF-8",
}


def find_input_files(pattern: str) -> list[WholeFile]:
    """Return the files that match a path, a glob or a URL (which may hold a glob too), sorted; at least one."""
    if not is_url(pattern):
        return [*find_files(pattern)]
    found = list_files(pattern)
    if not found:
        raise DataError(f"{pattern}: no such file there; check the address, and that you may list its folder")
    if found != [pattern] and not any(sign in pattern for sign in "*?["):
        raise DataError(f"{pattern}: is a folder; name a file in it, or several such as {pattern.rstrip('/')}/*.tsv")
    return [UrlFile(url) for url in found]


def find_files(pattern: str) -> list[Path]:
    """Return the files on this machine that match a path or a glob, sorted; at least one."""
    if is_url(pattern):
        raise DataError(f"{pattern}: a file on this machine is wanted here; fetch it, and give its path")
    path = Path(pattern).expanduser()
    try:
        root = Path(path.anchor)
        matches = [path] if path.exists() else sorted(root.glob(str(path.relative_to(root))))
        files = [file for file in matches if file == path or file.is_file()]
        if path.is_dir():
            raise DataError(f"{path}: is a folder; name a file in it, or several such as {path / '*.tsv'}")
    except (OSError, ValueError) as error:  # no permission, a name too long, ** inside a name
        raise DataError(f"{pattern[:200]}: cannot be looked up: {error.args[-1]}") from None
    if not files:
        wanted = "no file matches this pattern" if any(sign in pattern for sign in "*?[") else "no such file"
        raise DataError(f"{path}: {wanted}; check the path, seen from {Path.cwd()}")
    return files


def uncompressed_suffix(path: InputFile) -> str:
    """Return the suffix that shows the format: .tsv for both a.tsv and a.tsv.gz."""
    return Path(path.stem if path.suffix in COMPRESSED else path.name).suffix.lower()


@contextlib.contextmanager
def open_uncompressed(path: InputFile) -> Iterator[io.BufferedReader]:
    """Open a file for reading its uncompressed bytes; errors become a DataError."""
    try:
        with path.open("rb", buffering=0) as packed:
            raw: Any = DECOMPRESSORS[path.suffix](packed) if path.suffix in DECOMPRESSORS else packed
            with io.BufferedReader(raw, BLOCK) as file:  # a large buffer, as gzip and lzma read lines slowly
                yield file
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder, not a file") from None
    except PermissionError:
        raise DataError(f"{path}: not allowed to read it; change its permissions") from None
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: damaged, cut short, or not a {path.suffix} file ({error}); fetch it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


class _Zstd(io.RawIOBase):
    """The uncompressed bytes of a .zst file; zstandard's own reader accepts a truncated file."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError:
            raise ConfigError(
                f"{getattr(file, 'name', 'the file')}: reading .zst needs zstandard: pip install 'qkv[data]'"
            ) from None
        self.library: Any = zstandard
        self.file = file
        self.frame: Any = None
        self.packed = b""
        self.ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.ready and self._more():
            pass
        size = min(memoryview(buffer).nbytes, len(self.ready))
        memoryview(buffer)[:size] = self.ready[:size]
        self.ready = self.ready[size:]
        return size

    def _more(self) -> bool:
        """Decompress the next block into `ready`; return False at the end of the file."""
        block = self.packed or self.file.read(1 << 14)
        if not block:
            if self.frame is not None:
                raise EOFError("it ends inside a frame")
            return False
        self.frame = self.frame or self.library.ZstdDecompressor().decompressobj()
        try:
            self.ready = memoryview(self.frame.decompress(block))
        except self.library.ZstdError as error:
            raise EOFError(error) from None
        self.packed = self.frame.unused_data
        if self.frame.eof:
            self.frame = None
        return True


DECOMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".zst": _Zstd}


def read_lines(path: InputFile) -> Iterator[str | None]:
    """Yield the lines of a text file without their "\\n"; None for a line that is not UTF-8."""
    for line in read_byte_lines(path):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            yield None


def read_byte_lines(path: InputFile) -> Iterator[bytes]:
    """Yield the lines of a text file as bytes, without their "\\n" and without a byte order mark."""
    with _open_text(path) as file:
        for line in file:
            yield line[:-1] if line.endswith(b"\n") else line


def read_byte_chunks(path: InputFile, longest: int) -> Iterator[bytes]:
    """Yield the lines of a text file as bytes, each with "\\n".

    A line of more than `longest` bytes comes in parts of whole words.
    """
    with _open_text(path) as file:
        rest = b""
        while block := file.readline(longest):
            part, whole = rest + block, len(block) < longest or block.endswith(b"\n")
            end = len(part) if whole else _word_end(part)
            rest = part[end:]
            yield part[:end] if part.endswith(b"\n") or not whole else part + b"\n"
        if rest:
            yield rest + b"\n"


def _word_end(part: bytes) -> int:
    """Return the length of the whole words in a part of a line; without white space, of the whole characters."""
    if end := max(part.rfind(b" "), part.rfind(b"\t")) + 1:
        return end
    starts = (index for index in range(len(part) - 1, 0, -1) if part[index] & 0xC0 != 0x80)
    return next(starts, len(part))


@contextlib.contextmanager
def _open_text(path: InputFile) -> Iterator[io.BufferedReader]:
    """Open a text file after its byte order mark, if it has one; refuse binary files."""
    with open_uncompressed(path) as file:
        _refuse_binary(path, file.peek(BLOCK)[:BLOCK])
        if file.peek(len(BYTE_ORDER_MARK))[: len(BYTE_ORDER_MARK)] == BYTE_ORDER_MARK:
            file.read(len(BYTE_ORDER_MARK))
        yield file


def read_text(path: InputFile, encoding: str = "utf-8", errors: str = "strict") -> str:
    """Read a whole text file, for formats that cannot be read by line."""
    with open_uncompressed(path) as file:
        content = file.read()
    _refuse_binary(path, content[:BLOCK], encoding)
    try:
        return content.removeprefix(BYTE_ORDER_MARK).decode(encoding, errors)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}; convert it with iconv") from None


def _refuse_binary(path: InputFile, block: bytes, encoding: str = "utf-8") -> None:
    """Refuse a file whose first bytes are not text."""
    for start, advice in NOT_TEXT.items():
        if block.startswith(start):
            raise DataError(f"{path}: {advice}")
    if b"\0" in block[:8192]:
        raise DataError(f"{path}: is a binary file (it holds NUL bytes); text in UTF-8 is wanted")
    if encoding == "utf-8":
        text = block.decode(errors="replace")
        if text.count("\ufffd") > 0.3 * len(text):
            raise DataError(f"{path}: is binary or in another encoding than UTF-8; convert it with iconv")
