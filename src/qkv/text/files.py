"""Opening corpus files: plain or compressed, UTF-8, lines split on "\\n" only.

Every trouble with a file ends in one DataError; a line that is not UTF-8 is reported to the caller and reading goes on.
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

COMPRESSED = (".gz", ".xz", ".zst")
BLOCK = 1 << 16
MARK = b"\xef\xbb\xbf"  # of UTF-8's byte order
OTHER_KINDS = {
    b"\x1f\x8b": "is compressed by gzip; give it a name that ends in .gz",
    b"\xfd7zXZ": "is compressed by xz; give it a name that ends in .xz",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; give it a name that ends in .zst",
    b"PK\x03\x04": "is a zip archive or a spreadsheet; unpack it, or save it as TSV",
    b"PAR1": "is Parquet; give it a name that ends in .parquet, or say format: parquet",
    b"\xff\xfe": "is UTF-16; convert it with: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "is UTF-16; convert it with: iconv -f UTF-16 -t UTF-8",
}


def find_files(pattern: str) -> list[Path]:
    """The files that a path or a glob names, sorted; at least one."""
    path = Path(pattern).expanduser()
    try:
        files = [path] if path.exists() else _globbed(path)
        if path.is_dir():
            raise DataError(f"{path}: is a folder; name a file in it, or several such as {path / '*.tsv'}")
    except (OSError, ValueError) as error:  # a folder closed to us, a name too long, ** inside a name
        raise DataError(f"{pattern[:200]}: cannot be looked up: {error.args[-1]}") from None
    if not files:
        wanted = "no file matches this pattern" if any(sign in pattern for sign in "*?[") else "no such file"
        raise DataError(f"{path}: {wanted}; check the path, seen from {Path.cwd()}")
    return files


def _globbed(path: Path) -> list[Path]:
    root = Path(path.anchor)
    return sorted(file for file in root.glob(str(path.relative_to(root))) if file.is_file())


def uncompressed_suffix(path: Path) -> str:
    """The ending that tells the format: .tsv for both a.tsv and a.tsv.gz."""
    return Path(path.stem if path.suffix in COMPRESSED else path.name).suffix.lower()


@contextlib.contextmanager
def open_uncompressed(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for its uncompressed bytes; trouble on the way becomes a DataError."""
    try:
        with _open(path) as file:
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
    """The uncompressed bytes of a .zst file; zstandard's own reader takes a file cut short for a whole one."""

    def __init__(self, path: Path) -> None:
        try:
            import zstandard
        except ImportError:
            raise ConfigError(f"{path}: reading .zst needs zstandard: pip install 'qkv[data]'") from None
        self.library: Any = zstandard
        self.file: BinaryIO = path.open("rb")
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
        """Unpack the next block into `ready`; False at the end of the file."""
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

    def close(self) -> None:
        self.file.close()
        super().close()


UNPACK: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".zst": _Zstd}


def _open(path: Path) -> io.BufferedReader:
    """The uncompressed bytes behind a large buffer, as line reading in gzip and lzma themselves is slow."""
    raw = UNPACK[path.suffix](path) if path.suffix in UNPACK else path.open("rb", buffering=0)
    return io.BufferedReader(raw, BLOCK)


def read_lines(path: Path) -> Iterator[str | None]:
    """The lines of a text file without their "\\n"; None stands for a line that is not UTF-8."""
    for line in read_byte_lines(path):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            yield None


def read_byte_lines(path: Path, encoding: str = "utf-8") -> Iterator[bytes]:
    """The lines of a text file, undecoded, without their "\\n" and without a byte order mark."""
    with _reading_text(path, encoding) as file:
        for line in file:
            yield line[:-1] if line.endswith(b"\n") else line


def read_byte_chunks(path: Path, longest: int) -> Iterator[bytes]:
    """The lines of a text file, undecoded, with "\n" after each; one of more bytes comes in parts, cut where a word ends."""
    with _reading_text(path, "utf-8") as file:
        rest = b""
        while block := file.readline(longest):
            part, whole = rest + block, len(block) < longest or block.endswith(b"\n")
            end = len(part) if whole else _word_end(part)
            rest = part[end:]
            yield part[:end] if part.endswith(b"\n") or not whole else part + b"\n"
        if rest:
            yield rest + b"\n"


def _word_end(part: bytes) -> int:
    """How much of a part of a line is whole words; without white space, whole characters."""
    if end := max(part.rfind(b" "), part.rfind(b"\t")) + 1:
        return end
    starts = (place for place in range(len(part) - 1, 0, -1) if part[place] & 0xC0 != 0x80)
    return next(starts, len(part))


@contextlib.contextmanager
def _reading_text(path: Path, encoding: str) -> Iterator[io.BufferedReader]:
    """Open a file of text after its byte order mark, if it has one; what is no text is refused."""
    with open_uncompressed(path) as file:
        _refuse_binary(path, file.peek(BLOCK)[:BLOCK], encoding)
        if file.peek(len(MARK))[: len(MARK)] == MARK:
            file.read(len(MARK))
        yield file


def read_text(path: Path) -> str:
    """A whole text file, for formats that cannot be read by line."""
    with open_uncompressed(path) as file:
        content = file.read()
    _refuse_binary(path, content[:BLOCK], "utf-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}; convert it with iconv") from None


def _refuse_binary(path: Path, block: bytes, encoding: str) -> None:
    """Tell text from anything else by a file's first bytes."""
    for start, advice in OTHER_KINDS.items():
        if block.startswith(start):
            raise DataError(f"{path}: {advice}")
    if b"\0" in block[:8192]:
        raise DataError(f"{path}: is a binary file (it holds NUL bytes); text in UTF-8 is wanted")
    if encoding == "utf-8":
        text = block.decode(errors="replace")
        if text.count("\ufffd") > 0.3 * len(text):
            raise DataError(f"{path}: is binary or in another encoding than UTF-8; convert it with iconv")
