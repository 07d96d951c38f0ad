"""Documents as token ids, made once and kept in the cache: of each its sentences end to end, and how long each sentence is."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from qkv.base.errors import DataError
from qkv.data.cache import alone, cache_folder, counting, digest_of, key_of
from qkv.data.tokens import META, Texts, in_chunks, open_texts, write_texts
from qkv.text.documents import Counts, read_documents
from qkv.text.tokenizer import Tokenizer

CHUNK = 500  # documents tokenised together
LONGEST_SENTENCE = 1 << 20  # tokens, for the width of the column of lengths


class Documents:
    """Token ids of many documents, read-only."""

    def __init__(self, tokens: Texts, sentences: Texts):
        self.tokens = tokens
        self.sentences = sentences  # lengths in tokens, none of them 0

    def __len__(self) -> int:
        return len(self.tokens)

    def sentences_of(self, number: int) -> list[np.ndarray]:
        """The sentences of a document."""
        return np.split(self.tokens[number], np.cumsum(self.sentences[number])[:-1])


def tokenised_documents(files: Sequence[Path], tokenizer: Tokenizer, quiet: bool) -> tuple[Documents, Counts]:
    """The documents of some files, mapped into memory, and what was found while reading them."""
    key = key_of(["documents", [(path.suffixes, digest_of(path)) for path in files], tokenizer.fingerprint()])
    folder = cache_folder() / "tokens" / key
    found = _known(folder)
    if found is None:
        with alone(folder):
            found = _known(folder) or _tokenise(folder, files, tokenizer, quiet)
    return found


def _known(folder: Path) -> tuple[Documents, Counts] | None:
    """What was made the last time; None when nothing was, or when it is damaged: then it is made again from the text."""
    try:
        counts = json.loads((folder / META).read_text())["counts"]
        counts["undecodable"] = [(file, line) for file, line in counts["undecodable"]]
        return Documents(**open_texts(folder)), Counts(**counts)
    except (DataError, OSError, ValueError, KeyError, TypeError):
        return None


def _tokenise(folder: Path, files: Sequence[Path], tokenizer: Tokenizer, quiet: bool) -> tuple[Documents, Counts]:
    counts, kept = Counts(), {}

    def rows() -> Iterator[tuple[list[int], list[int]]]:
        yield from _encoded(files, tokenizer, counts, quiet)
        kept.update(asdict(counts))

    write_texts(folder, rows(), {"tokens": len(tokenizer), "sentences": LONGEST_SENTENCE}, kept)
    return Documents(**open_texts(folder)), counts


def _encoded(files: Sequence[Path], tokenizer: Tokenizer, counts: Counts, quiet: bool) -> Iterator[tuple[list[int], list[int]]]:
    """Token ids of each document and the lengths of its sentences; the tokenizer uses all cores on each chunk."""
    with counting("tokenising", "documents", quiet) as count:
        for chunk in in_chunks(count(read_documents(files, counts)), CHUNK):
            encoded = iter(tokenizer.encode_batch([sentence for document in chunk for sentence in document.sentences]))
            for document in chunk:
                sentences = [ids for ids in (next(encoded) for _ in document.sentences) if ids]
                if sentences:
                    yield [token for ids in sentences for token in ids], [len(ids) for ids in sentences]
