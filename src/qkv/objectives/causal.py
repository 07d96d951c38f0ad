"""Left-to-right language modelling: GPT (Radford et al. 2018, section 3.1; 2019, section 2).

At every place of a text the next token is told from those before it. Texts of a row do not see each other. Beside the loss, which
is in nats a token: perplexity, e to that, which depends on the tokenizer; and bits for each byte of the text, which does not.
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

NATS = "nats"  # a token


class CausalConfig(PretrainingConfig):
    kind: Literal["causal"] = "causal"
    whole_documents: ClassVar[bool] = True


class Surprise(Tally):
    """How surprised the model was: nats a token are told as perplexity."""

    def read(self) -> dict[str, float]:
        """Perplexity and bits per byte since the last time."""
        found = super().read()
        nats = found.pop(NATS, None)
        return found if nats is None else {"perplexity": perplexity(nats), **found}


class Causal(PretrainingObjective):
    """The sum of the losses of all tokens but the first of each text."""

    config_class: ClassVar[type[ObjectiveConfig]] = CausalConfig

    def __init__(self, config: CausalConfig, sizes: Sequence[int]):
        """`sizes` are the bytes that each token of the vocabulary stands for."""
        self.config = config
        self.sizes = torch.tensor(sizes)
        self.tally = Surprise()

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, tokenizer.byte_lengths())

    def loss(self, model: ModelWithHeads, passages: Passages) -> Tensor:
        """Return the loss on rows of texts that begin with a token of their own."""
        gpt: Any = model.encoder
        known = gpt(passages.rows)  # (R, W, D)
        answer = next_tokens(passages.rows)
        loss = cross_entropy_sum(known.flatten(0, 1), gpt.embedding.words.weight, answer.flatten())
        self._count(loss, answer)
        return loss

    def _count(self, loss: Tensor, answer: Tensor) -> None:
        self.sizes = self.sizes.to(answer.device)
        told = answer != IGNORE_INDEX
        self.tally.add(NATS, loss, told.sum())
        # The model's vocabulary may be rounded up, but what stands in a text is the tokenizer's.
        self.tally.add("bits_per_byte", loss / math.log(2), (self.sizes[answer.clamp(min=0)] * told).sum())
