"""Causal language modelling: GPT (Radford et al. 2018, section 3.1; 2019, section 2).

The model predicts each next token from the tokens before it. Texts of a row do not see each other. The loss is in nats per token;
beside it stand perplexity, exp(loss), which depends on the tokenizer, and bits per byte of text, which do not.
R rows, W width, D width of the model, V vocabulary.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX, next_tokens
from qkv.data.inputs import Passages
from qkv.objectives.objective import ObjectiveConfig, PretrainingConfig, PretrainingObjective
from qkv.objectives.tally import Tally, perplexity
from qkv.parts.heads import ModelWithHeads
from qkv.parts.loss import cross_entropy_sum

NATS = "nats"  # per token


class CausalConfig(PretrainingConfig):
    kind: Literal["causal"] = "causal"
    whole_documents: ClassVar[bool] = True


class CausalTally(Tally):
    """Nats per token, reported as perplexity, and bits per byte."""

    def read(self) -> dict[str, float]:
        """Return perplexity and bits per byte since the last call."""
        found = super().read()
        nats = found.pop(NATS, None)
        return found if nats is None else {"perplexity": perplexity(nats), **found}


class CausalLanguageModelling(PretrainingObjective):
    """The sum of the losses of all tokens but the first of each text."""

    config_class: ClassVar[type[ObjectiveConfig]] = CausalConfig
    unigram_figure = "loss"

    def __init__(self, config: CausalConfig, byte_lengths: Sequence[int]):
        """`byte_lengths` are the lengths in bytes of the vocabulary's tokens."""
        self.config = config
        self.byte_lengths = torch.tensor(byte_lengths)
        self.tally = CausalTally()

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, tokenizer.byte_lengths())

    def loss(self, model: ModelWithHeads, passages: Passages) -> Tensor:
        """Return the sum of losses in nats."""
        gpt: Any = model.encoder
        hidden = gpt(passages.rows)  # (R, W, D)
        labels = next_tokens(passages.rows)
        loss = cross_entropy_sum(hidden.flatten(0, 1), gpt.embedding.token_embedding.weight, labels.flatten())
        self.byte_lengths = self.byte_lengths.to(labels.device)
        counted = labels != IGNORE_INDEX
        self.tally.add(NATS, loss, counted.sum())
        # The model's vocabulary may be rounded up, but texts hold only ids of the tokenizer.
        self.tally.add("bits_per_byte", loss / math.log(2), (self.byte_lengths[labels.clamp(min=0)] * counted).sum())
        return loss
