"""Raw text as documents, and where they are given, the entities and phrases in them.

Plain files: a line is a paragraph or a part of one, and a blank line stands between documents. Files named .jsonl (compressed or
not): a document a line, {"text": "...", "spans": [[start, end], ...]}, where each span of characters is an entity or a phrase.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from qkv.base.errors import DataError
from qkv.text.check import normalise
from qkv.text.files import find_files, read_lines, uncompressed_suffix
from qkv.text.sentences import split_sentences
from qkv.text.word_boundaries import Span

FIRST = 5  # places that are remembered, and files that are named
LONGEST = 1 << 18  # characters; a longer document of a plain file comes in parts, or one without blank lines would fill memory


class Document(NamedTuple):
    """A text whose parts belong together."""

    sentences: list[str]
    spans: list[list[Span]]  # of each sentence its entities and phrases
    file: Path
    line: int  # where it begins
    continues: bool = False  # whether it continues the document before it, which was too long for one


@dataclass
class DocumentCounts:
    """What was read; `undecodable` are the first lines that are not UTF-8, which are left out."""

    documents: int = 0
    sentences: int = 0
    lines_left_out: int = 0
    undecodable: list[tuple[str, int]] = field(default_factory=list)  # file, line


def find_document_files(patterns: Iterable[str]) -> list[Path]:
    """The files that paths and globs name, each once, in the order given."""
    return list(dict.fromkeys(path for pattern in patterns for path in find_files(pattern)))


def shorten_file_list(files: Sequence[Path]) -> str:
    """Files as a message names them: a few, and how many more there are."""
    named = ", ".join(map(str, files[:FIRST]))
    return f"{named} and {len(files) - FIRST:,} more" if len(files) > FIRST else named


def read_documents(files: Sequence[Path], counts: DocumentCounts, whole: bool = False) -> Iterator[Document]:
    """Document by document, long ones in parts, none empty; the end of a file ends a document too.

    Where they are wanted whole, a document is its text as it stands, as if it were one sentence, and spans are not read.
    """
    for file in files:
        read = _of_records if uncompressed_suffix(file) == ".jsonl" else _of_lines
        for document in read(file, counts, whole):
            counts.documents += not document.continues
            counts.sentences += len(document.sentences)
            yield document
    if not counts.documents:
        raise DataError(f"{shorten_file_list(files)}: no text was found; lines of UTF-8 text are wanted")


def _of_lines(file: Path, counts: DocumentCounts, whole: bool) -> Iterator[Document]:
    sentences: list[str] = []  # or lines, where documents are wanted whole
    begins = size = 0
    goes_on = False
    for number, line in _decoded(file, counts):
        if line.strip():
            begins = begins or number
            sentences += [line.rstrip("\r")] if whole else normalised_sentences(line)
            size += len(line)
        if sentences and (size > LONGEST or not line.strip()):
            yield _document(sentences, file, begins, goes_on, whole)
            sentences, begins, size, goes_on = [], 0, 0, True
        goes_on = goes_on and bool(line.strip())
    if sentences:
        yield _document(sentences, file, begins, goes_on, whole)


def _document(parts: list[str], file: Path, line: int, goes_on: bool, whole: bool) -> Document:
    """A document of its sentences; or of its lines, with the line break that came before them if they go on with it."""
    parts = ["\n" * goes_on + "\n".join(parts)] if whole else parts
    return Document(parts, [[] for _ in parts], file, line, goes_on)


def _decoded(file: Path, counts: DocumentCounts) -> Iterator[tuple[int, str]]:
    """Lines and their numbers; those that are not UTF-8 are left out and counted."""
    for number, line in enumerate(read_lines(file), 1):
        if line is not None:
            yield number, line
            continue
        counts.lines_left_out += 1
        if len(counts.undecodable) < FIRST:
            counts.undecodable.append((str(file), number))


def normalised_sentences(line: str) -> list[str]:
    """The sentences of a paragraph, normalised, without the white space around them."""
    found = (normalise(sentence) for sentence in split_sentences(line))
    return [sentence for sentence in found if sentence]


def _of_records(file: Path, counts: DocumentCounts, whole: bool) -> Iterator[Document]:
    for number, line in _decoded(file, counts):
        try:
            text, spans = _record(line)
        except ValueError as error:
            raise DataError(f"{file}, line {number}: {error}") from None
        if whole:
            yield Document([text], [[]], file, number)
            continue
        found = [part for part in _with_spans(text, spans) if part[0]]
        yield Document([sentence for sentence, _ in found], [inside for _, inside in found], file, number)


def _record(line: str) -> tuple[str, list[Span]]:
    """The text and the spans of one line, in order."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise ValueError('not a document; wanted is {"text": "...", "spans": [[start, end], ...]}, one a line')
    text = record["text"]
    if not text.strip():
        raise ValueError("the document is empty; leave it out")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("the text holds half a character (a lone surrogate); write it as UTF-8")
    return text, _spans(text, record.get("spans", []))


def _spans(text: str, given: Any) -> list[Span]:
    if not isinstance(given, list) or not all(_is_span(span) for span in given):
        raise ValueError("spans must be a list of [start, end], in characters of the text")
    spans = sorted((start, end) for start, end in given)
    for start, end in spans:
        if not 0 <= start < end <= len(text):
            raise ValueError(f"span [{start}, {end}] is not within the text, which has {len(text)} characters, or is empty")
    for (start, end), (later, last) in pairwise(spans):
        if later < end:
            raise ValueError(f"spans [{start}, {end}] and [{later}, {last}] overlap; give only one of them")
    return spans


def _is_span(span: Any) -> bool:
    return isinstance(span, list) and len(span) == 2 and all(type(place) is int for place in span)


def _with_spans(text: str, spans: list[Span]) -> Iterator[tuple[str, list[Span]]]:
    """Normalised sentences with the spans in each; no sentence ends within a span unless the paragraph does."""
    waiting = list(reversed(spans))
    for begin, end in pairwise([0, *_ends(text, spans), len(text)]):
        inside = []
        while waiting and waiting[-1][0] < end:
            start, stop = waiting.pop()
            inside.append((start - begin, min(stop, end) - begin))
            if stop > end:  # it goes on in the next paragraph
                waiting.append((end, stop))
        yield _normalised(text[begin:end], inside)


def _ends(text: str, spans: list[Span]) -> list[int]:
    """Where sentences end, all but the last."""
    sentences = split_sentences(text)
    within = {place for start, end in spans for place in range(start + 1, end)}
    ends = zip(accumulate(map(len, sentences)), sentences, strict=True)
    return [end for end, sentence in ends if end < len(text) and (end not in within or "\n" in sentence)]


def _normalised(sentence: str, spans: list[Span]) -> tuple[str, list[Span]]:
    """A sentence as `normalise` leaves it, its spans moved along and without white space at their ends."""
    changed = normalise(sentence)
    if not spans:
        return changed, spans
    trimmed = []
    for start, end in spans:
        inner = sentence[start:end]
        start, end = start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
        if start < end:
            trimmed.append((_moved(sentence, start), min(_moved(sentence, end), len(changed))))
    return changed, [span for span in trimmed if span[0] < span[1]]


def _moved(sentence: str, place: int) -> int:
    """Where a place of the sentence is once it is normalised: behind as many characters as what was before it becomes."""
    return len(normalise(sentence[:place] + "x")) - 1  # x, as normalising takes off white space at the end
