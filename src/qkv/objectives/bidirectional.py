"""Bidirectional language modelling: ELMo (Peters et al. 2018, section 3.1).

A forward LSTM predicts each next word from the words before it, a backward LSTM each previous word from the words after it, both
by one softmax over the most frequent words; all other words are <unk>. The loss is the mean of the two, in nats per word.
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
        return ("bidirectional",)


class BidirectionalTally(Tally):
    """Nats per word by direction, reported as perplexities."""

    def read(self) -> dict[str, float]:
        """Return the perplexity of each direction since the last call."""
        return {f"{name}_perplexity": perplexity(nats) for name, nats in super().read().items()}


class BidirectionalLanguageModelling(PretrainingObjective):
    """The sum over words of the mean loss of both directions."""

    config_class: ClassVar[type[ObjectiveConfig]] = BidirectionalConfig
    unigram_figure = "loss"

    def __init__(self, config: BidirectionalConfig, unknown: int):
        """`unknown` is the id that stands for every word outside of the softmax."""
        self.config = config
        self.unknown = unknown
        self.tally = BidirectionalTally()

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, tokenizer.unk)

    def loss(self, model: ModelWithHeads, passages: Passages) -> Tensor:
        """Return the loss on rows of one text each."""
        elmo: Any = model.encoder
        *_, (ahead, back) = elmo.both_directions(passages.rows)  # (R, W, P) each
        forward = self._loss("forward", model, ahead, next_tokens(passages.rows))
        return (forward + self._loss("backward", model, back, previous_tokens(passages.rows))) / 2

    def _loss(self, direction: str, model: ModelWithHeads, hidden: Tensor, labels: Tensor) -> Tensor:
        elmo, head = model.encoder, model.heads["bidirectional"]
        weight: Any = head.weight
        labels = labels.masked_fill(labels >= len(weight), self.unknown)
        features = elmo.apply_dropout(hidden).flatten(0, 1)
        loss = cross_entropy_sum(features, weight, labels.flatten(), bias=head.bias)  # type: ignore[arg-type]
        self.tally.add(direction, loss, (labels != IGNORE_INDEX).sum())
        return loss
