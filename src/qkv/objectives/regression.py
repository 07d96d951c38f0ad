"""Regression: a number for a text or a pair of texts, such as how alike two sentences are; one output in the place of classes.

R rows, M texts of a row.
"""

from typing import ClassVar, Literal

from torch import Tensor

from qkv.base.config import Config
from qkv.base.rows import Labelled
from qkv.objectives.classification import scores_of_texts
from qkv.parts.heads import ModelWithHeads


class RegressionConfig(Config):
    kind: Literal["regression"] = "regression"

    heads: ClassVar[tuple[str, ...]] = ("pooler", "classes")  # with one label


class Regression:
    """The squared error of each text's number, summed over texts."""

    def __init__(self, config: RegressionConfig):
        self.config = config

    def loss(self, model: ModelWithHeads, labelled: Labelled) -> Tensor:
        error = self.outputs(model, labelled) - labelled.answer
        return error.masked_fill(labelled.answer.isnan(), 0.0).square().sum()

    def outputs(self, model: ModelWithHeads, labelled: Labelled) -> Tensor:
        """The number. -> (R, M)."""
        return scores_of_texts(model, labelled).squeeze(-1)
