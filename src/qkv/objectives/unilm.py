"""Masked words, read in four ways: UniLM (Dong et al. 2019, sections 2.2 and 2.3).

A text is read in both directions, from left to right, from right to left or as a source and its target (`parts/modes.py`), as
the data says; its segments tell the model which. In each way some tokens are masked, and what they were is told from what the
way lets them see. Texts read in both directions are pairs, of which it is asked, as in BERT, whether the second part follows
the first. Where we depart from the paper: it is a text that is read in one way, not a whole batch, so that one batch has all
four in their shares; a text of one sentence, of which no pair can be made, is read in both directions and nothing is asked of
it; the authors begin with BERT's weights, which `start` does not take, as a BERT has fewer segments.

Its fine-tuning for sequence to sequence is in masked_translation.py.
R rows, W width, D width of the model.
"""

from typing import ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor

from qkv.data.inputs import PASSAGE_TASKS, Passages
from qkv.objectives.masked import Masked, MaskedConfig
from qkv.objectives.masking import Hidden, Units
from qkv.objectives.objective import ObjectiveConfig
from qkv.parts.heads import ModelWithHeads
from qkv.parts.modes import LEFT, RIGHT, SOURCE

SEGMENT_OF = {
    "left_to_right": LEFT,
    "right_to_left": RIGHT,
    "sequence_to_sequence": SOURCE,
}  # of a text's first part, by what it is read for


class FourWaysConfig(MaskedConfig):
    kind: Literal["unilm"] = "unilm"  # type: ignore[assignment]
    units: Units = "short-span"  # what is chosen as a whole
    sentence_task: Literal["next"] = "next"  # what is asked of pairs that are read in both directions
    # How many of the texts are read in each way, in proportion.
    bidirectional: float = Field(default=2.0, ge=0)
    left_to_right: float = Field(default=1.0, ge=0)
    right_to_left: float = Field(default=1.0, ge=0)
    sequence_to_sequence: float = Field(default=2.0, ge=0)

    @model_validator(mode="after")
    def _some_way(self) -> "FourWaysConfig":
        if not any(self.modes.values()):
            raise ValueError(
                "bidirectional, left_to_right, right_to_left and sequence_to_sequence are all 0, so that no text would be read; give one of them a share"
            )
        return self

    @property
    def modes(self) -> dict[str, float]:
        """Tasks of passages, and the share of each."""
        return {
            "next": self.bidirectional,
            "left_to_right": self.left_to_right,
            "right_to_left": self.right_to_left,
            "sequence_to_sequence": self.sequence_to_sequence,
        }

    def passage_tasks(self) -> dict[str, tuple[float, int]]:
        return {name: (weight, 0) for name, weight in self.modes.items()}

    def left_to_right_passages(self) -> "FourWaysConfig":
        only = {"bidirectional": 0.0, "left_to_right": 1.0, "right_to_left": 0.0, "sequence_to_sequence": 0.0}
        return self.model_copy(update=only)


class FourWays(Masked):
    """The loss of masked tokens and of next-sentence prediction, under the attention masks of the four ways."""

    config_class: ClassVar[type[ObjectiveConfig]] = FourWaysConfig

    def loss_of(self, model: ModelWithHeads, passages: Passages, hidden: Hidden) -> Tensor:
        return super().loss_of(model, passages._replace(segment=segments(passages)), hidden)


def segments(passages: Passages) -> Tensor:
    """The segment of each token as UniLM is told it: the part of its text and the way it is read. -> (R, W)."""
    segment = passages.segment
    for name, first in SEGMENT_OF.items():
        segment = segment + first * (passages.task == PASSAGE_TASKS.index(name))
    return segment
