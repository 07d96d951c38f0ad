"""Unified language modelling: UniLM (Dong et al. 2019, sections 2.2 and 2.3).

Tokens are masked and predicted under one of four attention masks: bidirectional, left to right, right to left, or
sequence to sequence, where a text is a source and its target (`parts/modes.py`). The data assigns a mode to each text, and
segment embeddings tell the model which. Bidirectional texts are pairs and also train next-sentence prediction, as in BERT.

Where we depart from the paper: each text has its mode, not each batch, so that every batch mixes the four in their shares; a text
of one sentence, which makes no pair, is read bidirectionally and has no label; the authors start from BERT's weights, which
`start` refuses, because a BERT has fewer segments.

Fine-tuning for sequence to sequence is in masked_translation.py.
R rows, W width, D width of the model.
"""

from typing import ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor

from qkv.data.inputs import PASSAGE_TASKS, Passages
from qkv.objectives.masked import MaskedConfig, MaskedLanguageModelling
from qkv.objectives.masking import MaskedBatch, Units
from qkv.objectives.objective import ObjectiveConfig
from qkv.parts.heads import ModelWithHeads
from qkv.parts.modes import LEFT_TO_RIGHT, RIGHT_TO_LEFT, SOURCE

FIRST_SEGMENTS = {
    "left_to_right": LEFT_TO_RIGHT,
    "right_to_left": RIGHT_TO_LEFT,
    "sequence_to_sequence": SOURCE,
}  # of a text, by its mode


class UnifiedLanguageModellingConfig(MaskedConfig):
    kind: Literal["unilm"] = "unilm"  # type: ignore[assignment]
    units: Units = "short-span"  # what is chosen as a whole
    sentence_task: Literal["next"] = "next"  # predicted for the two passages of bidirectional texts
    # Shares of the texts in each mode, in proportion to each other.
    bidirectional: float = Field(default=2.0, ge=0)
    left_to_right: float = Field(default=1.0, ge=0)
    right_to_left: float = Field(default=1.0, ge=0)
    sequence_to_sequence: float = Field(default=2.0, ge=0)

    @model_validator(mode="after")
    def _some_mode(self) -> "UnifiedLanguageModellingConfig":
        if not any(weight for weight, _ in self.passage_tasks().values()):
            raise ValueError(
                "bidirectional, left_to_right, right_to_left and sequence_to_sequence are all 0, which "
                "leaves no text to train on; "
                "give one of them a share"
            )
        return self

    def passage_tasks(self) -> dict[str, tuple[float, int]]:
        return {
            "next": (self.bidirectional, 0),
            "left_to_right": (self.left_to_right, 0),
            "right_to_left": (self.right_to_left, 0),
            "sequence_to_sequence": (self.sequence_to_sequence, 0),
        }

    def left_to_right_passages(self) -> "UnifiedLanguageModellingConfig":
        only = {"bidirectional": 0.0, "left_to_right": 1.0, "right_to_left": 0.0, "sequence_to_sequence": 0.0}
        return self.model_copy(update=only)


class UnifiedLanguageModelling(MaskedLanguageModelling):
    """The loss of masked tokens and of next-sentence prediction, under the four attention masks."""

    config_class: ClassVar[type[ObjectiveConfig]] = UnifiedLanguageModellingConfig

    def loss(self, model: ModelWithHeads, passages: Passages, masked: MaskedBatch | None = None) -> Tensor:
        return super().loss(model, passages._replace(segment=mode_segments(passages)), masked)


def mode_segments(passages: Passages) -> Tensor:
    """Return UniLM's segment of each token: the mode of its text, and which part of the text it is in. -> (R, W)."""
    segment = passages.segment
    for mode, first in FIRST_SEGMENTS.items():
        segment = segment + first * (passages.task == PASSAGE_TASKS.index(mode))
    return segment
