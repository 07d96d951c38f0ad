"""The text formats of word2vec and GloVe, and word2vec's binary format.

A text line is a word and its numbers. word2vec's files begin with a header line, the number of words and the width; GloVe's have
none. In binary files float32 numbers follow each word and a space.
"""

import itertools
import warnings
from pathlib import Path

import numpy as np

from qkv.base.errors import DataError, QkvWarning
from qkv.base.files import atomic_file
from qkv.text.files import COMPRESSED, read_byte_lines
from qkv.vectors.binary_reader import FLOAT, BinaryReader
from qkv.vectors.word_vectors import WordVectors

MAX_WORD = 4096  # bytes
BLOCK = 4096  # lines read or written at once
DIGITS = "%.9g"  # enough digits to read the same float32 back


def read_text_vectors(path: Path, header: bool) -> WordVectors:
    """Read word2vec's text format (with a header; fastText's .vec too) or GloVe's (without)."""
    lines = enumerate(read_byte_lines(path), 1)
    count, width = _parse_header(path, next(lines, (1, b""))[1]) if header else (0, 0)
    _check_size(path, count, 2 * width + 1)
    words: list[str] = []
    matrix = np.empty((count, width), np.float32)
    nonblank = (numbered for numbered in lines if numbered[1].strip())
    while block := list(itertools.islice(nonblank, BLOCK)):
        new, rows = _parse_plain_block(block, width) or _parse_lines(path, block, width)
        width = rows.shape[1]
        if (end := len(words) + len(new)) > len(matrix):
            matrix.resize((max(end, 2 * len(words)), width), refcheck=False)
        matrix[len(words) : end] = rows
        words += new
    if not words or (header and len(words) != count):
        wanted = f"the header promises {count:,}" if header else "at least one was expected"
        raise DataError(f"{path}: {len(words):,} words, {wanted}; the file is cut short or its header is wrong")
    matrix.resize((len(words), width), refcheck=False)
    return WordVectors(words, matrix)


def _parse_plain_block(lines: list[tuple[int, bytes]], width: int) -> tuple[list[str], np.ndarray] | None:
    """Parse many lines at once; return None unless each is a word without spaces and `width` finite numbers."""
    parts = [line.rstrip().partition(b" ") for _, line in lines]
    if not all(word and rest.count(b" ") == width - 1 for word, _, rest in parts):
        return None
    numbers = _parse_floats(b" ".join(rest for _, _, rest in parts))
    if numbers is None or len(numbers) != width * len(lines) or not np.isfinite(numbers).all():
        return None
    try:
        return [word.decode() for word, _, _ in parts], numbers.reshape(-1, width)
    except UnicodeDecodeError:
        return None


def _parse_lines(path: Path, lines: list[tuple[int, bytes]], width: int) -> tuple[list[str], np.ndarray]:
    """Parse lines one by one, so that an error names its line."""
    words, rows = [], []
    for number, line in lines:
        word, row = _parse_line(path, number, line, width)
        width = len(row)
        words.append(word)
        rows.append(row)
    return words, np.stack(rows)


def _parse_line(path: Path, number: int, line: bytes, width: int) -> tuple[str, np.ndarray]:
    """Return the word and the numbers of a line; a width of 0 accepts any."""
    word, _, rest = line.partition(b" ")
    row = _parse_floats(rest)
    if width and row is None:  # words of some files contain spaces
        word, *fields = line.rstrip().rsplit(b" ", width)
        other = _parse_floats(b" ".join(fields))
        row = other if other is not None and len(other) == width else row
    if row is None or len(row) != (width or max(len(row), 1)):
        got = "something else" if row is None else f"{len(row)}"
        raise DataError(f"{path}, line {number}: a word and {width or 'some'} numbers were expected, got {got}")
    if not np.isfinite(row).all():
        raise DataError(f"{path}, line {number}: a number is not finite; leave the line out")
    if not word:
        raise DataError(f"{path}, line {number}: begins with a space where a word was expected; leave the line out")
    try:
        return word.decode(), row
    except UnicodeDecodeError:
        raise DataError(f"{path}, line {number}: the word is not UTF-8; convert the file or leave the line out") from None


