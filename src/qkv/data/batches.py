"""Batches of packed rows by token budget, in an order that resumes anywhere at no cost.

An epoch is cut into pools of positions; each pool is packed by itself, its rows are shuffled and dealt into batches. To resume
at (epoch, pool, batch) is to pack that one pool again, however large the corpus is.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from qkv.base.rows import Rows
from qkv.base.seeds import rng_at
from qkv.data.order import Order
from qkv.data.packing import pack
from qkv.data.tokens import Pairs, Texts

POOL = 1 << 16  # pairs packed together


class Position(NamedTuple):
    """A place in the order of training: the batch that comes next."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0


START = Position()


@dataclass(frozen=True)
class Batch:
    """What an objective reads, in rows, and what the loop must know of it."""

    inputs: tuple[Rows, ...]  # for translation: source, target; row r of both holds the same pairs, and targets end in eos
    tokens: int  # that carry a loss, in the whole batch, over all its parts and all processes
    places: int  # for tokens, in the whole batch
    filled: int  # places that hold a token
    after: Position  # where training goes on after this batch

    @property
    def rows(self) -> int:
        return self.inputs[0].ids.size(0)

    def part(self, index: slice) -> "Batch":
        """Some of the rows; the counts stay those of the whole batch."""
        return replace(self, inputs=tuple(rows.part(index) for rows in self.inputs))

    def to(self, device: torch.device) -> "Batch":
        return replace(self, inputs=tuple(rows.to(device) for rows in self.inputs))


class Batches:
    """Endless batches over a mixture of corpora."""

    def __init__(
        self,
        corpora: list[Pairs],
        weights: list[float],
        *,
        seed: int,
        tokens: int,
        widths: tuple[int, int],
        eos: int,
        fixed: bool = False,
    ):
        self.corpora = corpora
        self.fixed = fixed  # every batch has the same number of rows, so that a compiled step sees one shape
        self.order = Order([len(c) for c in corpora], weights, seed)
        self.seed = seed
        self.rows = max(1, tokens // widths[1])
        self.widths = widths
        self.eos = eos

    def pools(self) -> int:
        return -(-len(self.order) // POOL)

    def starting(self, at: Position) -> Iterator[Batch]:
        """Batch after batch from a position on, without end."""
        epoch, pool, batch = at
        while True:
            packed = self._pack(epoch, pool)
            count = -(-len(packed) // self.rows)
            while batch < count:
                after = Position(epoch, pool, batch + 1)
                yield self._assemble(packed[batch * self.rows : (batch + 1) * self.rows], after)
                batch += 1
            batch, pool = 0, pool + 1
            if pool == self.pools():
                epoch, pool = epoch + 1, 0

    def _pack(self, epoch: int, pool: int) -> list[list[tuple[int, int]]]:
        """Rows of (corpus, pair) for one pool, shuffled."""
        positions = np.arange(pool * POOL, min((pool + 1) * POOL, len(self.order)))
        corpus, pair = self.order.at(epoch, positions)
        source, target = np.empty_like(pair), np.empty_like(pair)
        for number, texts in enumerate(self.corpora):
            here = corpus == number
            source[here] = texts.source.lengths(pair[here])
            target[here] = texts.target.lengths(pair[here]) + 1  # eos
        rows = pack(source, target, self.widths)
        shuffled = rng_at(self.seed, "rows", epoch, pool).permutation(len(rows))
        return [[(int(corpus[i]), int(pair[i])) for i in rows[r]] for r in shuffled]

    def _assemble(self, rows: list[list[tuple[int, int]]], after: Position) -> Batch:
        source = [[self.corpora[c].source[i] for c, i in row] for row in rows]
        target = [[self.corpora[c].target[i] for c, i in row] for row in rows]
        if self.fixed:
            source += [[]] * (self.rows - len(source))
            target += [[]] * (self.rows - len(target))
        return make_batch(source, target, self.widths, self.eos, after)


def make_batch(
    source: list[list[np.ndarray]],
    target: list[list[np.ndarray]],
    widths: tuple[int, int],
    eos: int,
    after: Position = START,
) -> Batch:
    """Lay rows of texts out as tensors: whole texts side by side, each target followed by eos."""
    source_rows, read = _lay_out(source, widths[0], None)
    target_rows, written = _lay_out(target, widths[1], eos)
    return Batch((source_rows, target_rows), written, len(source) * sum(widths), read + written, after)


def _lay_out(rows: list[list[np.ndarray]], width: int, eos: int | None) -> tuple[Rows, int]:
    ids, text, place = (np.zeros((len(rows), width), dtype=np.int64) for _ in range(3))
    counts = np.arange(width)
    for r, texts in enumerate(rows):
        start = 0
        for number, tokens in enumerate(texts, 1):
            end = start + len(tokens)
            ids[r, start:end] = tokens
            if eos is not None:
                ids[r, end] = eos
                end += 1
            text[r, start:end] = number
            place[r, start:end] = counts[: end - start]
            start = end
    return Rows(*(torch.from_numpy(a) for a in (ids, text, place))), int((text > 0).sum())


def in_order(pairs: Pairs, *, tokens: int, widths: tuple[int, int], eos: int) -> Iterator[Batch]:
    """Every pair once, packed, for validation."""
    index = np.arange(len(pairs))
    rows = pack(pairs.source.lengths(index), pairs.target.lengths(index) + 1, widths)
    step = max(1, tokens // widths[1])
    for start in range(0, len(rows), step):
        chosen = rows[start : start + step]
        source = [[pairs.source[i] for i in row] for row in chosen]
        target = [[pairs.target[i] for i in row] for row in chosen]
        yield make_batch(source, target, widths, eos)


def ahead(batches: Iterator[Batch], prepare: Callable[[Batch], Batch], depth: int = 4) -> Iterator[Batch]:
    """The same batches, made ready on another thread while the device is busy."""
    ready: queue.Queue[Batch | BaseException | None] = queue.Queue(depth)
    stop = threading.Event()

    def hand_over(item: Batch | BaseException | None) -> None:
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


def longest(texts: Texts) -> int:
    """Tokens in the longest text."""
    return int(np.diff(texts.ends, prepend=0).max(initial=0))
