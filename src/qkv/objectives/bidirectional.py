"""Language modelling in both directions: ELMo (Peters et al. 2018, section 3.1).

At every place of a text the next word is told from those before it, and by another network the word before from those after it;
both by one softmax over the commonest words, to which all others are <unk>. The loss is the mean of the two, in nats a word.
R rows, W width, P width of one direction, V words.
"""

from typing import Any, ClassVar, Literal, Self

from torch import Tensor

from qkv.base.rows import IGNORE_INDEX, next_tokens, previous_tokens
from qkv.data.inputs import Passages
from qkv.objectives.objective import ObjectiveConfig, PretrainingConfig, PretrainingObjective
from qkv.objectives.tally import Tally, perplexity
from qkv.parts.heads import ModelWithHeads
from qkv.parts.loss import cross_entropy_sum


class BidirectionalConfig(PretrainingConfig):
    kind: Literal["bidirectional"] = "bidirectional"
    whole_documents: ClassVar[bool] = True

    @property
    def heads(self) -> tuple[str, ...]:
        return ("neighbours",)


class Perplexities(Tally):
    """Nats a word, told as perplexity."""

    def read(self) -> dict[str, float]:
        """Of each direction, since the last time."""
        return {f"{name}_perplexity": perplexity(nats) for name, nats in super().read().items()}


class Bidirectional(PretrainingObjective):
    """The sum of the losses of all words, the mean of both directions."""

    config_class: ClassVar[type[ObjectiveConfig]] = BidirectionalConfig

    def __init__(self, config: BidirectionalConfig, unknown: int):
        """`unknown` is the number that stands for every word beyond those of the softmax."""
        self.config = config
        self.unknown = unknown
        self.tally = Perplexities()

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, tokenizer.unk)

    def loss(self, model: ModelWithHeads, passages: Passages) -> Tensor:
        """Return the loss on rows of one text each."""
        elmo: Any = model.encoder
        *_, (ahead, back) = elmo.each_way(passages.rows)  # (R, W, P) each
        forward = self._loss("forward", model, ahead, next_tokens(passages.rows))
        return (forward + self._loss("backward", model, back, previous_tokens(passages.rows))) / 2

    def _loss(self, name: str, model: ModelWithHeads, known: Tensor, answer: Tensor) -> Tensor:
        elmo, head = model.encoder, model.heads["neighbours"]
        weight: Any = head.weight
        answer = answer.masked_fill(answer >= len(weight), self.unknown)
        features = elmo.drop(known).flatten(0, 1)
        loss = cross_entropy_sum(features, weight, answer.flatten(), bias=head.bias)  # type: ignore[arg-type]
        self.tally.add(name, loss, (answer != IGNORE_INDEX).sum())
        return loss
