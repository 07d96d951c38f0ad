"""Punctuation split from words, as in the Penn Treebank: text for an ELMo, whose words are separated by spaces."""

import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from qkv.base.files import atomic_file
from qkv.objectives import OBJECTIVES
from qkv.text.documents import DocumentCounts, read_documents
from qkv.text.examples import ExamplesConfig, read_examples
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

# Before n't and 's, before a punctuation mark, and after one. Hyphens and other apostrophes stay inside their words.
SPLITS = re.compile(r"(?<=\w)(?=n't\b|'(?:s|re|ve|ll|d|m)\b|[^\w\s'-])|(?<=[^\w\s'-])(?=\S)")
CHUNK = 2000  # documents that a worker process splits at a time


def split_punctuation(text: str) -> str:
    """Put a space on both sides of every punctuation mark."""
    return SPLITS.sub(" ", text)


def write_text(source: Path, path: Path, vocab: int, words: Path) -> None:
    """Write documents, a blank line between them, and a tokenizer of their most frequent words."""
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"{document}\n\n" for document in _split_documents(source))
    documents = (document for found in read_documents([path], DocumentCounts(), whole=True) for document in found.sentences)
    config = TokenizerConfig.model_validate({"kind": "words", "vocab": vocab})
    train_tokenizer(config, documents).save(words)


def _split_documents(source: Path) -> Iterator[str]:
    documents = ("\n".join(found.sentences) for found in read_documents([source], DocumentCounts(), whole=True))
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as workers:
        for chunk in workers.map(_split_all, _chunks(documents)):
            yield from chunk


def _chunks(documents: Iterator[str]) -> Iterator[list[str]]:
    while chunk := list(islice(documents, CHUNK)):
        yield chunk


def _split_all(texts: list[str]) -> list[str]:
    return [split_punctuation(text) for text in texts]


def write_examples(source: Path, path: Path, kind: Any, columns: dict[str, Any]) -> None:
    """Write examples with the columns text, pair (where there is one) and label."""
    readers = OBJECTIVES[kind].readers  # type: ignore[attr-defined]
    examples = read_examples(readers, ExamplesConfig(files=(str(source),), **columns))
    rows = [["text", "pair", "label"] if "pair" in columns else ["text", "label"]]
    for example in examples:
        texts = [split_punctuation(text) for text in (example.text, example.pair) if text is not None]
        rows.append([*texts, str(example.label)])
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        temporary.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
