"""Batches of rows by token budget, in an order that resumes anywhere at no cost.

An epoch is cut into pools; each pool is packed by itself, its rows are shuffled and dealt into batches. Resuming at (epoch, pool,
batch) packs that one pool again, however large the corpus is.
With `one_text_per_row`, for models that mix neighbours, every text has its own row, and texts of similar length make a batch.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from qkv.base.rows import Rows, map_tensors, move_rows
from qkv.base.seeds import rng_at
from qkv.data.order import Order
from qkv.data.packing import pack
from qkv.data.tokens import Texts, TokenPairs

POOL = 1 << 16  # pairs packed together
MULTIPLE = 8  # rows with one text each have a width that is a multiple of it, so that there are few shapes
T = TypeVar("T")


class Position(NamedTuple):
    """A point in the order of training: the batch that comes next."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0
    begun: int = 0  # batches before this pool, where the contents of a pool depend on that number


START = Position()


@dataclass(frozen=True)
class Batch:
    """Inputs of an objective, in rows, with counts for the training loop. Counts are of the whole batch, over all processes."""

    # For translation: source and target Rows; row r of both holds the same pairs, and targets end in eos.
    inputs: tuple[Any, ...]
    labels: int  # terms of the loss
    tokens: int  # for the speed in the log
    positions: int  # columns of all rows
    filled: int  # positions that hold a token
    after: Position  # the batch after this one
    part_of_rows: range | None = None  # the rows of the whole batch that these are; None: all of them
    whole_rows: int = 0  # rows over all processes, in one process's part of a batch

    @property
    def rows(self) -> int:
        return len(self.inputs[0][0])

    @property
    def numbers(self) -> range:
        """The numbers of these rows in the whole batch, over all processes."""
        return range(self.rows) if self.part_of_rows is None else self.part_of_rows

    def part(self, index: slice) -> "Batch":
        """Return some of the rows; the counts stay those of the whole batch."""
        inputs = tuple(map_tensors(rows, lambda t: t[index]) for rows in self.inputs)
        return replace(self, inputs=inputs, part_of_rows=self.numbers[index])

    def to(self, device: torch.device) -> "Batch":
        return replace(self, inputs=tuple(move_rows(rows, device) for rows in self.inputs))


