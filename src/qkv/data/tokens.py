"""Token ids of texts in memory-mapped files, written once, with random access.

A folder holds columns of texts that belong together, such as source and target: for each, `NAME.ids` (all texts concatenated,
uint16 or uint32) and `NAME.ends` (int64, where each text ends), and `meta.json` with sizes and digests. A folder that does not
match its meta is refused.
"""

import contextlib
import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from qkv.base.errors import DataError
from qkv.base.files import atomic_folder

T = TypeVar("T")

META = "meta.json"
_EDGE = 32 << 20  # bytes at each end of a file that its digest covers, so that a large cache opens at once


class TokenTexts:
    """Token ids of many texts, read-only and indexable."""

    def __init__(self, ids: np.ndarray, ends: np.ndarray):
        self.ids = ids
        self.ends = ends

    def __len__(self) -> int:
        return len(self.ends)

    def starts(self, index: np.ndarray) -> np.ndarray:
        """Return where the texts with these numbers begin in `ids`."""
        return np.where(index == 0, 0, self.ends[index - 1])

    def lengths(self, index: np.ndarray) -> np.ndarray:
        """Return the lengths of the texts with these numbers."""
        return self.ends[index] - self.starts(index)

    def __getitem__(self, number: int) -> np.ndarray:
        return self.ids[self.ends[number - 1] if number else 0 : self.ends[number]]


def token_texts(token_lists: Iterable[list[int]]) -> TokenTexts:
    """Build texts in memory, for dev sets and tests."""
    arrays = [np.asarray(tokens, dtype=np.uint32) for tokens in token_lists]
    ends = np.cumsum([len(a) for a in arrays], dtype=np.int64)
    return TokenTexts(np.concatenate(arrays) if arrays else np.zeros(0, np.uint32), ends)


class TokenPairs:
    """Source and target texts that belong together."""

    def __init__(self, source: TokenTexts, target: TokenTexts, head: TokenTexts | None = None):
        self.source = source
        self.target = target
        self.head = head  # of each source token, as in base.rows.Rows, where sources have trees

    def __len__(self) -> int:
        return len(self.source)


def exchange_sources(pairs: TokenPairs, most: int) -> tuple[TokenPairs, TokenPairs]:
    """Return up to `most` of the pairs, evenly chosen, and their targets each with the source of another one of them."""
    chosen = np.linspace(0, len(pairs) - 1, min(most, len(pairs))).astype(np.int64)
    # Neighbours may be parts of one document, so the other source is from half-way round.
    other = np.roll(chosen, len(chosen) // 2)

    def select(sources: np.ndarray) -> TokenPairs:
        head = None if pairs.head is None else _select(pairs.head, sources)
        return TokenPairs(_select(pairs.source, sources), _select(pairs.target, chosen), head)

    return select(chosen), select(other)


def _select(texts: TokenTexts, numbers: np.ndarray) -> TokenTexts:
    return TokenTexts(np.concatenate([texts[number] for number in numbers]), np.cumsum(texts.lengths(numbers)))


def write_texts(
    folder: Path,
    rows: Iterable[Sequence[list[int]]],
    vocabularies: Mapping[str, int],
    counts: Mapping[str, object] | None = None,
) -> None:
    """Write columns of texts, one text of each row into each column; `vocabularies` are the columns with their sizes.

    The folder appears only when it is complete. `counts` is saved in meta.json, as it is after the last row.
    """
    kinds = {name: np.uint16 if size <= 1 << 16 else np.uint32 for name, size in vocabularies.items()}
    ends = {name: array("q") for name in kinds}
    with atomic_folder(folder) as aside:
        with contextlib.ExitStack() as opened:
            files = {name: opened.enter_context((aside / f"{name}.ids").open("wb")) for name in kinds}
            for row in rows:
                for name, tokens in zip(kinds, row, strict=True):
                    files[name].write(np.asarray(tokens, dtype=kinds[name]).tobytes())
                    ends[name].append((ends[name][-1] if ends[name] else 0) + len(tokens))
        for name in kinds:
            np.asarray(ends[name], dtype=np.int64).tofile(aside / f"{name}.ends")
        meta = {
            "kinds": {name: np.dtype(kind).name for name, kind in kinds.items()},
            "files": {file: file_fingerprint(aside / file) for name in kinds for file in (f"{name}.ids", f"{name}.ends")},
            "counts": dict(counts or {}),
        }
        (aside / META).write_text(json.dumps(meta, indent=1))


def file_fingerprint(path: Path) -> list[str | int]:
    """Return the size of a file and a digest of its two ends, which reveal damage without reading all of a large file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.blake2b(file.read(_EDGE), digest_size=16)
        file.seek(max(0, size - _EDGE))
        digest.update(file.read())
    return [size, digest.hexdigest()]


def open_texts(folder: Path) -> dict[str, TokenTexts]:
    """Map the columns of a folder into memory; raise DataError when it is damaged."""
    try:
        meta = json.loads((folder / META).read_text())
        for name, fingerprint in meta["files"].items():
            if file_fingerprint(folder / name) != fingerprint:
                raise DataError(f"{folder / name}: damaged")
        return {name: _open(folder, name, kind) for name, kind in meta["kinds"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder}: not a tokenised cache: {error}") from None


def _open(folder: Path, name: str, kind: str) -> TokenTexts:
    ends = np.fromfile(folder / f"{name}.ends", dtype=np.int64)
    path = folder / f"{name}.ids"
    # An empty file cannot be mapped.
    ids = np.memmap(path, dtype=kind, mode="r") if path.stat().st_size else np.zeros(0, dtype=kind)
    return TokenTexts(ids, ends)


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
