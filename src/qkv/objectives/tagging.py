"""Tagging: a label for each word, told at its first piece (Devlin et al. 2019, BERT, section 5.3).

R rows of width W, C tags.
"""

from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import Labelled
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

    def loss(self, model: ModelWithHeads, labelled: Labelled) -> Tensor:
        scores = self._scores(model, labelled).flatten(0, 1)
        return F.cross_entropy(scores, labelled.answer.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")

    def outputs(self, model: ModelWithHeads, labelled: Labelled) -> Tensor:
        """The probability of each tag at every place. -> (R, W, C)."""
        return self._scores(model, labelled).softmax(-1)

    def _scores(self, model: ModelWithHeads, labelled: Labelled) -> Tensor:
        hidden = model.encoder(labelled.rows, labelled.segment)
        return model.heads["tags"](hidden.flatten(0, 1)).float().unflatten(0, hidden.shape[:2])
