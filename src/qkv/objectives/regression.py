"""Regression: a number for a text or a pair of texts, such as how alike two sentences are; one output in the place of classes.

R rows, M texts of a row.
"""

from typing import ClassVar, Literal

from torch import Tensor

from qkv.data.inputs import Labelled
from qkv.objectives.classification import scores_of_texts
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

    def loss(self, model: ModelWithHeads, labelled: Labelled) -> Tensor:
        error = self.outputs(model, labelled) - labelled.answer
        return error.masked_fill(labelled.answer.isnan(), 0.0).square().sum()

    def outputs(self, model: ModelWithHeads, labelled: Labelled) -> Tensor:
        """The number. -> (R, M)."""
        return scores_of_texts(model, labelled).squeeze(-1)
