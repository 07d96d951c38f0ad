"""Batches of labelled texts: packed rows of fixed shape, and the way back from what a model says to the examples.

Texts in random order each go into the row that they fill best. An epoch is one pool: it has rows of the same lengths as every
other, so that all have as many batches, but texts of equal length change places, and rows go into batches in another order.
Where a row has room for one text alone, as models want it that mix all of a row, texts of like length make a batch, with rows as
wide as these need.
R rows of width W with room for M texts each, N texts, T tokens of all of them.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.rows import IGNORE_INDEX
from qkv.base.seeds import rng_at
from qkv.data.batches import START, Batch, Position
from qkv.data.encoding import EncodedExamples
from qkv.data.inputs import LabelledTexts
from qkv.data.packing import pack_texts
from qkv.text.examples import Question
from qkv.text.word_boundaries import extend_to_words

STEP = 8  # at least, between the widths of rows with one text each; wider ones are up to a quarter wider than the one before


class LabelledBatches:
    """Endless batches of the same shape, with one text a row of a few; as many in every epoch, and each text once in it."""

    def __init__(self, *, examples: EncodedExamples, seed: int, rows: int, length: int, texts: int, pad: int):
        self.examples = examples
        self.seed = seed
        self.lengths = _fitting(examples, length)
        order = rng_at(seed, "packing").permutation(len(examples))
        packed = pack_texts(self.lengths, texts, length, order)
        self.first = np.concatenate(packed)  # texts in order of rows
        self.cuts = np.cumsum([len(row) for row in packed])[:-1]  # between rows
        self.sheets = _sheets(BatchShape(rows, length, texts, pad), packed, self.lengths)
        self.batches_in_epoch = sum(sheet.batches(len(numbers)) for sheet, numbers in self.sheets)

    def starting(self, at: Position) -> Iterator[Batch]:
        """Batch after batch from a position on, without end."""
        epoch, _, batch, _ = at
        while True:
            dealt = self._deal(epoch)
            while batch < len(dealt):
                sheet, rows = dealt[batch]
                yield sheet.lay_out(self.examples, rows, Position(epoch, 0, batch + 1))
                batch += 1
            epoch, batch = epoch + 1, 0

    def _deal(self, epoch: int) -> list[tuple["BatchShape", list[np.ndarray]]]:
        """The shape and the rows of each batch of an epoch, and the texts of each row.

        Batches of one shape have as many rows, give or take one.
        """
        rng = rng_at(self.seed, "examples", epoch)
        order = rng.permutation(len(self.examples))
        members = np.empty_like(order)
        members[self._by_length(self.first)] = order[self._by_length(order)]
        rows = np.split(members, self.cuts)
        dealt = [
            (sheet, [rows[number] for number in share])
            for sheet, numbers in self.sheets
            for share in np.array_split(rng.permutation(numbers), sheet.batches(len(numbers)))
        ]
        return dealt if len(self.sheets) == 1 else [dealt[number] for number in rng.permutation(len(dealt))]

    def _by_length(self, texts: np.ndarray) -> np.ndarray:
        return np.argsort(self.lengths[texts], kind="stable")


def in_order(examples: EncodedExamples, *, rows: int, length: int, texts: int, pad: int) -> Iterator[tuple[Batch, np.ndarray]]:
    """Every text once, with the number of the text in each place for one, (R, M), -1 where there is none."""
    lengths = _fitting(examples, length)
    packed = pack_texts(lengths, texts, length, np.arange(len(lengths)))
    for sheet, of_sheet in _sheets(BatchShape(rows, length, texts, pad), packed, lengths):
        for start in range(0, len(of_sheet), sheet.rows):
            chosen = [np.array(packed[number]) for number in of_sheet[start : start + sheet.rows]]
            numbers = np.full((sheet.rows, texts), -1)
            for row, members in enumerate(chosen):
                numbers[row, : len(members)] = members
            yield sheet.lay_out(examples, chosen, START), numbers


def _fitting(examples: EncodedExamples, width: int) -> np.ndarray:
    """The texts' lengths, none beyond the width of a row."""
    if examples.lengths.max(initial=0) > width:
        raise ConfigError(f"a text of {examples.lengths.max()} tokens does not fit into rows of {width}; make them wider")
    return examples.lengths


