"""Masked translation: UniLM's fine-tuning for sequence to sequence (Dong et al. 2019, sections 2.4 and 3.1).

Source and target are one text. Some tokens of the target, possibly its eos, are replaced by [MASK], never by other tokens,
because decoding reads [MASK] too; the model predicts them from the source and the target tokens before them.
R rows, W width, D width of the model.
"""

from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX, Rows
from qkv.objectives.objective import Objective, ObjectiveConfig
from qkv.parts.draws import uniform
from qkv.parts.loss import cross_entropy_sum


class MaskedTranslationConfig(ObjectiveConfig):
    kind: Literal["masked-translation"] = "masked-translation"
    job: ClassVar[Literal["translation", "pretraining", "finetuning"]] = "translation"
    loads_as: ClassVar[str | None] = "translator"
    needs_mask: ClassVar[bool] = True
    smoothing: float = Field(default=0.1, ge=0, lt=1)  # label smoothing: probability spread evenly over the vocabulary
    rate: float = Field(default=0.7, gt=0, le=1)  # share of target tokens that are masked


class MaskedTranslation(Objective):
    """The loss of masked target tokens.

    Each counts for 1 / rate tokens, so that the sum estimates that over all target tokens.
    """

    config_class: ClassVar[type[ObjectiveConfig]] = MaskedTranslationConfig

    def __init__(self, config: MaskedTranslationConfig, mask: int):
        self.config, self.mask = config, mask

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, tokenizer.mask)

    def loss(self, model: Any, source: Rows, target: Rows) -> Tensor:
        """Return the sum of the cross-entropy in nats, smoothed while the model trains."""
        rate = self.config.rate
        chosen = (uniform(target.ids.shape, target.ids.device) < rate) & (target.text > 0)
        head = model.heads["masked"]
        hidden = model(source, target._replace(ids=torch.where(chosen, self.mask, target.ids)))  # (R, W, D)
        labels = target.ids.masked_fill(~chosen, IGNORE_INDEX)
        smoothing = self.config.smoothing if model.training else 0.0
        features = head.features(hidden).flatten(0, 1)
        return cross_entropy_sum(features, head.weight, labels.flatten(), smoothing, head.bias) / rate
