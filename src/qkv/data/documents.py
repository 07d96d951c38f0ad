"""Documents as token ids in the cache: the tokens of each, the lengths of its sentences, and flags of each token
(data/inputs.py).

A document longer than 4,096 tokens is saved in several parts, cut between sentences, so that the text of a huge one can be
shuffled too; each part has the number of its document.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from qkv.base.errors import DataError
from qkv.data.cache import cache_folder, cache_key, cached_digest, lock_folder, progress_bar
from qkv.data.inputs import BEGINS_UNIT, BEGINS_WORD, CAPITAL
from qkv.data.tokens import META, TokenTexts, open_texts, write_texts
from qkv.text.documents import Document, DocumentCounts, read_documents
from qkv.text.tokenizer import Tokenizer
from qkv.text.word_boundaries import Segmenter, find_word_boundaries, load_segmenter

CHUNK = 1 << 20  # characters tokenised together
MAX_PART = 4096  # tokens in one part of a document
MAX_SENTENCE = 1 << 20  # tokens; decides the integer type of the lengths
ALL_FLAGS = 1 << 4  # above all flags
MAX_DOCUMENTS = 1 << 32

Columns = tuple[list[int], list[int], list[int], list[int]]  # one part: token ids, lengths of sentences, flags, document


class Documents:
    """Token ids of many documents, in parts, read-only."""

    def __init__(self, tokens: TokenTexts, sentences: TokenTexts, flags: TokenTexts, document: np.ndarray | None = None):
        self.tokens = tokens
        self.sentences = sentences  # lengths in tokens, none of them 0
        self.flags = flags  # of each token
        self.document = np.arange(len(tokens)) if document is None else document  # the number of each part's document, in order
        edges = np.diff(self.document) != 0
        self.first, self.last = (
            np.append(True, edges),
            np.append(edges, True),
        )  # whether a part is the first or last of its document

    def __len__(self) -> int:
        return len(self.tokens)

    def sentences_of(self, number: int) -> list[np.ndarray]:
        """Return the sentences of a part."""
        return np.split(self.tokens[number], np.cumsum(self.sentences[number])[:-1])


def tokenise_documents(
    files: Sequence[Path], tokenizer: Tokenizer, quiet: bool, units: str = "words", whole: bool = False
) -> tuple[Documents, DocumentCounts]:
    """Return the documents of some files, mapped into memory, and counts of what was read.

    With `whole`, documents keep their line breaks, are not divided into sentences, and their tokens have no flags.
    """
    segment = load_segmenter(units)
    how = ["whole documents"] if whole else ["marked documents", units]
    key = cache_key([how[0], [(path.suffixes, cached_digest(path)) for path in files], tokenizer.fingerprint(), *how[1:]])
    folder = cache_folder() / "tokens" / key
    found = _known(folder)
    if found is None:
        with lock_folder(folder):
            found = _known(folder) or _tokenise(folder, files, tokenizer, segment, quiet, whole)
    return found


def _known(folder: Path) -> tuple[Documents, DocumentCounts] | None:
    """Return the documents in the cache; None where there are none yet, or they are damaged."""
    try:
        counts = json.loads((folder / META).read_text())["counts"]
        counts["undecodable"] = [(file, line) for file, line in counts["undecodable"]]
        return _open(folder), DocumentCounts(**counts)
    except (DataError, OSError, ValueError, KeyError, TypeError):
        return None


def _tokenise(
    folder: Path, files: Sequence[Path], tokenizer: Tokenizer, segment: Segmenter | None, quiet: bool, whole: bool
) -> tuple[Documents, DocumentCounts]:
    counts, kept = DocumentCounts(), {}

    def rows() -> Iterator[Columns]:
        with progress_bar("tokenising", "documents", quiet) as count:
            for chunk in _chunks(count(_numbered(read_documents(files, counts, whole)))):
                yield from _encoded_whole(chunk, tokenizer) if whole else _encoded(chunk, tokenizer, segment)
        kept.update(asdict(counts))

    columns = {"tokens": len(tokenizer), "sentences": MAX_SENTENCE, "flags": ALL_FLAGS, "document": MAX_DOCUMENTS}
    write_texts(folder, rows(), columns, kept)
    return _open(folder), counts


def _open(folder: Path) -> Documents:
    columns = open_texts(folder)
    return Documents(columns["tokens"], columns["sentences"], columns["flags"], columns["document"].ids)


def _numbered(documents: Iterable[Document]) -> Iterator[tuple[int, Document]]:
    """Number documents; the parts in which one is read have the same number."""
    number = -1
    for document in documents:
        number += not document.continues
        yield number, document


def _encoded(documents: list[tuple[int, Document]], tokenizer: Tokenizer, segment: Segmenter | None) -> Iterator[Columns]:
    """Yield the columns of each part of documents that has any tokens; the tokenizer uses all cores."""
    sentences = [sentence for _, document in documents for sentence in document.sentences]
    encoded = tokenizer.encode_with_offsets(sentences)
    spans = [inside for _, document in documents for inside in document.spans]
    found = find_word_boundaries(sentences, [offsets for _, offsets in encoded], spans, segment)
    flags = (found.begins_word * BEGINS_WORD + found.begins_unit * BEGINS_UNIT + found.capital * CAPITAL).tolist()
    tokens = [token for ids, _ in encoded for token in ids]
    lengths = iter([len(ids) for ids, _ in encoded])
    start = 0
    for number, document in documents:
        for part in _parts([next(lengths) for _ in document.sentences]):
            end = start + sum(part)
            yield tokens[start:end], part, flags[start:end], [number]
            start = end


def _encoded_whole(documents: list[tuple[int, Document]], tokenizer: Tokenizer) -> Iterator[Columns]:
    """Yield the columns of documents that are read whole, cut anywhere; each part counts as one sentence."""
    found = tokenizer.encode_batch([document.sentences[0] for _, document in documents])
    for (number, _), ids in zip(documents, found, strict=True):
        for start in range(0, len(ids), MAX_PART):
            part = ids[start : start + MAX_PART]
            yield part, [len(part)], [0] * len(part), [number]


def _parts(lengths: list[int]) -> Iterator[list[int]]:
    """Divide the lengths of a document's sentences into parts of at most MAX_PART tokens.

    A longer sentence is a part by itself.
    """
    part: list[int] = []
    size = 0
    for length in filter(None, lengths):
        if part and size + length > MAX_PART:
            yield part
            part, size = [], 0
        part.append(length)
        size += length
    if part:
        yield part


def _chunks(documents: Iterable[tuple[int, Document]]) -> Iterator[list[tuple[int, Document]]]:
    """Group documents into chunks of about CHUNK characters."""
    chunk: list[tuple[int, Document]] = []
    size = 0
    for number, document in documents:
        chunk.append((number, document))
        size += sum(map(len, document.sentences))
        if size > CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