class BatchShape(NamedTuple):
    """The shape of batches."""

    rows: int
    width: int
    texts: int
    pad: int

    def batches(self, rows: int) -> int:
        """How many are needed for so many rows."""
        return -(-rows // self.rows)

    def narrowed(self, width: int) -> "BatchShape":
        """About as many places in rows of another width."""
        return self._replace(rows=max(1, self.rows * self.width // width), width=width)

    def lay_out(self, examples: EncodedExamples, rows: list[np.ndarray], after: Position) -> Batch:
        """Whole texts side by side; rows that are wanting stay empty."""
        to = _places(examples, rows, self.width)
        labelled = LabelledTexts(
            ids=self._on_tokens(to, examples.ids[to.token], self.pad),
            text=self._on_tokens(to, to.slot[to.text] + 1, 0),
            position=self._on_tokens(to, to.token - examples.starts[to.number][to.text], 0),
            segment=self._on_tokens(to, examples.segment[to.token], 0),
            first=self._on_texts(to, to.first, 0),
            labels=self._labels(to, examples),
            head=None if examples.head is None else self._on_tokens(to, examples.head[to.token], 0),
        )
        labels, filled = int(examples.label_counts[to.number].sum()), len(to.token)
        return Batch((labelled,), labels, filled, self.rows * self.width, filled, after)

    def _labels(self, to: "_Places", examples: EncodedExamples) -> Tensor:
        if examples.kind == "tagging":
            return self._on_tokens(to, examples.labels[to.token], IGNORE_INDEX)
        if examples.kind == "answering":
            return self._on_texts(to, examples.labels[to.number] + to.first[:, None], IGNORE_INDEX)
        return self._on_texts(to, examples.labels[to.number], IGNORE_INDEX if examples.kind == "classification" else math.nan)

    def _on_tokens(self, to: "_Places", values: np.ndarray, empty: int) -> Tensor:
        laid = np.full(self.rows * self.width, empty, dtype=np.int64)
        laid[to.at] = values
        return torch.from_numpy(laid).view(self.rows, self.width)

    def _on_texts(self, to: "_Places", values: np.ndarray, empty: float) -> Tensor:
        laid = np.full((self.rows, self.texts, *values.shape[1:]), empty, dtype=values.dtype)
        laid[to.row, to.slot] = values
        return torch.from_numpy(laid)


def _sheets(widest: BatchShape, packed: list[list[int]], lengths: np.ndarray) -> list[tuple[BatchShape, np.ndarray]]:
    """The shapes of batches, and the numbers of the rows that are laid out in each."""
    if widest.texts > 1:
        return [(widest, np.arange(len(packed)))]
    lengths = lengths[np.concatenate(packed)]
    step = np.maximum(STEP, 2 ** np.floor(np.log2(lengths)).astype(np.int64) // 4)
    widths = np.minimum(-(-lengths // step) * step, widest.width)
    return [(widest.narrowed(int(width)), np.flatnonzero(widths == width)) for width in np.unique(widths)]


class _Places(NamedTuple):
    """Where in some rows n texts and their t tokens come to stand."""

    number: np.ndarray  # (n,) of the text, among the examples
    row: np.ndarray  # (n,)
    slot: np.ndarray  # (n,) how many texts are before it in its row
    first: np.ndarray  # (n,) how many tokens are
    text: np.ndarray  # (t,) which of the n
    token: np.ndarray  # (t,) where in the examples' arrays
    at: np.ndarray  # (t,) where in the rows, end to end


def _places(examples: EncodedExamples, rows: list[np.ndarray], width: int) -> _Places:
    number = np.concatenate(rows)
    row = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    beginning = np.searchsorted(row, row)  # the first text of the same row
    lengths = examples.lengths[number]
    before = np.cumsum(lengths) - lengths  # tokens of all texts before this one
    first = before - before[beginning]
    text = np.repeat(np.arange(len(number)), lengths)
    position = np.arange(len(text)) - before[text]
    token, at = examples.starts[number][text] + position, (row * width + first)[text] + position
    return _Places(number, row, np.arange(len(number)) - beginning, first, text, token, at)


def by_text(examples: EncodedExamples, said: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """What was said of each text, from (numbers, outputs) of all batches of `in_order`. (R, M), (R, M, ...) -> (N, ...)."""
    found: np.ndarray | None = None
    for numbers, outputs in said:
        found = np.zeros((len(examples), *outputs.shape[2:]), dtype=outputs.dtype) if found is None else found
        found[numbers[numbers >= 0]] = outputs[numbers >= 0]
    assert found is not None
    return found


def by_word(examples: EncodedExamples, said: Iterable[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """What was said of the words of each tagged example, at their first pieces. (R, M), (R, W, ...) each -> (words, ...) each."""
    found: np.ndarray | None = None
    for numbers, outputs in said:
        found = np.zeros((len(examples.ids), *outputs.shape[2:]), dtype=outputs.dtype) if found is None else found
        for row, members in enumerate(numbers):
            inside = members[members >= 0]
            token = np.concatenate([np.arange(examples.starts[n], examples.ends[n]) for n in inside]) if len(inside) else inside
            found[token] = outputs[row, : len(token)]
    assert found is not None
    example = examples.example[np.searchsorted(examples.ends, examples.words, side="right")]
    return np.split(found[examples.words], np.cumsum(np.bincount(example))[:-1])


class Answer(NamedTuple):
    """What was found in a context."""

    text: str
    score: float  # its odds against there being none, as a logarithm


def extract_answers(examples: EncodedExamples, questions: Sequence[Question], found: np.ndarray, always: bool) -> list[Answer]:
    """The best answer to each question over all of its windows; "" where none is likelier, unless there `always` is one.

    It is of whole words, also where the model points at a piece of one.
    found (N, 3): first and last place within the text, and the score, as `objectives.answering` puts them out.
    """
    order = np.lexsort((found[:, 2], examples.example))
    best = order[np.searchsorted(examples.example[order], np.arange(len(questions)), side="right") - 1]
    first, last = (examples.starts[best] + found[best, side].astype(np.int64) for side in (0, 1))
    starts, stops, scores = examples.spans[first, 0], examples.spans[last, 1], found[best, 2]
    spans = [extend_to_words(q.context, a, b) for q, a, b in zip(questions, starts.tolist(), stops.tolist(), strict=True)]
    texts = [question.context[a:b] for question, (a, b) in zip(questions, spans, strict=True)]
    return [Answer(text if always or s > 0 else "", s) for text, s in zip(texts, scores.tolist(), strict=True)]
