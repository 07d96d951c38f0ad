"""The tokenised cache: pairs of texts as token ids in memory-mapped files, written once, read from anywhere.

A folder holds, for each side, `NAME.ids` (all texts end to end, uint16 or uint32) and `NAME.ends` (int64, where each text ends),
and `meta.json` with sizes and digests. A folder that does not match its meta is refused.
"""

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from qkv.base.errors import DataError
from qkv.base.files import whole_folder

SIDES = ("source", "target")
META = "meta.json"
_EDGE = 32 << 20  # bytes at each end of a file that its digest covers, so that a large cache opens at once


class Texts:
    """Token ids of many texts, read-only and indexable."""

    def __init__(self, ids: np.ndarray, ends: np.ndarray):
        self.ids = ids
        self.ends = ends

    def __len__(self) -> int:
        return len(self.ends)

    def starts(self, index: np.ndarray) -> np.ndarray:
        """Where the texts of these numbers begin in `ids`."""
        return np.where(index == 0, 0, self.ends[index - 1])

    def lengths(self, index: np.ndarray) -> np.ndarray:
        """How many tokens the texts of these numbers have."""
        return self.ends[index] - self.starts(index)

    def __getitem__(self, number: int) -> np.ndarray:
        return self.ids[self.ends[number - 1] if number else 0 : self.ends[number]]


def texts_of(token_lists: Iterable[list[int]]) -> Texts:
    """Texts held in memory, for dev sets and tests."""
    arrays = [np.asarray(tokens, dtype=np.uint32) for tokens in token_lists]
    ends = np.cumsum([len(a) for a in arrays], dtype=np.int64)
    return Texts(np.concatenate(arrays) if arrays else np.zeros(0, np.uint32), ends)


class Pairs:
    """Source and target texts that belong together."""

    def __init__(self, source: Texts, target: Texts):
        self.source = source
        self.target = target

    def __len__(self) -> int:
        return len(self.source)


def write_pairs(
    folder: Path,
    pairs: Iterable[tuple[list[int], list[int]]],
    vocabularies: tuple[int, int],
    counts: Mapping[str, int] | None = None,
) -> None:
    """Write the cache; it takes its name only when whole. `counts`, as they are at the end, are kept beside it."""
    with whole_folder(folder) as aside:
        files = {side: (aside / f"{side}.ids").open("wb") for side in SIDES}
        ends = {side: array("q") for side in SIDES}
        kinds = dict(zip(SIDES, (_kind(v) for v in vocabularies), strict=True))
        with files["source"], files["target"]:
            for pair in pairs:
                for side, tokens in zip(SIDES, pair, strict=True):
                    _append(files[side], ends[side], tokens, kinds[side])
        for side in SIDES:
            np.asarray(ends[side], dtype=np.int64).tofile(aside / f"{side}.ends")
        names = [f"{side}.{part}" for side in SIDES for part in ("ids", "ends")]
        meta = {
            "kinds": {s: np.dtype(k).name for s, k in kinds.items()},
            "files": {n: edges(aside / n) for n in names},
            "counts": dict(counts or {}),
        }
        (aside / META).write_text(json.dumps(meta, indent=1))


def _append(file: IO[bytes], ends: "array[int]", tokens: list[int], kind: type) -> None:
    file.write(np.asarray(tokens, dtype=kind).tobytes())
    ends.append((ends[-1] if ends else 0) + len(tokens))


def _kind(vocabulary: int) -> type:
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32


def edges(path: Path) -> list[str | int]:
    """Size and digest of a file's two ends: tells a truncated, swapped or overwritten file without reading all of it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.blake2b(file.read(_EDGE), digest_size=16)
        file.seek(max(0, size - _EDGE))
        digest.update(file.read())
    return [size, digest.hexdigest()]


def open_pairs(folder: Path) -> Pairs:
    """Map a cache into memory; raises DataError when it is damaged."""
    try:
        meta = json.loads((folder / META).read_text())
        for name, known in meta["files"].items():
            if edges(folder / name) != known:
                raise DataError(f"{folder / name}: damaged")
        return Pairs(*(_open(folder, side, meta["kinds"][side]) for side in SIDES))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder}: not a tokenised cache: {error}") from None


def _open(folder: Path, side: str, kind: str) -> Texts:
    ends = np.fromfile(folder / f"{side}.ends", dtype=np.int64)
    path = folder / f"{side}.ids"
    # An empty file cannot be mapped.
    ids = np.memmap(path, dtype=kind, mode="r") if path.stat().st_size else np.zeros(0, dtype=kind)
    return Texts(ids, ends)


def in_chunks(items: Iterable[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    """Lists of up to `size` items, so that tokenizers can work on many at once, in parallel."""
    chunk: list[tuple[str, str]] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
