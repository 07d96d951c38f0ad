"""Token ids of texts in memory-mapped files, written once, with random access; data/token_shards.py joins several such folders.

A folder holds columns of texts that belong together, such as source and target: for each, `NAME.ids` (all texts concatenated,
uint16 or uint32) and `NAME.ends` (int64, where each text ends).
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


class Texts(ABC):
    """Token ids of many texts, one after the other, read-only and indexable."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def tokens(self) -> int:
        """The number of tokens of all texts."""

    @abstractmethod
    def starts(self, index: np.ndarray) -> np.ndarray:
        """Return where the texts with these numbers begin, in tokens."""

    @abstractmethod
    def lengths(self, index: np.ndarray) -> np.ndarray:
        """Return the lengths of the texts with these numbers."""

    @abstractmethod
    def fetch(self, index: np.ndarray) -> None:
        """Make sure that the tokens of the texts with these numbers are on this machine."""

    @abstractmethod
    def spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Concatenate spans of tokens, without a Python step for each; a span lies within one text."""

    def gather(self, index: np.ndarray) -> np.ndarray:
        """Concatenate the texts with these numbers."""
        return self.spans(self.starts(index), self.lengths(index))

    def __getitem__(self, number: int) -> np.ndarray:
        return self.gather(np.array([number]))


class TokenTexts(Texts):
    """Token ids of many texts in one array."""

    def __init__(self, ids: np.ndarray, ends: np.ndarray):
        self.ids = ids
        self.ends = ends

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def tokens(self) -> int:
        return len(self.ids)

    def starts(self, index: np.ndarray) -> np.ndarray:
        return np.where(index == 0, 0, self.ends[index - 1])

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return self.ends[index] - self.starts(index)

    def fetch(self, index: np.ndarray) -> None:
        pass

    def spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        shift = starts - (np.cumsum(lengths) - lengths)
        return self.ids[np.repeat(shift, lengths) + np.arange(lengths.sum())]

    def __getitem__(self, number: int) -> np.ndarray:
        return self.ids[self.ends[number - 1] if number else 0 : self.ends[number]]


def token_texts(token_lists: Iterable[list[int]]) -> TokenTexts:
    """Build texts in memory, for dev sets and tests."""
    arrays = [np.asarray(tokens, dtype=np.uint32) for tokens in token_lists]
    ends = np.cumsum([len(a) for a in arrays], dtype=np.int64)
    return TokenTexts(np.concatenate(arrays) if arrays else np.zeros(0, np.uint32), ends)


class TokenPairs:
    """Source and target texts that belong together."""

    def __init__(self, source: Texts, target: Texts, head: Texts | None = None):
        self.source = source
        self.target = target
        self.head = head  # of each source token, as in base.rows.Rows, where sources have trees

    def __len__(self) -> int:
        return len(self.source)

    def fetch(self, index: np.ndarray) -> None:
        """Make sure that the tokens of the pairs with these numbers are on this machine."""
        for texts in (self.source, self.target, self.head):
            if texts is not None:
                texts.fetch(index)


def exchange_sources(pairs: TokenPairs, most: int) -> tuple[TokenPairs, TokenPairs]:
    """Return up to `most` of the pairs, evenly chosen, and their targets each with the source of another one of them."""
    chosen = np.linspace(0, len(pairs) - 1, min(most, len(pairs))).astype(np.int64)
    # Neighbours may be parts of one document, so the other source is from half-way round.
    other = np.roll(chosen, len(chosen) // 2)

    def select(sources: np.ndarray) -> TokenPairs:
        head = None if pairs.head is None else _select(pairs.head, sources)
        return TokenPairs(_select(pairs.source, sources), _select(pairs.target, chosen), head)

    return select(chosen), select(other)


def _select(texts: Texts, numbers: np.ndarray) -> TokenTexts:
    return TokenTexts(texts.gather(numbers), np.cumsum(texts.lengths(numbers)))


def write_texts(
    folder: Path,
    rows: Iterable[Sequence[list[int]]],
    vocabularies: Mapping[str, int],
    counts: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Write columns of texts into a folder, one text of each row into each column; return what a shard says about itself.

    `vocabularies` are the columns with their sizes; `counts` are as they are after the last row.
    """
    columns = {name: _Column(folder / name, np.uint16 if size <= 1 << 16 else np.uint32) for name, size in vocabularies.items()}
    with contextlib.ExitStack() as opened:
        for column in columns.values():
            opened.enter_context(contextlib.closing(column))
        for row in rows:
            for column, tokens in zip(columns.values(), row, strict=True):
                column.add(tokens)
    first, *_ = columns.values()
    return {
        "kinds": {name: np.dtype(column.kind).name for name, column in columns.items()},
        "texts": first.texts,
        "tokens": {name: column.end for name, column in columns.items()},
        "longest": {name: column.longest for name, column in columns.items()},
        "counts": dict(counts or {}),
    }


class _Column:
    """The two files of a column while they are written; memory does not grow with them."""

    def __init__(self, path: Path, kind: Any):
        self.kind = kind
        self.ids, self.ends = path.with_name(f"{path.name}.ids").open("wb"), path.with_name(f"{path.name}.ends").open("wb")
        self.texts = self.end = self.longest = 0

    def add(self, tokens: Sequence[int]) -> None:
        self.ids.write(np.asarray(tokens, dtype=self.kind).tobytes())
        self.texts += 1
        self.end += len(tokens)
        self.longest = max(self.longest, len(tokens))
        self.ends.write(self.end.to_bytes(8, "little"))

    def close(self) -> None:
        self.ids.close()
        self.ends.close()


def map_file(path: Path, kind: Any) -> np.ndarray:
    """Map a file of numbers into memory."""
    # An empty file cannot be mapped.
    return np.memmap(path, dtype=kind, mode="r") if path.stat().st_size else np.zeros(0, dtype=kind)


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Group items into lists of up to `size`, so that tokenizers work on many at once, in parallel."""
    chunk: list[T] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
