"""Reading and writing vectors in every format.

Content decides the format of a file that is read, the name that of one written.
"""

import re
from collections.abc import Callable
from pathlib import Path

from qkv.base.errors import ConfigError
from qkv.text.files import open_uncompressed
from qkv.vectors.fasttext_format import MAGIC, model_from_vectors, read_fasttext, vectors_from_model, write_fasttext
from qkv.vectors.word2vec_format import read_binary_vectors, read_text_vectors, write_binary_vectors, write_text_vectors
from qkv.vectors.word_vectors import TENSORS, WordVectors

READERS: dict[str, Callable[[Path], WordVectors]] = {
    "qkv": WordVectors.load,
    "word2vec": lambda path: read_text_vectors(path, header=True),
    "word2vec-binary": read_binary_vectors,
    "glove": lambda path: read_text_vectors(path, header=False),
    "fasttext": lambda path: vectors_from_model(read_fasttext(path)),
}
WRITERS: dict[str, Callable[[WordVectors, Path], None]] = {
    "qkv": WordVectors.save,
    "word2vec": lambda vectors, path: write_text_vectors(vectors, path, header=True),
    "word2vec-binary": write_binary_vectors,
    "glove": lambda vectors, path: write_text_vectors(vectors, path, header=False),
    "fasttext": lambda vectors, path: write_fasttext(model_from_vectors(vectors), path),
}
SUFFIXES = {"": "qkv", ".vec": "word2vec", ".txt": "word2vec", ".bin": "word2vec-binary"}
SAMPLE = 1 << 16  # bytes that the format is detected from
CONTROL_BYTE = re.compile(rb"[\0-\x08\x0e-\x1f\x7f]")


def read_vectors(path: Path | str, format: str | None = None) -> WordVectors:
    """Read vectors of any format; without `format`, detect it."""
    path = Path(path)
    if format:
        _check_format(format)
    return READERS[format or detect_format(path)](path)


def write_vectors(vectors: WordVectors, path: Path | str, format: str | None = None) -> None:
    """Write vectors; without `format`, no suffix means our folder, .vec and .txt word2vec's text, .bin its binary format."""
    path = Path(path)
    check_target(path, format)
    if not format and path.suffix == ".bin" and vectors.subwords:
        format = "fasttext"  # word2vec's .bin cannot hold subwords
    WRITERS[format or SUFFIXES[path.suffix]](vectors, path)


def check_target(path: Path, format: str | None) -> None:
    """Refuse an unknown format, and a suffix that implies none."""
    if format:
        _check_format(format)
    elif path.suffix not in SUFFIXES:
        raise ConfigError(f"{path}: the suffix {path.suffix!r} implies no format; choose one with --to {', '.join(WRITERS)}")


def detect_format(path: Path) -> str:
    """Return the format of a file or folder, by its first bytes."""
    if path.is_dir() or path.name == TENSORS:
        return "qkv"
    with open_uncompressed(path) as file:
        start = file.read(SAMPLE)
    if start[:4] == MAGIC.to_bytes(4, "little"):
        return "fasttext"
    first, _, rest = start.partition(b"\n")
    fields = first.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        return "glove"
    return "word2vec" if _is_text(rest, int(fields[1])) else "word2vec-binary"


def _is_text(rest: bytes, width: int) -> bool:
    """Return whether words and decimal numbers follow the header."""
    if CONTROL_BYTE.search(rest):
        return False
    numbers = rest.partition(b"\n")[0].split()[-width:][:8]  # of the first word, if it ends within the sample
    try:
        return bool([float(number) for number in numbers])
    except ValueError:
        return b"".join(numbers).isascii()


def _check_format(format: str) -> None:
    if format not in READERS:
        raise ConfigError(f"format {format!r} is not known; choose {', '.join(READERS)}")
