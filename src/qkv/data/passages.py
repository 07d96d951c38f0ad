"""Batches of passages for pretraining, in an order that resumes anywhere at the cost of one pool.

An epoch is a permutation of the documents (for long ones, of their parts), cut into pools. The documents of a pool are cut into
texts, which are shaped for their tasks (sentence_tasks.py) and packed into rows; the rows are shuffled and dealt into batches,
all of one shape. Where a task starts in the middle of a pool, the pool is packed in two stages, before and after.
"""

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import IGNORE_INDEX
from qkv.base.seeds import rng_at
from qkv.data.batches import START, Batch, Position
from qkv.data.documents import Documents
from qkv.data.inputs import BEGINS_UNIT, BEGINS_WORD, OCCURS_ELSEWHERE, PASSAGE_TASKS, Passages
from qkv.data.order import Order
from qkv.data.packing import pack_texts
from qkv.data.pools import DOCUMENT, PackedTexts, Pool, Stream, concatenate, deal_batches, occur_elsewhere, read_stream
from qkv.data.sentence_tasks import DISTANCE, MASKING, NEXT, PAIR_TASKS, TaskShaper, TaskTexts, continuous_texts, cut_texts

POOL = 1 << 22  # tokens, at least, of the documents in a pool
BATCHES = 32  # of a pool, at least, since some rows of its last batch stay empty
BEGINS = BEGINS_WORD | BEGINS_UNIT
MIN_WIDTH = 8  # tokens that a row must hold
TOKENS_PER_TEXT = 16  # a row may hold one text for each 16 of its positions

ALL_BEGUN = sys.maxsize  # batches, after which every task has started
PADDING = -1  # in place of the number of a text
BEFORE = np.array([1, 0, 0])  # special tokens in front of each piece
SEGMENTS = np.array([0, 1, 0])  # of each piece

Tasks = Mapping[str, tuple[float, int]]  # name in PASSAGE_TASKS -> weight, and the first batch that uses it


class TextBatchSettings(NamedTuple):
    """The settings that batches of raw text depend on, beside the text itself."""

    seed: int
    tokens: int  # of a batch
    length: int  # of a row
    bos: int
    eos: int
    pad: int
    one_text_per_row: bool = False
    window: int | None = None  # documents, or parts of them, shuffled at once, see data/order.py
    fixed_shape: bool = False  # all batches have one shape, as a recorded update (a CUDA graph) needs


