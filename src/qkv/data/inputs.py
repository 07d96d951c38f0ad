"""What objectives read: passages of raw text and labelled texts, in rows."""

from typing import NamedTuple

from torch import Tensor

from qkv.base.rows import Rows

# What a passage is made for, by number: plain masking, the tasks on sentences and documents of BERT, ALBERT and ERNIE 2.0, and
# UniLM's ways to read it beside the bidirectional one.
PASSAGE_TASKS = (
    "masking", "next", "order", "reorder", "distance", "capital", "document",
    "left_to_right", "right_to_left", "sequence_to_sequence",
)  # fmt: skip
BEGINS_WORD, BEGINS_UNIT, CAPITAL, ELSEWHERE = 1, 2, 4, 8  # bits of a token's marks


class Passages(NamedTuple):
    """Texts to be pretrained on, in R rows of width W with room for M texts each."""

    ids: Tensor  # (R, W), as in Rows
    text: Tensor
    position: Tensor
    segment: Tensor  # (R, W) 0, or 1 in the second part of a pair
    marks: Tensor  # (R, W) bits of what is known of each token: see BEGINS_WORD and its neighbours
    task: Tensor  # (R, W) the number in PASSAGE_TASKS of what the text is read for
    first: Tensor  # (R, M) where in the row each text begins; 0 where there are fewer
    answer: Tensor  # (R, M) what is to be said of each text; SKIP where nothing is, or where there is none

    @property
    def rows(self) -> Rows:
        return Rows(self.ids, self.text, self.position)


class Labelled(NamedTuple):
    """Texts with what is to be said of them, in R rows of width W with room for M texts each."""

    ids: Tensor  # (R, W), as in Rows
    text: Tensor
    position: Tensor
    segment: Tensor  # (R, W) 0, or 1 in the second part of a pair
    first: Tensor  # (R, M) where in the row each text begins; 0 where there are fewer
    # A class (R, M); a number (R, M), NaN where there is no text; a tag (R, W); an answer's first and last place in the row
    # (R, M, 2). SKIP where nothing is to be said.
    answer: Tensor
    head: Tensor | None = None  # (R, W), as in Rows

    @property
    def rows(self) -> Rows:
        return Rows(self.ids, self.text, self.position, self.head)
