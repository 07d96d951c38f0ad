"""Text whose signs stand by themselves, as the Penn Treebank has it: what an ELMo, whose words lie between spaces, reads here."""

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from qkv.base.files import atomic_file
from qkv.text.documents import DocumentCounts, read_documents
from qkv.text.examples import ExamplesConfig, read_examples
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

# Before the rest of do-n't and it-'s; before a sign, and after one. Hyphens and other apostrophes stay inside their words.
EDGES = re.compile(r"(?<=\w)(?=n't\b|'(?:s|re|ve|ll|d|m)\b|[^\w\s'-])|(?<=[^\w\s'-])(?=\S)")
TOGETHER = 2000  # documents that a process is given at once


def apart(text: str) -> str:
    """The text with a space on both sides of its signs."""
    return EDGES.sub(" ", text)


def write_text(source: Path, path: Path, vocab: int, words: Path) -> None:
    """Documents, a blank line between them, and a tokenizer of their commonest words."""
    with atomic_file(path) as aside, aside.open("w", encoding="utf-8") as file:
        file.writelines(f"{document}\n\n" for document in _documents_apart(source))
    documents = (document for found in read_documents([path], DocumentCounts(), whole=True) for document in found.sentences)
    config = TokenizerConfig.model_validate({"kind": "words", "vocab": vocab})
    train_tokenizer(config, documents).save(words)


def _documents_apart(source: Path) -> Iterator[str]:
    documents = ("\n".join(found.sentences) for found in read_documents([source], DocumentCounts(), whole=True))
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as workers:
        for some in workers.map(_all_apart, _portions(documents)):
            yield from some


def _portions(documents: Iterator[str]) -> Iterator[list[str]]:
    while some := list(islice(documents, TOGETHER)):
        yield some


def _all_apart(texts: list[str]) -> list[str]:
    return [apart(text) for text in texts]


def write_examples(source: Path, path: Path, kind: Any, columns: dict[str, Any]) -> None:
    """Examples with the columns text, pair (where there is one) and label."""
    examples = read_examples(kind, ExamplesConfig(files=(str(source),), **columns))
    rows = ([apart(text) for text in (one.text, one.pair) if text is not None] + [str(one.label)] for one in examples)
    header = ["text", "pair", "label"] if "pair" in columns else ["text", "label"]
    _write_rows(path, [header, *rows])


def _write_rows(path: Path, rows: Iterable[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as aside:
        aside.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
