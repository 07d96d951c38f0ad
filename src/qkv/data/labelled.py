"""Batches of labelled texts: packed rows of fixed shape, and the way back from a model's outputs to the examples.

Texts in random order each go into the row that they fill best. An epoch is one pool: all epochs have rows with texts of the
same lengths, and so the same number of batches, but texts of equal length are permuted, and so are the rows of batches. Where a
row holds one text only, for models that mix all of a row, texts of similar length make a batch, with rows as wide as they need.
R rows of width W with room for M texts each, N texts, T tokens of all of them.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from qkv.base.errors import ConfigError
from qkv.base.seeds import rng_at
from qkv.data.batches import START, Batch, Position
from qkv.data.encoded import EncodedExamples, RowLayout
from qkv.data.inputs import LabelledTexts
from qkv.data.packing import pack_texts

ROW_STEP = 64  # widths of rows that hold several texts are multiples of this
TOKENS_PER_TEXT = 8  # such a row has room for one text per this many tokens
STEP = 8  # at least, between the widths of rows with one text each; wide ones are up to a quarter wider than the next narrower


class LabelledBatches:
    """Endless batches of one shape (a few shapes with one text a row); every epoch has as many, and each text once."""

    def __init__(self, examples: EncodedExamples, seed: int, shape: "BatchShape"):
        self.examples = examples
        self.seed = seed
        self.lengths = _fitting(examples, shape.width)
        order = rng_at(seed, "packing").permutation(len(examples))
        packed = pack_texts(self.lengths, shape.texts, shape.width, order)
        self.first = np.concatenate(packed)  # texts in order of rows
        self.cuts = np.cumsum([len(row) for row in packed])[:-1]  # the first text of each row but the first
        self.shapes = _shapes(shape, packed, self.lengths)
        self.batches_in_epoch = sum(shape.batches(len(numbers)) for shape, numbers in self.shapes)

    def starting(self, at: Position) -> Iterator[Batch]:
        """Yield batches from a position on, without end."""
        epoch, _, batch, _ = at
        while True:
            dealt = self._deal(epoch)
            while batch < len(dealt):
                shape, rows = dealt[batch]
                yield shape.lay_out(self.examples, rows, Position(epoch, 0, batch + 1))
                batch += 1
            epoch, batch = epoch + 1, 0

    def _deal(self, epoch: int) -> list[tuple["BatchShape", list[np.ndarray]]]:
        """Return the shape of each batch of an epoch, and the texts of each of its rows.

        Batches of one shape have the same number of rows, give or take one.
        """
        rng = rng_at(self.seed, "examples", epoch)
        order = rng.permutation(len(self.examples))
        members = np.empty_like(order)
        members[self._by_length(self.first)] = order[self._by_length(order)]
        rows = np.split(members, self.cuts)
        dealt = [
            (shape, [rows[number] for number in share])
            for shape, numbers in self.shapes
            for share in np.array_split(rng.permutation(numbers), shape.batches(len(numbers)))
        ]
        return dealt if len(self.shapes) == 1 else [dealt[number] for number in rng.permutation(len(dealt))]

    def _by_length(self, texts: np.ndarray) -> np.ndarray:
        return np.argsort(self.lengths[texts], kind="stable")


def in_order(examples: EncodedExamples, widest: "BatchShape") -> Iterator[tuple[Batch, np.ndarray]]:
    """Yield every text once, with the numbers of the texts in each row, (R, M), -1 where there are fewer."""
    lengths = _fitting(examples, widest.width)
    packed = pack_texts(lengths, widest.texts, widest.width, np.arange(len(lengths)))
    for shape, of_shape in _shapes(widest, packed, lengths):
        for start in range(0, len(of_shape), shape.rows):
            chosen = [np.array(packed[number]) for number in of_shape[start : start + shape.rows]]
            numbers = np.full((shape.rows, shape.texts), -1)
            for row, members in enumerate(chosen):
                numbers[row, : len(members)] = members
            yield shape.lay_out(examples, chosen, START), numbers


def _fitting(examples: EncodedExamples, width: int) -> np.ndarray:
    """Return the lengths of texts; refuse one that is longer than a row."""
    if examples.lengths.max(initial=0) > width:
        raise ConfigError(f"a text of {examples.lengths.max()} tokens does not fit into rows of {width}; make them wider")
    return examples.lengths


class BatchShape(NamedTuple):
    """The shape of batches of labelled texts."""

    rows: int
    width: int  # of a row, in tokens
    texts: int  # most texts in a row
    pad: int  # the token that fills rows up

    @classmethod
    def holding(cls, longest: int, tokens: int, one_text_per_row: bool, pad: int) -> "BatchShape":
        """Return rows wide enough for the longest text (and for several short ones, if texts share rows), of `tokens` in all."""
        width = max(-(-longest // ROW_STEP), 2) * ROW_STEP
        return cls(max(1, tokens // width), width, 1 if one_text_per_row else width // TOKENS_PER_TEXT, pad)

    def batches(self, rows: int) -> int:
        """Return the number of batches for a number of rows."""
        return -(-rows // self.rows)

    def narrowed(self, width: int) -> "BatchShape":
        """Return a shape of another width with about the same number of positions."""
        return self._replace(rows=max(1, self.rows * self.width // width), width=width)

    def lay_out(self, examples: EncodedExamples, rows: list[np.ndarray], after: Position) -> Batch:
        """Lay whole texts out in rows; missing rows stay empty."""
        layout = RowLayout.of(examples, rows, (self.rows, self.width, self.texts))
        labelled = LabelledTexts(
            ids=layout.on_tokens(examples.ids[layout.token], self.pad),
            text=layout.on_tokens(layout.slot[layout.text] + 1, 0),
            position=layout.on_tokens(layout.token - examples.starts[layout.number][layout.text], 0),
            segment=layout.on_tokens(examples.segment[layout.token], 0),
            first=layout.on_texts(layout.first, 0),
            labels=examples.labels_in_rows(layout),
            head=None if examples.head is None else layout.on_tokens(examples.head[layout.token], 0),
        )
        labels, filled = int(examples.label_counts[layout.number].sum()), len(layout.token)
        return Batch((labelled,), labels, filled, self.rows * self.width, filled, after)


def _shapes(widest: BatchShape, packed: list[list[int]], lengths: np.ndarray) -> list[tuple[BatchShape, np.ndarray]]:
    """Return the shapes of batches, and the numbers of the rows that have each shape."""
    if widest.texts > 1:
        return [(widest, np.arange(len(packed)))]
    lengths = lengths[np.concatenate(packed)]
    step = np.maximum(STEP, 2 ** np.floor(np.log2(lengths)).astype(np.int64) // 4)
    widths = np.minimum(-(-lengths // step) * step, widest.width)
    return [(widest.narrowed(int(width)), np.flatnonzero(widths == width)) for width in np.unique(widths)]


def by_text(examples: EncodedExamples, outputs_of_batches: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Sort outputs by text, from (numbers, outputs) of all batches of `in_order`. (R, M), (R, M, ...) -> (N, ...)."""
    found: np.ndarray | None = None
    for numbers, outputs in outputs_of_batches:
        found = np.zeros((len(examples), *outputs.shape[2:]), dtype=outputs.dtype) if found is None else found
        found[numbers[numbers >= 0]] = outputs[numbers >= 0]
    assert found is not None
    return found
