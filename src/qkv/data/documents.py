"""Documents as token ids in the cache: the tokens of each, the lengths of its sentences, and flags of each token
(data/inputs.py).

A document longer than 4,096 tokens is saved in several parts, cut between sentences, so that the text of a huge one can be
shuffled too; each part has the number of its document.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from qkv.data.cache import cache_folder, cache_key, cached_digests, lock_folder, refuse_replaced
from qkv.data.inputs import BEGINS_UNIT, BEGINS_WORD, CAPITAL
from qkv.data.store import Part, find_metas, find_missing
from qkv.data.token_shards import INDEX, SHARDS, TokenShards, known_shards, save_tokenizer
from qkv.data.tokens import Texts, write_texts
from qkv.data.workers import Work
from qkv.text.documents import FIRST, Document, DocumentCounts, cut_documents, read_file, refuse_empty
from qkv.text.input_files import WholeFile, input_file
from qkv.text.pieces import CorpusPiece, cut_files, lines_before
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

    def __init__(
        self,
        tokens: Texts,
        sentences: Texts,
        flags: Texts,
        document: np.ndarray | None = None,
        shards: Sequence[int] = (),
    ):
        self.tokens = tokens
        self.sentences = sentences  # lengths in tokens, none of them 0
        self.flags = flags  # of each token
        self.document = np.arange(len(tokens)) if document is None else document  # the number of each part's document, in order
        self.shards = list(shards) or [len(tokens)]  # parts in each
        edges = self.document[1:] != self.document[:-1]
        self.first, self.last = (
            np.append(True, edges),
            np.append(edges, True),
        )  # whether a part is the first or last of its document

    def __len__(self) -> int:
        return len(self.tokens)

    def count_in_shards(self, chosen: np.ndarray) -> list[int]:
        """Return how many of some parts, given in order, are in each shard."""
        return np.diff(np.searchsorted(chosen, np.cumsum([0, *self.shards]))).tolist()

    def count(self, chosen: np.ndarray) -> int:
        """Return how many documents some parts, given in order, belong to."""
        number = self.document[chosen]
        return int(np.count_nonzero(number[1:] != number[:-1])) + bool(len(number))

    def sentences_of(self, number: int) -> list[np.ndarray]:
        """Return the sentences of a part."""
        return np.split(self.tokens[number], np.cumsum(self.sentences[number])[:-1])


def tokenise_documents(
    files: Sequence[WholeFile], tokenizer: Tokenizer, work: Work, units: str = "words", whole: bool = False
) -> tuple[Documents, DocumentCounts]:
    """Return the documents of some files, mapped into memory, and counts of what was read.

    With `whole`, documents keep their line breaks, are not divided into sentences, and their tokens have no flags.
    """
    load_segmenter(units)  # a missing package is reported before the work
    index = _index(files, cached_digests(files), tokenizer, units, whole)
    entries = known_shards(index)
    if entries is None:
        make_document_shards(files, tokenizer, work, units, whole)
        entries = known_shards(index)
        assert entries is not None
    counts = DocumentCounts()
    first = []  # document of each shard
    for entry in entries:
        found = entry["counts"]
        first.append(counts.documents)
        counts.documents += found["documents"]
        counts.sentences += found["sentences"]
        counts.lines_left_out += found["lines_left_out"]
        places = [(str(files[entry["file"]]), entry["before"] + line) for _, line in found["undecodable"]]
        counts.undecodable += places[: FIRST - len(counts.undecodable)]
    refuse_empty(files, counts)
    shards = TokenShards(entries)
    columns = shards.columns()
    document = np.empty(sum(shards.texts), dtype=np.int64)
    for number, part in enumerate(np.split(document, np.cumsum(shards.texts)[:-1])):
        np.add(shards.map(number, "document.ids"), np.int64(first[number]), out=part)
    return Documents(columns["tokens"], columns["sentences"], columns["flags"], document, shards.texts), counts


def _index(files: Sequence[WholeFile], digests: Sequence[str], tokenizer: Tokenizer, units: str, whole: bool) -> Part:
    content = [(path.suffixes, found) for path, found in zip(files, digests, strict=True)]
    return Part("tokens", cache_key([content, tokenizer.fingerprint(), *_options(units, whole)]), INDEX)


def _options(units: str, whole: bool) -> list[str]:
    return ["whole documents"] if whole else ["marked documents", units]


def make_document_shards(
    files: Sequence[WholeFile],
    tokenizer: Tokenizer,
    work: Work,
    units: str,
    whole: bool,
    share: slice = slice(None),
    thorough: bool = False,
) -> int:
    """Make the shards of a share of the pieces that are not there; return how many of all are missing then.

    When none is, the index is written. Thorough work reads those that are there, and makes damaged ones again.
    """
    pieces = [(number, piece) for number, found in enumerate(cut_files(cut_documents, files)) for piece in found]
    how = [tokenizer.fingerprint(), *_options(units, whole)]
    digests = cached_digests(files)
    parts = []
    for number, piece in pieces:
        content = [files[number].suffixes, digests[number], piece.ranges]
        parts.append(Part(SHARDS, cache_key(["documents", *content, *how])))
    own = list(zip(parts, pieces, strict=True))[share]
    absent = find_missing([part for part, _ in own], thorough)
    tasks = [
        {"key": part.key, **piece._asdict(), "size": piece.size, "digest": digests[file]}
        for number, (part, (file, piece)) in enumerate(own)
        if number in absent
    ]
    shared = {"tokenizer": save_tokenizer(tokenizer), "units": units, "whole": whole}
    work.run(DocumentTokeniser, shared, tasks, "tokenising", "documents")
    metas = find_metas(parts)
    missing = sum(meta is None for meta in metas)
    if not missing:
        shards = []
        for (number, piece), part, meta in zip(pieces, parts, metas, strict=True):
            assert meta is not None
            before = lines_before(piece) if meta["counts"]["undecodable"] else 0
            shards.append({"key": part.key, "file": number, "before": before, **meta})
        index = _index(files, digests, tokenizer, units, whole)
        with lock_folder(cache_folder() / "tokens" / index.key):
            index.make(lambda folder: {"shards": shards})
    return missing


class DocumentTokeniser:
    """Makes shards of documents, in this process or a worker."""

    def __init__(self, tokenizer: str, units: str, whole: bool):
        self.tokenizer, self.segment, self.whole = Tokenizer.load(Path(tokenizer)), load_segmenter(units), whole

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        piece = CorpusPiece(tuple(task["files"]), tuple((start, stop) for start, stop in task["ranges"]))
        part = Part(SHARDS, task["key"])
        with lock_folder(cache_folder() / SHARDS / part.key):
            if find_missing([part]):
                part.make(lambda folder: self._write(folder, piece, task["digest"]))
        found = part.meta()
        return {"items": found["counts"]["documents"] if found else 0}

    def _write(self, folder: Path, piece: CorpusPiece, known: str) -> dict[str, Any]:
        counts, kept = DocumentCounts(), {}

        def rows() -> Iterator[Columns]:
            [file] = piece.inputs()
            for chunk in _chunks(_numbered(read_file(file, counts, self.whole))):
                yield from _encoded_whole(chunk, self.tokenizer) if self.whole else _encoded(chunk, self.tokenizer, self.segment)
            kept.update({**asdict(counts), "undecodable": [("", line) for _, line in counts.undecodable]})

        columns = {"tokens": len(self.tokenizer), "sentences": MAX_SENTENCE, "flags": ALL_FLAGS, "document": MAX_DOCUMENTS}
        found = write_texts(folder, rows(), columns, kept)
        refuse_replaced(input_file(piece.files[0]), known)
        return found


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
