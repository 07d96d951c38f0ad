"""Vectors in and out of every format, which is told by a file's content on reading and by its name on writing."""

import re
from collections.abc import Callable
from pathlib import Path

from qkv.base.errors import ConfigError
from qkv.text.files import open_uncompressed
from qkv.vectors.fasttext_format import MAGIC, model_of, read_fasttext, vectors_of, write_fasttext
from qkv.vectors.word2vec_format import read_binary_vectors, read_text_vectors, write_binary_vectors, write_text_vectors
from qkv.vectors.word_vectors import TENSORS, WordVectors

READ: dict[str, Callable[[Path], WordVectors]] = {
    "qkv": WordVectors.load,
    "word2vec": lambda path: read_text_vectors(path, header=True),
    "word2vec-binary": read_binary_vectors,
    "glove": lambda path: read_text_vectors(path, header=False),
    "fasttext": lambda path: vectors_of(read_fasttext(path)),
}
WRITE: dict[str, Callable[[WordVectors, Path], None]] = {
    "qkv": WordVectors.save,
    "word2vec": lambda vectors, path: write_text_vectors(vectors, path, header=True),
    "word2vec-binary": write_binary_vectors,
    "glove": lambda vectors, path: write_text_vectors(vectors, path, header=False),
    "fasttext": lambda vectors, path: write_fasttext(model_of(vectors), path),
}
ENDINGS = {"": "qkv", ".vec": "word2vec", ".txt": "word2vec", ".bin": "word2vec-binary"}
START = 1 << 16  # bytes by which a format is known
NOT_TEXT = re.compile(rb"[\0-\x08\x0e-\x1f\x7f]")


def read_vectors(path: Path | str, kind: str | None = None) -> WordVectors:
    """Open vectors of any format."""
    path = Path(path)
    return READ[_known(kind) if kind else kind_of(path)](path)


def write_vectors(vectors: WordVectors, path: Path | str, kind: str | None = None) -> None:
    """Write vectors; without a kind, a name without an ending is our folder, .vec and .txt word2vec's text, .bin its binary."""
    path = Path(path)
    check_target(path, kind)
    if not kind and path.suffix == ".bin" and vectors.subwords:
        kind = "fasttext"  # the other .bin would lose them
    WRITE[kind or ENDINGS[path.suffix]](vectors, path)


def check_target(path: Path, kind: str | None) -> None:
    """Refuse a format that is not known, and a name that tells none."""
    if kind:
        _known(kind)
    elif path.suffix not in ENDINGS:
        raise ConfigError(f"{path}: what format is to be written there? say --to {', '.join(WRITE)}")


def kind_of(path: Path) -> str:
    """The format of a file or folder, by its first bytes."""
    if path.is_dir() or path.name == TENSORS:
        return "qkv"
    with open_uncompressed(path) as file:
        start = file.read(START)
    if start[:4] == MAGIC.to_bytes(4, "little"):
        return "fasttext"
    first, _, rest = start.partition(b"\n")
    fields = first.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        return "glove"
    return "word2vec" if _is_text(rest, int(fields[1])) else "word2vec-binary"


def _is_text(rest: bytes, width: int) -> bool:
    """Whether what follows a header is words and numbers to be read by people."""
    if NOT_TEXT.search(rest):
        return False
    numbers = rest.partition(b"\n")[0].split()[-width:][:8]  # of the first word, as far as a line tells
    try:
        return bool([float(number) for number in numbers])
    except ValueError:
        return b"".join(numbers).isascii()


def _known(kind: str) -> str:
    if kind not in READ:
        raise ConfigError(f"the format {kind!r} is not known; choose {', '.join(READ)}")
    return kind
