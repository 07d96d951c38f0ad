"""Translation: predict each target token from the source and the target tokens before it, with label smoothing
("Attention Is All You Need", section 5.4)."""

from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from qkv.base.rows import IGNORE_INDEX, Rows
from qkv.objectives.objective import Objective, ObjectiveConfig
from qkv.parts.loss import cross_entropy_sum


class TranslationConfig(ObjectiveConfig):
    kind: Literal["translation"] = "translation"
    job: ClassVar[Literal["translation", "pretraining", "finetuning"]] = "translation"
    loads_as: ClassVar[str | None] = "translator"
    smoothing: float = Field(default=0.1, ge=0, lt=1)  # label smoothing: probability spread evenly over the vocabulary


class Translation(Objective):
    """The loss of a batch, summed over its target tokens, so that the losses of micro-batches add up to that of the batch."""

    config_class: ClassVar[type[ObjectiveConfig]] = TranslationConfig
    unigram_figure: ClassVar[str | None] = "loss"

    def __init__(self, config: TranslationConfig, bos: int):
        self.config = config
        self.bos = bos

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, tokenizer.bos)

    def loss(self, model: nn.Module, source: Rows, target: Rows) -> Tensor:
        """Return the sum of the cross-entropy over target tokens in nats, smoothed while the model trains."""
        labels = target.ids.masked_fill(target.text == 0, IGNORE_INDEX)
        hidden = model(source, self.shifted(target))  # (R, W, D)
        smoothing = self.config.smoothing if model.training else 0.0
        output: Any = model.output
        return cross_entropy_sum(hidden.flatten(0, 1), output.weight, labels.flatten(), smoothing, output.bias)

    def unigram_loss(self, counts: np.ndarray) -> float:
        """Return the entropy of the frequencies after label smoothing, which the training loss contains."""
        smoothed = (1 - self.config.smoothing) * counts / counts.sum() + self.config.smoothing / len(counts)
        return float(-(smoothed * np.log(smoothed, where=smoothed > 0, out=np.zeros_like(smoothed))).sum())

    def shifted(self, target: Rows) -> Rows:
        """Return the decoder's input: each text shifted right, with bos before it and without its last token."""
        before = torch.where(target.position == 0, self.bos, target.ids.roll(1, dims=1))
        return target._replace(ids=before)