class Batches:
    """Endless batches over a mixture of corpora."""

    pool_size = POOL

    def __init__(
        self,
        corpora: list[TokenPairs],
        weights: list[float],
        *,
        seed: int,
        tokens: int,
        widths: tuple[int, int],
        eos: int,
        fixed: bool = False,
        one_text_per_row: bool = False,
        window: int | None = None,
        shards: Sequence[Sequence[int]] | None = None,
    ):
        """`window` bounds how far pairs are shuffled, see data/order.py; `shards` are the sizes of each corpus's shards."""
        self.corpora = corpora
        # Batches of the same widths have the same number of rows, so that one recorded update (a CUDA graph) takes them all.
        self.fixed = fixed
        self.one_text_per_row = one_text_per_row  # rows are then as wide as the longest text of their batch
        self.order = Order([len(c) for c in corpora], weights, seed, window, shards)
        self.seed = seed
        self.tokens = tokens
        self.widths = widths
        self.eos = eos

    def pools(self) -> int:
        return -(-len(self.order) // self.pool_size)

    def starting(self, at: Position) -> Iterator[Batch]:
        """Yield batches from a position on, without end; the next pool is packed, and its shards fetched, while one is dealt."""
        epoch, pool, batch, _ = at
        with ThreadPoolExecutor(1) as worker:
            packed = self._pack(epoch, pool)
            while True:
                following = (epoch, pool + 1) if pool + 1 < self.pools() else (epoch + 1, 0)
                coming = worker.submit(self._pack, *following)
                while batch < len(packed.batches):
                    yield self._assemble(packed, batch, Position(epoch, pool, batch + 1))
                    batch += 1
                (epoch, pool), batch, packed = following, 0, coming.result()

    def _pack(self, epoch: int, pool: int) -> "_Pool":
        """Pack one pool of pairs into rows and deal them into batches, in random order."""
        positions = np.arange(pool * self.pool_size, min((pool + 1) * self.pool_size, len(self.order)))
        corpora, corpus, pair = self._drawn(epoch, pool, positions)
        source, target = np.empty_like(pair), np.empty_like(pair)
        for number, texts in enumerate(corpora):
            here = corpus == number
            source[here] = texts.source.lengths(pair[here])
            target[here] = texts.target.lengths(pair[here])
            texts.fetch(pair[here])
        rng = rng_at(self.seed, "rows", epoch, pool)
        if self.one_text_per_row:
            batches = _shuffled(batch_by_length(source, target + 1, self.tokens), rng)  # targets have an eos too
        else:
            batches = _dealt(_shuffled(pack(source, target + 1, self.widths), rng), rows_within(self.tokens, self.widths))
        return _Pool(corpora, corpus, pair, source, target, batches)

    def _drawn(self, epoch: int, pool: int, positions: np.ndarray) -> tuple[list[TokenPairs], np.ndarray, np.ndarray]:
        """Return the corpus of each of these positions of an epoch, and the number of its pair there."""
        return self.corpora, *self.order.at(epoch, positions)

    def _assemble(self, pool: "_Pool", batch: int, after: Position) -> Batch:
        rows = pool.batches[batch]
        members = np.concatenate([np.asarray(row) for row in rows])
        widths = _widths_for(pool.source[members], pool.target[members]) if self.one_text_per_row else self.widths
        missing = rows_within(self.tokens, widths) - len(rows) if self.fixed else 0
        counts = np.array([len(row) for row in rows] + [0] * missing)
        source, target = (self._flat(pool, members, side, getattr(pool, side)) for side in ("source", "target"))
        head = None if pool.corpora[0].head is None else self._flat(pool, members, "head", pool.source)[0]
        return _lay_out_pairs(source, target, counts, widths, self.eos, after, head)

    def _flat(self, pool: "_Pool", members: np.ndarray, column: str, lengths: np.ndarray) -> "Flat":
        texts = [getattr(corpus, column) for corpus in pool.corpora]
        return _gather(texts, pool.corpus[members], pool.pair[members], lengths[members]), lengths[members]


Row = list[int]  # numbers of the pairs in a row


class _Pool(NamedTuple):
    """Pairs that are packed together: the corpus, number and lengths of each, and the rows and batches that they share."""

    corpora: list[TokenPairs]
    corpus: np.ndarray
    pair: np.ndarray
    source: np.ndarray
    target: np.ndarray
    batches: list[list[Row]]


def rows_within(tokens: int, widths: tuple[int, int]) -> int:
    """Return the number of rows within a budget of target tokens."""
    return max(1, tokens // widths[1])


def _dealt(rows: list[Row], size: int) -> list[list[Row]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _shuffled(items: list[T], rng: np.random.Generator) -> list[T]:
    return [items[i] for i in rng.permutation(len(items))]


def batch_by_length(source: np.ndarray, target: np.ndarray, tokens: int) -> list[list[Row]]:
    """Make batches of rows with one pair each, of similar length on both sides, within a budget of target tokens with padding."""
    wide = _rounded(target)
    # Longest targets first. Within one width, sources alternately grow and shrink, so that no batch has the shortest and longest.
    turn = np.where(wide // MULTIPLE % 2, 1, -1)
    order = np.lexsort((turn * source, -wide))
    batches, start = [], 0
    while start < len(order):
        size = max(1, tokens // int(wide[order[start]]))
        batches.append([[pair] for pair in order[start : start + size].tolist()])
        start += size
    return batches


def _widths_for(source: np.ndarray, target: np.ndarray) -> tuple[int, int]:
    """Return the widths of rows with one of these pairs each; targets get an eos."""
    return int(_rounded(source).max()), int(_rounded(target + 1).max())


def _rounded(lengths: np.ndarray) -> np.ndarray:
    """Round lengths up to the next multiple; a text without tokens has a row too."""
    return np.maximum(-(-lengths // MULTIPLE), 1) * MULTIPLE


def _gather(texts: list[Texts], corpus: np.ndarray, pair: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate the token ids of many texts, without a Python step for each."""
    ids = np.empty(lengths.sum(), dtype=np.int64)
    for number, tokens in enumerate(texts):
        chosen = corpus == number
        ids[np.repeat(chosen, lengths)] = tokens.spans(tokens.starts(pair[chosen]), lengths[chosen])
    return ids


Flat = tuple[np.ndarray, np.ndarray]  # concatenated token ids of many texts, and the length of each


def make_batch(
    source: list[list[np.ndarray]],
    target: list[list[np.ndarray]],
    widths: tuple[int, int],
    eos: int,
    after: Position = START,
    head: list[list[np.ndarray]] | None = None,
) -> Batch:
    """Make a batch of rows of whole texts, each target followed by eos."""
    counts = np.array([len(row) for row in source])
    heads = None if head is None else _flat(head)[0]
    return _lay_out_pairs(_flat(source), _flat(target), counts, widths, eos, after, heads)


def _flat(rows: list[list[np.ndarray]]) -> Flat:
    texts = [np.asarray(tokens, dtype=np.int64) for row in rows for tokens in row]
    ids = np.concatenate(texts) if texts else np.zeros(0, dtype=np.int64)
    return ids, np.array([len(tokens) for tokens in texts], dtype=np.int64)


def _lay_out_pairs(
    source: Flat, target: Flat, counts: np.ndarray, widths: tuple[int, int], eos: int, after: Position, head: np.ndarray | None
) -> Batch:
    """Make a batch with `counts` texts in each row; every target gets its eos. `head` belongs to the source's tokens."""
    ids, lengths = target
    ended = np.insert(ids, np.cumsum(lengths), eos), lengths + 1
    rows = _lay_out(source, counts, widths[0], head), _lay_out(ended, counts, widths[1])
    written = len(ended[0])
    return Batch(rows, written, written, len(counts) * sum(widths), len(source[0]) + written, after)


def _lay_out(texts: Flat, counts: np.ndarray, width: int, head: np.ndarray | None = None) -> Rows:
    """Lay whole texts out in rows, `counts` of them in each."""
    ids, lengths = texts
    row = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(lengths)) - np.repeat(np.cumsum(counts) - counts, counts)
    before = np.cumsum(lengths) - lengths  # tokens of all texts before this one
    first = np.searchsorted(row, row)  # the first text of the same row
    start = row * width + before - before[first]
    position = np.arange(len(ids)) - np.repeat(before, lengths)
    at = np.repeat(start, lengths) + position
    values = [ids, np.repeat(number + 1, lengths), position, *([] if head is None else [head])]
    laid = np.zeros((len(values), len(counts) * width), dtype=np.int64)
    laid[:, at] = values
    return Rows(*torch.from_numpy(laid).view(len(values), len(counts), width))


def in_order(
    pairs: TokenPairs, *, tokens: int, widths: tuple[int, int], eos: int, one_text_per_row: bool = False
) -> Iterator[Batch]:
    """Yield every pair once, for validation: packed, or one in a row."""
    index = np.arange(len(pairs))
    source, target = pairs.source.lengths(index), pairs.target.lengths(index)
    if one_text_per_row:
        batches = batch_by_length(source, target + 1, tokens)
    else:
        batches = _dealt(pack(source, target + 1, widths), rows_within(tokens, widths))
    for rows in batches:
        members = np.concatenate([np.asarray(row) for row in rows])
        yield make_batch(
            [[pairs.source[i] for i in row] for row in rows],
            [[pairs.target[i] for i in row] for row in rows],
            _widths_for(source[members], target[members]) if one_text_per_row else widths,
            eos,
            head=None if pairs.head is None else [[pairs.head[i] for i in row] for row in rows],
        )


def prefetch(batches: Iterator[Batch], prepare: Callable[[Batch], T], depth: int = 4) -> Generator[T, None, None]:
    """Yield what `prepare` makes of each batch, on another thread while the device is busy."""
    ready: queue.Queue[T | BaseException | None] = queue.Queue(depth)
    stop = threading.Event()

    def hand_over(item: T | BaseException | None) -> None:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                return ready.put(item, timeout=0.1)

    def work() -> None:
        try:
            for batch in batches:
                hand_over(prepare(batch))
                if stop.is_set():
                    return
            hand_over(None)
        except BaseException as error:
            hand_over(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join(timeout=5)


def max_length(texts: Texts) -> int:
    """Return the number of tokens in the longest text."""
    return int(texts.lengths(np.arange(len(texts))).max(initial=0))
