"""Language modelling in both directions: ELMo (Peters et al. 2018, section 3.1).

At every place of a text the next word is told from those before it, and by another network the word before from those after it;
both by one softmax over the commonest words, to which all others are <unk>. The loss is the mean of the two, in nats a word.
R rows, W width, P width of one direction, V words.
"""

from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from qkv.base.config import Config
from qkv.base.rows import IGNORE_INDEX, Passages, Rows
from qkv.objectives.causal import next_tokens
from qkv.objectives.tally import Tally, perplexity
from qkv.parts.heads import ModelWithHeads
from qkv.parts.loss import cross_entropy_sum


class BidirectionalConfig(Config):
    kind: Literal["bidirectional"] = "bidirectional"

    heads: ClassVar[tuple[str, ...]] = ("neighbours",)  # what the model needs on top of its encoder


class Perplexities(Tally):
    """Nats a word, told as perplexity."""

    def read(self) -> dict[str, float]:
        """Of each direction, since the last time."""
        return {f"{name}_perplexity": perplexity(nats) for name, nats in super().read().items()}


class Bidirectional:
    """The sum of the losses of all words, the mean of both directions."""

    def __init__(self, config: BidirectionalConfig, unknown: int):
        """`unknown` is the number that stands for every word beyond those of the softmax."""
        self.config = config
        self.unknown = unknown
        self.tally = Perplexities()

    def loss(self, model: ModelWithHeads, passages: Passages) -> Tensor:
        """Of rows of one text each."""
        elmo: Any = model.encoder
        *_, (ahead, back) = elmo.each_way(passages.rows)  # (R, W, P) each
        forward = self._loss("forward", model, ahead, next_tokens(passages.rows))
        return (forward + self._loss("backward", model, back, tokens_before(passages.rows))) / 2

    def _loss(self, name: str, model: ModelWithHeads, known: Tensor, answer: Tensor) -> Tensor:
        elmo, head = model.encoder, model.heads["neighbours"]
        weight: Any = head.weight
        answer = answer.masked_fill(answer >= len(weight), self.unknown)
        features = elmo.drop(known).flatten(0, 1)  # type: ignore[operator]
        loss = cross_entropy_sum(features, weight, answer.flatten(), bias=head.bias)  # type: ignore[arg-type]
        self.tally.add(name, loss, (answer != IGNORE_INDEX).sum())
        return loss


def tokens_before(rows: Rows) -> Tensor:
    """What comes before each token in its text; SKIP before the first one and in padding. -> (R, W)."""
    same = (rows.text[:, 1:] == rows.text[:, :-1]) & (rows.text[:, 1:] > 0)
    before = rows.ids[:, :-1].masked_fill(~same, IGNORE_INDEX)
    return F.pad(before, (1, 0), value=IGNORE_INDEX)
