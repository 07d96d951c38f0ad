"""Documents of raw text, with the entities and phrases in them if the file lists them.

In a plain file a line is a paragraph or a part of one, and a blank line separates documents. A .jsonl file (compressed or not)
has one document per line, {"text": "...", "spans": [[start, end], ...]}, where each span of characters is an entity or a phrase.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from qkv.base.errors import DataError
from qkv.text.check import normalise
from qkv.text.files import find_input_files, read_lines, uncompressed_suffix
from qkv.text.input_files import InputFile, WholeFile, file_size
from qkv.text.pieces import PIECE, CorpusPiece, cut_lines, is_long
from qkv.text.sentences import split_sentences
from qkv.text.word_boundaries import Span

FIRST = 5  # bad lines that are stored, and files that a message names
SEARCHED = 1 << 16  # bytes read at once to find the end of a document
LONGEST = 1 << 18  # characters; a longer document of a plain file comes in parts, as a file without blank lines would fill memory


class Document(NamedTuple):
    """A document as normalised sentences."""

    sentences: list[str]
    spans: list[list[Span]]  # entities and phrases of each sentence
    file: InputFile
    line: int  # its first line
    continues: bool = False  # whether it continues the document before it, which was too long for one


@dataclass
class DocumentCounts:
    """The numbers of what was read; `undecodable` are the first of the lines that are left out because they are not UTF-8."""

    documents: int = 0
    sentences: int = 0
    lines_left_out: int = 0
    undecodable: list[tuple[str, int]] = field(default_factory=list)  # file, line


def find_document_files(patterns: Iterable[str]) -> list[WholeFile]:
    """Return the files that match paths and globs, each once, in the order given."""
    return list(dict.fromkeys(path for pattern in patterns for path in find_input_files(pattern)))


def shorten_file_list(files: Sequence[InputFile]) -> str:
    """Return the first few files and the number of the others, for a message."""
    named = ", ".join(map(str, files[:FIRST]))
    return f"{named} and {len(files) - FIRST:,} more" if len(files) > FIRST else named


def read_documents(files: Sequence[InputFile], counts: DocumentCounts, whole: bool = False) -> Iterator[Document]:
    """Yield the documents, long ones in parts, none empty; the end of a file also ends a document.

    With `whole`, a document is its unchanged text as one sentence, without spans.
    """
    for file in files:
        yield from read_file(file, counts, whole)
    refuse_empty(files, counts)


def read_file(file: InputFile, counts: DocumentCounts, whole: bool) -> Iterator[Document]:
    """Yield the documents of one file, or of a piece of one, which may have none."""
    read = _read_records if _has_records(file) else _read_plain
    for document in read(file, counts, whole):
        counts.documents += not document.continues
        counts.sentences += len(document.sentences)
        yield document


def refuse_empty(files: Sequence[InputFile], counts: DocumentCounts) -> None:
    """Refuse files without a document."""
    if not counts.documents:
        raise DataError(f"{shorten_file_list(files)}: no text was found; give lines of UTF-8 text")


def _has_records(file: InputFile) -> bool:
    return uncompressed_suffix(file) == ".jsonl"


def cut_documents(file: WholeFile) -> list[CorpusPiece]:
    """Return the pieces of a file, none of which begins inside a document; one without blank lines is one piece."""
    if _has_records(file) or not is_long(file):
        return cut_lines(file)
    size, starts = file_size(file) or 0, [0]
    with file.open("rb", buffering=SEARCHED) as opened:
        for wanted in range(PIECE, size, PIECE):
            if wanted <= starts[-1]:  # a long document reaches beyond it
                continue
            opened.seek(wanted - 1)
            opened.readline()
            while (line := opened.readline()) and line.strip():
                pass
            if opened.tell() < size:
                starts.append(opened.tell())
    if len(starts) == 1:
        return [CorpusPiece((str(file),))]
    return [CorpusPiece((str(file),), (span,)) for span in zip(starts, [*starts[1:], size], strict=True)]


def _read_plain(file: InputFile, counts: DocumentCounts, whole: bool) -> Iterator[Document]:
    sentences: list[str] = []  # with `whole`, lines
    first_line = size = 0
    continues = False
    for number, line in _decoded(file, counts):
        if line.strip():
            first_line = first_line or number
            sentences += [line.rstrip("\r")] if whole else normalised_sentences(line)
            size += len(line)
        if sentences and (size > LONGEST or not line.strip()):
            yield _document(sentences, file, first_line, continues, whole)
            sentences, first_line, size, continues = [], 0, 0, True
        continues = continues and bool(line.strip())
    if sentences:
        yield _document(sentences, file, first_line, continues, whole)


def _document(parts: list[str], file: InputFile, line: int, continues: bool, whole: bool) -> Document:
    """Build a document from its sentences; with `whole`, from its lines, after a line break if it continues another."""
    parts = ["\n" * continues + "\n".join(parts)] if whole else parts
    return Document(parts, [[] for _ in parts], file, line, continues)


def _decoded(file: InputFile, counts: DocumentCounts) -> Iterator[tuple[int, str]]:
    """Yield the lines and their numbers; lines that are not UTF-8 are left out and counted."""
    for number, line in enumerate(read_lines(file), 1):
        if line is not None:
            yield number, line
            continue
        counts.lines_left_out += 1
        if len(counts.undecodable) < FIRST:
            counts.undecodable.append((str(file), number))


def normalised_sentences(line: str) -> list[str]:
    """Return the sentences of a paragraph, normalised, without white space around them."""
    found = (normalise(sentence) for sentence in split_sentences(line))
    return [sentence for sentence in found if sentence]


def _read_records(file: InputFile, counts: DocumentCounts, whole: bool) -> Iterator[Document]:
    for number, line in _decoded(file, counts):
        try:
            text, spans = _record(line)
        except ValueError as error:
            raise DataError(f"{file}, line {number}: {error}") from None
        if whole:
            yield Document([text], [[]], file, number)
            continue
        found = [part for part in _split_with_spans(text, spans) if part[0]]
        yield Document([sentence for sentence, _ in found], [inside for _, inside in found], file, number)


def _record(line: str) -> tuple[str, list[Span]]:
    """Parse one line; return the text and its spans in order."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise ValueError('not a document; give {"text": "...", "spans": [[start, end], ...]}, one per line')
    text = record["text"]
    if not text.strip():
        raise ValueError("the document is empty; leave it out")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("the text holds half a character (a lone surrogate); write it as UTF-8")
    return text, _spans(text, record.get("spans", []))


