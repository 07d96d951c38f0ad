"""Inputs of objectives: passages of raw text and labelled texts, in rows."""

from typing import NamedTuple

from torch import Tensor

from qkv.base.rows import Rows

# Tasks that a passage is made for, by number: plain masking, the tasks on sentences and documents of BERT, ALBERT and
# ERNIE 2.0, and UniLM's language models beside the bidirectional one.
PASSAGE_TASKS = (
    "masking", "next", "order", "reorder", "distance", "capital", "document",
    "left_to_right", "right_to_left", "sequence_to_sequence",
)  # fmt: skip
BEGINS_WORD, BEGINS_UNIT, CAPITAL, OCCURS_ELSEWHERE = 1, 2, 4, 8  # bits of a token's flags


class Passages(NamedTuple):
    """Texts for pretraining, in R rows of width W with room for M texts each."""

    ids: Tensor  # (R, W), as in Rows
    text: Tensor
    position: Tensor
    segment: Tensor  # (R, W) 0, or 1 in the second part of a pair
    flags: Tensor  # (R, W) bits that describe each token: BEGINS_WORD, BEGINS_UNIT, CAPITAL, OCCURS_ELSEWHERE
    task: Tensor  # (R, W) the task of the token's text: its index in PASSAGE_TASKS
    first: Tensor  # (R, M) the column in which each text begins; 0 where there are fewer texts
    labels: Tensor  # (R, M) the label of each text; IGNORE_INDEX where its task has none, or there is no text

    @property
    def rows(self) -> Rows:
        return Rows(self.ids, self.text, self.position)


class LabelledTexts(NamedTuple):
    """Texts with labels, in R rows of width W with room for M texts each."""

    ids: Tensor  # (R, W), as in Rows
    text: Tensor
    position: Tensor
    segment: Tensor  # (R, W) 0, or 1 in the second part of a pair
    first: Tensor  # (R, M) the column in which each text begins; 0 where there are fewer texts
    # Classification: (R, M). Regression: (R, M), NaN where there is no text. Tagging: (R, W). Question answering: the first and
    # last column of the answer, (R, M, 2). IGNORE_INDEX where there is no label.
    labels: Tensor
    head: Tensor | None = None  # (R, W), as in Rows

    @property
    def rows(self) -> Rows:
        return Rows(self.ids, self.text, self.position, self.head)
