"""Tagging: predict a label for each word, at its first piece (Devlin et al. 2019, BERT, section 5.3).

R rows of width W, C tags.
"""

from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import LabelledTexts
from qkv.objectives.objective import FinetuningConfig, Objective, ObjectiveConfig
from qkv.parts.heads import ModelWithHeads


class TaggingConfig(FinetuningConfig):
    kind: Literal["tagging"] = "tagging"

    @property
    def heads(self) -> tuple[str, ...]:
        return ("tags",)


class Tagging(Objective):
    """The cross-entropy of each word's tag, summed over words."""

    config_class: ClassVar[type[ObjectiveConfig]] = TaggingConfig

    def __init__(self, config: TaggingConfig):
        self.config = config

    def loss(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the sum of losses over words, in nats."""
        logits = self._logits(model, labelled).flatten(0, 1)
        return F.cross_entropy(logits, labelled.labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")

    def outputs(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the probability of each tag at every token. -> (R, W, C)."""
        return self._logits(model, labelled).softmax(-1)

    def _logits(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        hidden = model.encoder(labelled.rows, labelled.segment)
        return model.heads["tags"](hidden.flatten(0, 1)).float().unflatten(0, hidden.shape[:2])