def _spans(text: str, given: Any) -> list[Span]:
    if not isinstance(given, list) or not all(
        isinstance(span, list) and len(span) == 2 and all(type(end) is int for end in span) for span in given
    ):
        raise ValueError("spans must be a list of [start, end], in characters of the text")
    spans = sorted((start, end) for start, end in given)
    for start, end in spans:
        if not 0 <= start < end <= len(text):
            raise ValueError(f"span [{start}, {end}] is not within the text, which has {len(text)} characters, or is empty")
    for (start, end), (later, last) in pairwise(spans):
        if later < end:
            raise ValueError(f"spans [{start}, {end}] and [{later}, {last}] overlap; give only one of them")
    return spans


def _split_with_spans(text: str, spans: list[Span]) -> Iterator[tuple[str, list[Span]]]:
    """Yield normalised sentences with their spans; a sentence ends inside a span only if the paragraph does."""
    remaining = list(reversed(spans))
    for begin, end in pairwise([0, *_sentence_ends(text, spans), len(text)]):
        inside = []
        while remaining and remaining[-1][0] < end:
            start, stop = remaining.pop()
            inside.append((start - begin, min(stop, end) - begin))
            if stop > end:  # it continues in the next paragraph
                remaining.append((end, stop))
        yield _normalise_with_spans(text[begin:end], inside)


def _sentence_ends(text: str, spans: list[Span]) -> list[int]:
    """Return the ends of all sentences except the last."""
    sentences = split_sentences(text)
    within = {index for start, end in spans for index in range(start + 1, end)}
    ends = zip(accumulate(map(len, sentences)), sentences, strict=True)
    return [end for end, sentence in ends if end < len(text) and (end not in within or "\n" in sentence)]


def _normalise_with_spans(sentence: str, spans: list[Span]) -> tuple[str, list[Span]]:
    """Normalise a sentence and shift its spans accordingly, without white space at their ends."""
    changed = normalise(sentence)
    if not spans:
        return changed, spans
    trimmed = []
    for start, end in spans:
        text = sentence[start:end]
        start, end = start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
        if start < end:
            trimmed.append((_shifted(sentence, start), min(_shifted(sentence, end), len(changed))))
    return changed, [span for span in trimmed if span[0] < span[1]]


def _shifted(sentence: str, index: int) -> int:
    """Return the index of a character after normalising, which is the length of the normalised text before it."""
    return len(normalise(sentence[:index] + "x")) - 1  # x, as normalising strips white space at the end
