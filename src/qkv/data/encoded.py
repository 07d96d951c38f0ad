"""Encoded examples, and the positions of their texts in the rows of a batch.

All texts are concatenated in flat arrays. N texts, T tokens of all of them; R rows of width W with room for M texts each.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX


@dataclass(frozen=True)
class EncodedExamples(ABC):
    """Token ids of examples; an example that is too long may be cut into several consecutive texts.

    A subclass says what the labels belong to.
    """

    ids: np.ndarray  # (T,)
    segment: np.ndarray  # (T,) 0, or 1 in the second part of a pair
    ends: np.ndarray  # (N,) where each text ends
    example: np.ndarray  # (N,) the number of each text's example
    labels: np.ndarray
    head: np.ndarray | None = None  # (T,) as in base.rows.Rows, where examples have trees

    def __len__(self) -> int:
        return len(self.ends)

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each text begins, (N,)."""
        return self.ends - self.lengths

    @cached_property
    def lengths(self) -> np.ndarray:
        """Lengths in tokens, (N,)."""
        return np.diff(self.ends, prepend=0)

    @property
    @abstractmethod
    def label_counts(self) -> np.ndarray:
        """How many labels each text has, (N,)."""

    @abstractmethod
    def labels_in_rows(self, layout: "RowLayout") -> Tensor:
        """Return the labels of the texts that are in the rows of a batch, IGNORE_INDEX or NaN where there is none."""


@dataclass(frozen=True)
class EncodedLabelledTexts(EncodedExamples):
    """Texts or pairs with one label each: a class (int64) or a number (float32). labels (N,)."""

    @cached_property
    def label_counts(self) -> np.ndarray:
        return np.where(np.isnan(self.labels) | (self.labels == IGNORE_INDEX), 0, 1)

    def labels_in_rows(self, layout: "RowLayout") -> Tensor:
        """Return the label of each text. -> (R, M)."""
        none = math.nan if self.labels.dtype.kind == "f" else IGNORE_INDEX
        return layout.on_texts(self.labels[layout.number], none)


@dataclass(frozen=True)
class EncodedTaggedTexts(EncodedExamples):
    """Sentences with a label at the first piece of each word. labels (T,)."""

    _: KW_ONLY
    words: np.ndarray  # where each word begins in ids, in order

    @cached_property
    def label_counts(self) -> np.ndarray:
        before = np.concatenate([[0], np.cumsum(self.labels != IGNORE_INDEX)])
        return before[self.ends] - before[self.starts]

    def labels_in_rows(self, layout: "RowLayout") -> Tensor:
        """Return the label of each word at its first piece. -> (R, W)."""
        return layout.on_tokens(self.labels[layout.token], IGNORE_INDEX)


@dataclass(frozen=True)
class EncodedQuestions(EncodedExamples):
    """Questions, each with a window of its context.

    labels (N, 2): the first and last token of the answer within its text, both 0 where it is not in this text.
    """

    _: KW_ONLY
    spans: np.ndarray  # (T, 2) of each token: its first character in the context, and the one after its last

    @cached_property
    def label_counts(self) -> np.ndarray:
        return np.ones(len(self), dtype=np.int64)

    def labels_in_rows(self, layout: "RowLayout") -> Tensor:
        """Return the first and last column of each answer. -> (R, M, 2)."""
        return layout.on_texts(self.labels[layout.number] + layout.first[:, None], IGNORE_INDEX)


class RowLayout(NamedTuple):
    """The positions of n texts and their t tokens in the rows of a batch."""

    shape: tuple[int, int, int]  # R, W, M
    number: np.ndarray  # (n,) of each text among the examples
    row: np.ndarray  # (n,)
    slot: np.ndarray  # (n,) texts before it in its row
    first: np.ndarray  # (n,) tokens before it in its row
    text: np.ndarray  # (t,) the text of each token, among the n
    token: np.ndarray  # (t,) index in the examples' arrays
    at: np.ndarray  # (t,) index in the concatenated rows

    @classmethod
    def of(cls, examples: EncodedExamples, rows: list[np.ndarray], shape: tuple[int, int, int]) -> "RowLayout":
        """Lay whole texts out, one after the other; `rows` holds the numbers of the texts in each row."""
        number = np.concatenate(rows)
        row = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        beginning = np.searchsorted(row, row)  # the first text of the same row
        lengths = examples.lengths[number]
        before = np.cumsum(lengths) - lengths  # tokens of all texts before this one
        first = before - before[beginning]
        text = np.repeat(np.arange(len(number)), lengths)
        position = np.arange(len(text)) - before[text]
        token, at = examples.starts[number][text] + position, (row * shape[1] + first)[text] + position
        return cls(shape, number, row, np.arange(len(number)) - beginning, first, text, token, at)

    def on_tokens(self, values: np.ndarray, empty: int) -> Tensor:
        """Put a value at each token, and `empty` elsewhere. (t,) -> (R, W)."""
        rows, width, _ = self.shape
        laid = np.full(rows * width, empty, dtype=np.int64)
        laid[self.at] = values
        return torch.from_numpy(laid).view(rows, width)

    def on_texts(self, values: np.ndarray, empty: float) -> Tensor:
        """Put a value into the slot of each text, and `empty` into slots without a text. (n, ...) -> (R, M, ...)."""
        rows, _, texts = self.shape
        laid = np.full((rows, texts, *values.shape[1:]), empty, dtype=values.dtype)
        laid[self.row, self.slot] = values
        return torch.from_numpy(laid)