class PassageBatches:
    """Endless batches of passages of some documents; each text serves one of the tasks, drawn by weight."""

    def __init__(
        self,
        *,
        documents: Documents,
        chosen: np.ndarray,
        seed: int,
        rows: int,
        length: int,
        bos: int,
        eos: int,
        pad: int,
        tasks: Tasks,
        one_text_per_row: bool = False,
        continuous: bool = False,
        window: int | None = None,
    ):
        """With `continuous`, texts are consecutive segments: only a document's first one has a bos, and its last an eos."""
        self.documents, self.chosen = documents, np.asarray(chosen, dtype=np.int64)
        self.seed, self.tasks, self.continuous = seed, tasks, continuous
        self.order = Order([len(self.chosen)], [1.0], seed, window, [documents.count_in_shards(self.chosen)])
        most = 1 if one_text_per_row else max(1, length // TOKENS_PER_TEXT)
        self.layout = _Layout(rows, length, most, bos, eos, pad)
        self._check()
        tokens = int(documents.tokens.lengths(self.chosen).sum())
        self.pools = max(1, min(len(self.chosen), round(tokens / max(POOL, BATCHES * rows * length))))

    def _check(self) -> None:
        if self.layout.width < MIN_WIDTH:
            raise ConfigError(f"length {self.layout.width} holds no text; choose {MIN_WIDTH} or more")
        if not len(self.chosen):
            raise DataError("there is no document to make passages from; give more text")
        used = {PASSAGE_TASKS.index(name) for name, (weight, _) in self.tasks.items() if weight > 0}
        for task in sorted(used & {NEXT, DISTANCE}):
            if self.documents.count(self.chosen) < 2:
                raise DataError(
                    f"the task {PASSAGE_TASKS[task]} needs two documents or more, got 1; put blank lines between documents"
                )
        sentences = self.documents.sentences.lengths(self.chosen).max()
        for task in sorted(used & set(PAIR_TASKS)):
            if sentences < 2:
                raise DataError(
                    f"the text is shorter than a pair: no document has two sentences, which the task {PASSAGE_TASKS[task]} needs"
                )
        width = self.layout.width
        if DISTANCE in used and self.documents.tokens.lengths(self.chosen).max() < width:
            raise DataError(
                f"no document is longer than a text of {width} tokens, as the task distance needs; choose a smaller data.length"
            )

    @property
    def tokens_per_batch(self) -> str:
        """Describe the size of a batch."""
        return f"{self.layout.rows * self.layout.width:,} tokens a step, in rows of {self.layout.width}"

    def starting(self, at: Position) -> Iterator[Batch]:
        """Yield batches from a position on, without end; the next pool is made while one is dealt."""
        with ThreadPoolExecutor(1) as worker:
            pool = self._pool(at.epoch, at.pool, at.begun)
            while True:
                epoch, number = (at.epoch, at.pool + 1) if at.pool + 1 < self.pools else (at.epoch + 1, 0)
                then = Position(epoch, number, 0, at.begun + pool.batches)
                coming = worker.submit(self._pool, then.epoch, then.pool, then.begun)
                for batch in range(at.batch, pool.batches):
                    yield self._batch(pool, batch, at._replace(batch=batch + 1))
                at, pool = then, coming.result()

    def in_order(self) -> Iterator[Batch]:
        """Yield every document once, for validation: the same passages at each call, with all tasks, whenever they start."""
        for number in range(self.pools):
            pool = self._pool(0, number, ALL_BEGUN)
            for batch in range(pool.batches):
                yield self._batch(pool, batch, START)

    def _weights(self, begun: int) -> np.ndarray:
        """Return the share of texts for each task after a number of batches; all are plain where no task has started."""
        weights = np.zeros(len(PASSAGE_TASKS))
        for name, (weight, begins) in self.tasks.items():
            weights[PASSAGE_TASKS.index(name)] = weight if begins <= begun else 0.0
        weights[MASKING] += not weights.any()
        return weights / weights.sum()

    def _pool(self, epoch: int, number: int, begun: int) -> Pool:
        """Make a pool of an epoch that comes after `begun` batches; its rows are divided evenly among batches."""
        many = len(self.chosen)
        positions = np.arange(number * many // self.pools, (number + 1) * many // self.pools)
        stream = read_stream(self.documents, self.chosen[self.order.at(epoch, positions)[1]])
        starts = sorted({begins for weight, begins in self.tasks.values() if weight > 0 and begins > begun})
        rng = rng_at(self.seed, "passages", epoch, number)
        return deal_batches(self._stages([], stream, begun, starts, rng), self.layout.rows)

    def _stages(
        self, over: list[PackedTexts], stream: Stream, begun: int, starts: list[int], rng: np.random.Generator
    ) -> list[PackedTexts]:
        """Pack a stream, with the rows left over; where a task starts within it, first the rows of the batches before that.

        These are packed by themselves, from as much of the stream as fills those batches. Rows beyond that are left over for the
        rest of the stream, which is packed with the new task.
        """
        rows = self._packed(over, stream, begun, rng)
        wanted = (starts[0] - begun) * self.layout.rows if starts else len(rows.counts)
        if wanted >= len(rows.counts):
            return [rows]
        rest, offset = stream, len(stream.ids) * wanted // len(rows.counts)
        while len(stream.ids):
            first, rest = stream.split_near(offset)
            rows = self._packed(over, first, begun, rng)
            if len(rows.counts) >= wanted or not len(rest.ids):
                break
            offset = len(first.ids) + (wanted - len(rows.counts)) * self.layout.width
        until, left = (rows.rows(numbers) for numbers in np.split(np.arange(len(rows.counts)), [wanted]))
        return [until, *self._stages([left], rest, starts[0], starts[1:], rng)]

    def _packed(self, over: list[PackedTexts], stream: Stream, begun: int, rng: np.random.Generator) -> PackedTexts:
        """Pack a stream with the tasks that have started after `begun` batches, add the rows left over, and shuffle all."""
        if not len(stream.ids):
            return concatenate(over)
        weights, width = self._weights(begun), self.layout.width
        texts = cut_texts(stream.ends, stream.borders, width, weights, rng)
        if self.continuous:
            texts, has_bos, has_eos = continuous_texts(texts, stream.borders, stream.first, stream.last)
        shaped = TaskShaper(texts, stream.ends, stream.document, width, rng).shaped()
        if self.continuous:
            shaped = shaped._replace(has_bos=has_bos, has_eos=has_eos)
        flags = stream.flags
        if weights[DOCUMENT]:
            flags = flags | OCCURS_ELSEWHERE * occur_elsewhere(stream.ids, texts, shaped).astype(flags.dtype)
        rows = concatenate([*over, PackedTexts(stream.ids, flags, shaped, *self.layout.packed(shaped))])
        return rows.rows(rng.permutation(len(rows.counts)))

    def _batch(self, pool: Pool, number: int, after: Position) -> Batch:
        """Make one of the batches of a pool; empty rows fill it up."""
        packed, (start, end) = pool.packed, pool.borders[number : number + 2]
        counts = np.zeros(self.layout.rows, dtype=np.int64)
        counts[: end - start] = packed.counts[start:end]
        before = int(packed.counts[:start].sum())
        passages, filled = self.layout.laid_out(packed, packed.members[before : before + int(counts.sum())], counts)
        # Continuous text is predicted from left to right: each text has no label for its first token.
        labels = filled - int(counts.sum()) if self.continuous else filled
        return Batch((passages,), labels, filled, passages.ids.numel(), filled, after)


class _Layout(NamedTuple):
    """The shape of a batch and its special tokens."""

    rows: int
    width: int
    most: int  # texts in a row
    bos: int
    eos: int
    pad: int

    def packed(self, texts: TaskTexts) -> tuple[np.ndarray, np.ndarray]:
        """Pack texts into rows. -> the numbers of the texts, row after row, and how many are in each row."""
        rows = pack_texts(_with_special(texts.length, texts.has_eos).sum(1), self.most, self.width)
        counts = np.array([len(row) for row in rows])
        return np.fromiter(chain.from_iterable(rows), np.int64, counts.sum()), counts

    def laid_out(self, packed: PackedTexts, members: np.ndarray, counts: np.ndarray) -> tuple[Passages, int]:
        """Lay texts out in rows, `counts` in each. -> the passages, and how many positions they fill.

        Padding counts as a text, the last of each row, with one piece, so that every row consists of pieces, and each value of
        a piece is repeated for its tokens. N texts, paddings included.
        """
        texts = np.insert(members, np.cumsum(counts), PADDING)
        row = np.repeat(np.arange(self.rows), counts + 1)
        real = texts != PADDING
        number = np.where(real, np.arange(len(row)) - np.searchsorted(row, row) + 1, 0)  # of a text in its row, from 1
        size = self._sizes(_with_special(packed.texts.length[texts], packed.texts.has_eos[texts]), row, real)  # (N, 3)
        begin = np.cumsum(size).reshape(size.shape) - size
        positions = np.arange(self.rows * self.width)

        def spread(values: np.ndarray) -> np.ndarray:
            return np.repeat(np.broadcast_to(values, size.shape).ravel(), size.ravel())

        laid = np.empty((6, len(positions)), dtype=np.int64)
        ids, text, position, segment, flags, task = laid
        text[:] = spread(number[:, None])
        position[:] = (positions - spread(begin[:, :1])) * (text > 0)
        segment[:] = spread(SEGMENTS)
        task[:] = spread(np.where(real, packed.texts.task[texts], 0)[:, None])
        source = positions + spread(packed.texts.start[texts] - begin - BEFORE)
        ids[:] = packed.ids.take(source, mode="clip")  # only special tokens and padding are clipped
        flags[:] = packed.flags.take(source, mode="clip")
        self._put_special(ids, flags, begin[real], size[real], packed.texts.has_bos[members], packed.texts.has_eos[members])
        ids[text == 0], flags[text == 0] = self.pad, BEGINS
        first, labels = np.zeros((self.rows, self.most), dtype=np.int64), np.full((self.rows, self.most), IGNORE_INDEX)
        first[row[real], number[real] - 1] = begin[real, 0] - row[real] * self.width
        labels[row[real], number[real] - 1] = packed.texts.labels[members]
        wide = laid.reshape(6, self.rows, self.width)
        return Passages(*map(torch.from_numpy, (*wide, first, labels))), int(size[real].sum())

    def _sizes(self, size: np.ndarray, row: np.ndarray, real: np.ndarray) -> np.ndarray:
        """Return the positions of each piece (N, 3); padding takes the rest of its row."""
        size = np.where(real[:, None], size, 0)
        filled = np.bincount(row, size.sum(1), self.rows).astype(np.int64)
        size[~real, 0] = self.width - filled
        return size

    def _put_special(
        self, ids: np.ndarray, flags: np.ndarray, begin: np.ndarray, size: np.ndarray, has_bos: np.ndarray, has_eos: np.ndarray
    ) -> None:
        """Put bos before each text and eos after each piece; the first token of a piece begins a word, wherever it was cut."""
        last = (begin + size - 1)[has_eos[:, None] & (size > 0)]
        ids[begin[has_bos, 0]], ids[last] = self.bos, self.eos
        flags[begin[:, 0]] = flags[last] = BEGINS
        flags[(begin + BEFORE)[size > 0]] |= BEGINS


def _with_special(length: np.ndarray, has_eos: np.ndarray) -> np.ndarray:
    """Add to the lengths of pieces (P, 3) a position for the bos before the first, and for an eos after each if there is one."""
    return length + (has_eos[:, None] & (length > 0)) + BEFORE


def passage_batches(objective: Any, documents: Documents, chosen: np.ndarray, settings: TextBatchSettings) -> PassageBatches:
    """Return endless batches of passages for a pretraining objective: its method `batches`, unless it has one of its own."""
    return PassageBatches(
        documents=documents,
        chosen=chosen,
        seed=settings.seed,
        rows=max(1, settings.tokens // settings.length),
        length=settings.length,
        bos=settings.bos,
        eos=settings.eos,
        pad=settings.pad,
        tasks=objective.config.passage_tasks(),
        one_text_per_row=settings.one_text_per_row,
        continuous=objective.config.whole_documents,
        window=settings.window,
    )
