"""Regression: predict a number for a text or a pair of texts, such as the similarity of two sentences, by one output.

R rows, M texts in a row.
"""

from typing import ClassVar, Literal

from torch import Tensor

from qkv.data.inputs import LabelledTexts
from qkv.objectives.classification import text_logits
from qkv.objectives.objective import FinetuningConfig, Objective, ObjectiveConfig
from qkv.parts.heads import ModelWithHeads


class RegressionConfig(FinetuningConfig):
    kind: Literal["regression"] = "regression"

    @property
    def heads(self) -> tuple[str, ...]:
        return ("pooler", "classes")


class Regression(Objective):
    """The squared error of each text's number, summed over texts."""

    config_class: ClassVar[type[ObjectiveConfig]] = RegressionConfig

    def __init__(self, config: RegressionConfig):
        self.config = config

    def loss(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the sum of squared errors."""
        error = self.outputs(model, labelled) - labelled.labels
        return error.masked_fill(labelled.labels.isnan(), 0.0).square().sum()

    def outputs(self, model: ModelWithHeads, labelled: LabelledTexts) -> Tensor:
        """Return the predicted number of each text. -> (R, M)."""
        return text_logits(model, labelled).squeeze(-1)
