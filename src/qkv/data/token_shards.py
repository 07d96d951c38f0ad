"""Token shards: the texts of a corpus in several folders of the cache, opened (and fetched from a remote cache) as needed."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from qkv.base.processes import open_file_limit
from qkv.data.cache import cache_folder
from qkv.data.store import Part, find_missing
from qkv.data.tokens import Texts, TokenTexts, map_file
from qkv.text.tokenizer import Tokenizer

INDEX = "index.json"  # the last file of a corpus's part, which lists its pieces or shards
SHARDS = "shards"  # the kind of the parts that hold them
MOST_OPEN = 4096  # files of a corpus mapped into memory at once, or a quarter of those that a process may have open
FETCHED_AT_ONCE = 8  # files
BLOCK = 1 << 20  # texts that are looked up at once


class TokenShards:
    """The token shards of a corpus, as its index lists them: each with its key, its sizes and the fingerprints of its files."""

    def __init__(self, entries: Sequence[dict[str, Any]]):
        self.entries = list(entries)
        self.names = list(entries[0]["kinds"])  # of columns
        self.texts = [int(entry["texts"]) for entry in entries]
        self.parts = [Part(SHARDS, entry["key"]) for entry in entries]
        self.remote = any(part.remote for part in self.parts)
        limit = open_file_limit()
        self.most_open = MOST_OPEN if limit is None else max(1, min(MOST_OPEN, limit // 4))
        self._compared: set[tuple[int, str]] = set()  # files of this machine whose fingerprint was right
        self._mapped: OrderedDict[tuple[int, str], np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def columns(self) -> dict[str, Texts]:
        """Return the texts of each column over all shards."""
        if len(self.entries) == 1:
            return {
                name: TokenTexts(self.map(0, f"{name}.ids"), self.map(0, f"{name}.ends")) for name in self.entries[0]["kinds"]
            }
        return {name: JoinedTexts(self, name) for name in self.entries[0]["kinds"]}

    def map(self, number: int, file: str) -> np.ndarray:
        """Map a file of a shard into memory; the first time, its fingerprint is compared."""
        with self._lock:
            if (number, file) in self._mapped:
                self._mapped.move_to_end((number, file))
                return self._mapped[number, file]
        entry = self.entries[number]
        name, _, ending = file.rpartition(".")
        kind = entry["kinds"][name] if ending == "ids" else np.int64
        fingerprint = None if (number, file) in self._compared else entry["files"][file]
        found = self.parts[number].open(file, lambda path: map_file(path, kind), fingerprint)
        with self._lock:
            if not self.remote:
                self._compared.add((number, file))
            self._mapped[number, file] = found
            while len(self._mapped) > self.most_open:
                self._mapped.popitem(last=False)
        return found

    def fetch(self, numbers: Iterable[int], file: str) -> None:
        """Fetch a file of several shards at once, where the cache is not on this machine."""
        if self.remote:
            with ThreadPoolExecutor(FETCHED_AT_ONCE) as pool:
                list(pool.map(lambda number: self.map(number, file), numbers))


class JoinedTexts(Texts):
    """One column of texts over all shards."""

    def __init__(self, shards: TokenShards, column: str):
        self.shards, self.column = shards, column
        self.bounds = np.cumsum([0, *shards.texts])  # the first text of each shard, and the number of all
        self.offsets = np.cumsum([0, *(int(entry["tokens"][column]) for entry in shards.entries)])  # the same in tokens

    def __len__(self) -> int:
        return int(self.bounds[-1])

    @property
    def tokens(self) -> int:
        return int(self.offsets[-1])

    def starts(self, index: np.ndarray) -> np.ndarray:
        found = np.empty(len(index), dtype=np.int64)
        for number, here, ends in self._opened(index):
            local = index[here] - self.bounds[number]
            found[here] = np.where(local == 0, 0, ends[local - 1]) + self.offsets[number]
        return found

    def lengths(self, index: np.ndarray) -> np.ndarray:
        found = np.empty(len(index), dtype=np.int64)
        for number, here, ends in self._opened(index):
            local = index[here] - self.bounds[number]
            found[here] = ends[local] - np.where(local == 0, 0, ends[local - 1])
        return found

    def _opened(self, index: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield each shard that has some of these texts, which of them it has, and the ends of its texts."""
        file = f"{self.column}.ends"
        for start in range(0, len(index), BLOCK):
            for number, here in self._divided(self.bounds, index[start : start + BLOCK], file):
                yield number, start + here, self.shards.map(number, file)

    def _divided(self, bounds: np.ndarray, values: np.ndarray, file: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each shard with the indices of the values that lie in it."""
        shard = np.searchsorted(bounds, values, side="right") - 1
        order = np.argsort(shard, kind="stable")
        numbers, first = np.unique(shard[order], return_index=True)
        self.shards.fetch(numbers.tolist(), file)
        yield from zip(numbers.tolist(), np.split(order, first[1:]), strict=True)

    def spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        ids = np.empty(int(lengths.sum()), dtype=self.shards.entries[0]["kinds"][self.column])
        begin = np.cumsum(lengths) - lengths
        full = np.flatnonzero(lengths)
        for number, here in self._divided(self.offsets, starts[full], f"{self.column}.ids"):
            chosen, mapped = full[here], self.shards.map(number, f"{self.column}.ids")
            size = lengths[chosen]
            within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
            ids[np.repeat(begin[chosen], size) + within] = mapped[np.repeat(starts[chosen] - self.offsets[number], size) + within]
        return ids

    def fetch(self, index: np.ndarray) -> None:
        if self.shards.remote:
            numbers = np.unique(np.searchsorted(self.bounds, index, side="right") - 1)
            self.shards.fetch(numbers.tolist(), f"{self.column}.ids")


def known_shards(index: Part) -> list[dict[str, Any]] | None:
    """Return the shards that an index lists; None where it is not there, or a shard on this machine is missing."""
    found = index.meta()
    try:
        entries: list[dict[str, Any]] = found["shards"] if found else []
        there = bool(entries) and (index.remote or not find_missing([Part(SHARDS, entry["key"]) for entry in entries]))
    except (KeyError, TypeError):
        return None
    return entries if there else None


def save_tokenizer(tokenizer: Tokenizer) -> str:
    """Return a file with a tokenizer, for other processes of this machine."""
    path = cache_folder() / "tokenizers" / f"{tokenizer.fingerprint()}.json"
    if not path.exists():
        tokenizer.save(path)
    return str(path)
