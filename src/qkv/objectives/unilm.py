"""Masked words, read in four ways: UniLM (Dong et al. 2019, sections 2.2 and 2.3).

A text is read in both directions, from left to right, from right to left or as a source and its target (`parts/modes.py`), as
the data says; its segments tell the model which. In each way some tokens are masked, and what they were is told from what the
way lets them see. Texts read in both directions are pairs, of which it is asked, as in BERT, whether the second part follows
the first. Where we depart from the paper: it is a text that is read in one way, not a whole batch, so that one batch has all
four in their shares; a text of one sentence, of which no pair can be made, is read in both directions and nothing is asked of
it; the authors begin with BERT's weights, which `start` does not take, as a BERT has fewer segments.

Fine-tuned to turn sources into targets (section 2.4), it is told the target but for some of its tokens, its end among them, in
whose places [MASK] stands, always: that is what is read in decoding.
R rows, W width, D width of the model.
"""

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX, SHAPES, Passages, Rows
from qkv.objectives.masked import Masked, MaskedConfig
from qkv.objectives.masking import Hidden, Units
from qkv.objectives.translation import TranslationConfig
from qkv.parts.heads import ModelWithHeads
from qkv.parts.loss import cross_entropy_sum
from qkv.parts.modes import LEFT, RIGHT, SOURCE

HIDDEN = 0.7  # of a target's tokens, in fine-tuning: the paper's (section 3.1)
SEGMENT_OF = {"left": LEFT, "right": RIGHT, "sequence": SOURCE}  # of a text's first part, by what it is read for


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
            raise ValueError("both, left, right and sequence are all 0, so that no text would be read; give one of them a share")
        return self

    @property
    def modes(self) -> dict[str, float]:
        """What texts are read for, and the weight of each."""
        return {
            "next": self.bidirectional,
            "left": self.left_to_right,
            "right": self.right_to_left,
            "sequence": self.sequence_to_sequence,
        }


class FourWays(Masked):
    """As the loss of masked words and of the relation of pairs, but for what is seen."""

    def loss_of(self, model: ModelWithHeads, passages: Passages, hidden: Hidden) -> Tensor:
        return super().loss_of(model, passages._replace(segment=segments(passages)), hidden)


def segments(passages: Passages) -> Tensor:
    """The segment of each token as UniLM is told it: the part of its text and the way it is read. -> (R, W)."""
    segment = passages.segment
    for name, first in SEGMENT_OF.items():
        segment = segment + first * (passages.task == SHAPES.index(name))
    return segment


class MaskedTranslation:
    """The loss of masked target tokens, each of which stands for 1 / their share of all, so that it is one over target tokens."""

    def __init__(self, config: TranslationConfig, mask: int):
        self.config, self.mask = config, mask
        self.share = config.hide or HIDDEN

    def loss(self, model: Any, source: Rows, target: Rows) -> Tensor:
        """Sum of the cross-entropy in nats, smoothed while the model trains."""
        drawn = torch.rand(target.ids.shape, device=target.ids.device)
        chosen = (drawn < self.share) & (target.text > 0)
        head = model.heads["masked"]
        features = head.features(model(source, target._replace(ids=torch.where(chosen, self.mask, target.ids))))  # (R, W, D)
        answer = target.ids.masked_fill(~chosen, IGNORE_INDEX)
        spread = self.config.smoothing if model.training else 0.0
        return cross_entropy_sum(features.flatten(0, 1), head.weight, answer.flatten(), spread, head.bias) / self.share