def _parse_floats(text: bytes) -> np.ndarray | None:
    """Parse numbers separated by white space; return None if one of them is no number."""
    try:
        with np.errstate(over="ignore"):  # too large numbers become infinite, and are refused as such
            return np.array([*map(float, text.split())], np.float64).astype(np.float32)
    except ValueError:
        return None


def _parse_header(path: Path, line: bytes) -> tuple[int, int]:
    """Return the number of words and the width."""
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields) or not all(map(int, fields)):
        got = line[:40].decode(errors="replace")
        raise DataError(
            f"{path}, line 1: a header such as `400000 50` (words, width) was expected, got {got!r}; "
            "a file without a header has the format glove"
        )
    return int(fields[0]), int(fields[1])


def _check_size(path: Path, count: int, bytes_each: int) -> None:
    """Refuse a header that promises more than the file can hold, before allocating memory for it."""
    if path.suffix not in COMPRESSED and (size := path.stat().st_size) < count * bytes_each:
        least = f"which take {count * bytes_each:,} bytes at least"
        raise DataError(f"{path}: its header promises {count:,} words, {least}, and it has {size:,}; it is cut short or wrong")


def read_binary_vectors(path: Path) -> WordVectors:
    """Read word2vec's binary format."""
    reader = BinaryReader(path)
    line = bytes(reader.data[: reader.data.find(b"\n", 0, MAX_WORD) + 1])
    count, width = _parse_header(path, line)
    reader.offset = len(line)
    if len(reader) < count * (FLOAT.itemsize * width + 2):
        raise reader.error(f"the header promises {count:,} words of {width} numbers, but the file has only {len(reader):,} bytes")
    words, matrix = [], np.empty((count, width), np.float32)
    for row in range(count):
        words.append(reader.string(b" ", MAX_WORD, f"word {row + 1:,}").lstrip("\n"))
        matrix[row] = reader.floats(width, f"the vector of {words[-1]!r}")
        if not words[-1] or not np.isfinite(matrix[row]).all():
            raise reader.error(f"word {row + 1:,} is empty or its numbers are not finite")
    if bytes(reader.data[reader.offset : reader.offset + 2]) not in (b"", b"\n"):
        raise reader.error(f"{len(reader) - reader.offset:,} bytes more than the header promises")
    return WordVectors(words, matrix)


def write_text_vectors(vectors: WordVectors, path: Path, header: bool) -> None:
    """Write word2vec's text format (with a header) or GloVe's (without)."""
    rows = _writable_rows(vectors)
    template = " ".join([DIGITS] * vectors.width) + "\n"
    with atomic_file(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(rows)} {vectors.width}\n" if header else "")
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            numbers = vectors.matrix[block].tolist()
            file.writelines(f"{vectors.words[row]} {template % tuple(n)}" for row, n in zip(block, numbers, strict=True))


def write_binary_vectors(vectors: WordVectors, path: Path) -> None:
    """Write word2vec's binary format."""
    rows = _writable_rows(vectors)
    with atomic_file(path) as aside, aside.open("wb") as file:
        file.write(f"{len(rows)} {vectors.width}\n".encode())
        for row in rows:
            file.write(vectors.words[row].encode() + b" " + vectors.matrix[row].astype(FLOAT).tobytes() + b"\n")


def _writable_rows(vectors: WordVectors) -> list[int]:
    """Return the rows of words without spaces or line breaks; warn about the others."""
    rows = [row for row, word in enumerate(vectors.words) if word and not (" " in word or "\n" in word)]
    if dropped := len(vectors) - len(rows):
        warnings.warn(f"{dropped:,} words with spaces were left out: this format cannot hold them", QkvWarning, stacklevel=2)
    return rows
