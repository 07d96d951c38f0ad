"""Raw text as documents: a line is a paragraph or a part of one, and a blank line stands between documents."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from qkv.base.errors import DataError
from qkv.text.check import normalise
from qkv.text.files import matching, read_lines
from qkv.text.sentences import split_sentences

FIRST = 5  # places that are remembered


class Document(NamedTuple):
    """A text whose parts belong together."""

    sentences: list[str]
    file: Path
    line: int  # where it begins


@dataclass
class Counts:
    """What was read; `undecodable` are the first lines that are not UTF-8, which are left out."""

    documents: int = 0
    sentences: int = 0
    lines_left_out: int = 0
    undecodable: list[tuple[str, int]] = field(default_factory=list)  # file, line


def document_files(patterns: Iterable[str]) -> list[Path]:
    """The files that paths and globs name, each once, in the order given."""
    return list(dict.fromkeys(path for pattern in patterns for path in matching(pattern)))


def read_documents(files: Iterable[Path], counts: Counts) -> Iterator[Document]:
    """Document by document, none empty; the end of a file ends a document too."""
    for file in files:
        yield from _of_file(file, counts)
    if not counts.documents:
        raise DataError("no text was found in the files given; each must hold lines of UTF-8 text")


def _of_file(file: Path, counts: Counts) -> Iterator[Document]:
    sentences: list[str] = []
    begins = 0
    for number, line in enumerate(read_lines(file), 1):
        if line is None:
            _leave_out(counts, file, number)
        elif line.strip():
            begins = begins or number
            sentences += sentences_of(line)
        elif sentences:
            yield _counted(Document(sentences, file, begins), counts)
            sentences, begins = [], 0
    if sentences:
        yield _counted(Document(sentences, file, begins), counts)


def sentences_of(line: str) -> list[str]:
    """The sentences of a paragraph, normalised, without the white space around them."""
    found = (normalise(sentence) for sentence in split_sentences(line))
    return [sentence for sentence in found if sentence]


def _counted(document: Document, counts: Counts) -> Document:
    counts.documents += 1
    counts.sentences += len(document.sentences)
    return document


def _leave_out(counts: Counts, file: Path, line: int) -> None:
    counts.lines_left_out += 1
    if len(counts.undecodable) < FIRST:
        counts.undecodable.append((str(file), line))
