"""Vectors as word2vec and GloVe write them: a word and its numbers a line, with or without a header, or binary.

A header is a line with the number of words and the width. Binary files have the numbers as float32 after each word and a space.
"""

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from qkv.base.errors import DataError, QkvWarning
from qkv.base.files import atomic_file
from qkv.text.files import COMPRESSED, read_byte_lines
from qkv.vectors.binary_reader import FLOAT, Bytes
from qkv.vectors.word_vectors import WordVectors

LONGEST_WORD = 4096  # bytes
TOGETHER = 4096  # lines made at once
DIGITS = "%.9g"  # as many as it takes to read the same float32 back


def read_text_vectors(path: Path, header: bool) -> WordVectors:
    """Read word2vec's text (with a header; fastText's .vec too) or GloVe's (without)."""
    lines = enumerate(read_byte_lines(path), 1)
    count, width = _header(path, next(lines, (1, b""))[1]) if header else (0, 0)
    _check_size(path, count, 2 * width + 1)
    words: list[str] = []
    matrix = np.empty((count, width), np.float32)
    filled = (numbered for numbered in lines if numbered[1].strip())
    while some := list(itertools.islice(filled, TOGETHER)):
        new, rows = _alike(some, width) or _one_by_one(path, some, width)
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


def _alike(lines: list[tuple[int, bytes]], width: int) -> tuple[list[str], np.ndarray] | None:
    """Words and numbers of many lines at once; None where one of them is not a plain word and `width` numbers."""
    parts = [line.rstrip().partition(b" ") for _, line in lines]
    if not all(word and rest.count(b" ") == width - 1 for word, _, rest in parts):
        return None
    rows = _numbers(b" ".join(rest for _, _, rest in parts))
    if rows is None or len(rows) != width * len(lines) or not np.isfinite(rows).all():
        return None
    try:
        return [word.decode() for word, _, _ in parts], rows.reshape(-1, width)
    except UnicodeDecodeError:
        return None


def _one_by_one(path: Path, lines: list[tuple[int, bytes]], width: int) -> tuple[list[str], np.ndarray]:
    """The same, where a line that is not as the others is read with care, or refused by its number."""
    words, rows = [], []
    for number, line in lines:
        word, row = _parsed(path, number, line, width)
        width = len(row)
        words.append(word)
        rows.append(row)
    return words, np.stack(rows)


def _header(path: Path, line: bytes) -> tuple[int, int]:
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields) or not all(map(int, fields)):
        got = line[:40].decode(errors="replace")
        raise DataError(
            f"{path}, line 1: a header such as `400000 50` (words, width) was expected, got {got!r}; without one it is glove"
        )
    return int(fields[0]), int(fields[1])


def _check_size(path: Path, count: int, bytes_each: int) -> None:
    """Refuse a header that promises more than the file can hold, before memory is asked for."""
    if path.suffix not in COMPRESSED and (size := path.stat().st_size) < count * bytes_each:
        least = f"which take {count * bytes_each:,} bytes at least"
        raise DataError(f"{path}: its header promises {count:,} words, {least}, and it has {size:,}; it is cut short or wrong")


def _parsed(path: Path, number: int, line: bytes, width: int) -> tuple[str, np.ndarray]:
    """The word and the numbers of a line; a width of 0 is any."""
    word, _, rest = line.partition(b" ")
    row = _numbers(rest)
    if width and row is None:  # words of some files have spaces in them
        word, *fields = line.rstrip().rsplit(b" ", width)
        other = _numbers(b" ".join(fields))
        row = other if other is not None and len(other) == width else row
    if row is None or len(row) != (width or max(len(row), 1)):
        got = "something else" if row is None else f"{len(row)}"
        raise DataError(f"{path}, line {number}: a word and {width or 'some'} numbers were expected, got {got}")
    if not np.isfinite(row).all():
        raise DataError(f"{path}, line {number}: a number is not finite; leave the line out")
    try:
        return _nonempty(path, number, word.decode()), row
    except UnicodeDecodeError:
        raise DataError(f"{path}, line {number}: the word is not UTF-8; convert the file or leave the line out") from None


def _nonempty(path: Path, number: int, word: str) -> str:
    if not word:
        raise DataError(f"{path}, line {number}: begins with a space where a word was expected; leave the line out")
    return word


def _numbers(text: bytes) -> np.ndarray | None:
    """Numbers with spaces between them; None where something else is among them."""
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
            return np.array([*map(float, text.split())], np.float64).astype(np.float32)
    except ValueError:
        return None


def read_binary_vectors(path: Path) -> WordVectors:
    """Read word2vec's binary format."""
    data = Bytes(path)
    line = bytes(data.data[: data.data.find(b"\n", 0, LONGEST_WORD) + 1])
    count, width = _header(path, line)
    data.at = len(line)
    if len(data) < count * (FLOAT.itemsize * width + 2):
        raise data.wrong(f"the header promises {count:,} words of {width} numbers, for which {len(data):,} bytes are too few")
    words, matrix = [], np.empty((count, width), np.float32)
    for row in range(count):
        words.append(data.text(b" ", LONGEST_WORD, f"word {row + 1:,}").lstrip("\n"))
        matrix[row] = data.floats(width, f"the vector of {words[-1]!r}")
        if not words[-1] or not np.isfinite(matrix[row]).all():
            raise data.wrong(f"word {row + 1:,} is empty or its numbers are not finite")
    if bytes(data.data[data.at : data.at + 2]) not in (b"", b"\n"):
        raise data.wrong(f"{len(data) - data.at:,} bytes more than the header promises")
    return WordVectors(words, matrix)


def write_text_vectors(vectors: WordVectors, path: Path, header: bool) -> None:
    """Write word2vec's text (with a header) or GloVe's (without)."""
    rows = _writable(vectors)
    form = " ".join([DIGITS] * vectors.width) + "\n"
    with atomic_file(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(rows)} {vectors.width}\n" if header else "")
        for some in _chunks(rows):
            numbers = vectors.matrix[some].tolist()
            file.writelines(f"{vectors.words[row]} {form % tuple(n)}" for row, n in zip(some, numbers, strict=True))


def write_binary_vectors(vectors: WordVectors, path: Path) -> None:
    """Write word2vec's binary format."""
    rows = _writable(vectors)
    with atomic_file(path) as aside, aside.open("wb") as file:
        file.write(f"{len(rows)} {vectors.width}\n".encode())
        for row in rows:
            file.write(vectors.words[row].encode() + b" " + vectors.matrix[row].astype(FLOAT).tobytes() + b"\n")


def _writable(vectors: WordVectors) -> list[int]:
    """Rows of words that a line can hold; the others are told of."""
    rows = [row for row, word in enumerate(vectors.words) if word and not (" " in word or "\n" in word)]
    if left := len(vectors) - len(rows):
        warnings.warn(f"{left:,} words with spaces in them were left out: this format cannot hold them", QkvWarning, stacklevel=2)
    return rows


def _chunks(rows: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(rows), TOGETHER):
        yield rows[start : start + TOGETHER]
