"""Masked words, and how two passages stand to each other: BERT, ALBERT and ERNIE 1.0.

Devlin et al. 2019 (BERT), section 3.1. Task 1: some tokens are masked (masking.py), and what they were is guessed from the whole
text around them. Task 2, `sentence_task: next`: whether the second passage of a text followed the first or is from elsewhere. ALBERT
(Lan et al. 2020, section 3.1) asks for their order instead, `sentence_task: order`: whether the two were swapped. Both are told from
the first token, through the pooler: 0 if all is as in the text, else 1. ERNIE 1.0 (Sun et al. 2019) is `units: unit`.
R rows, W width, M texts of a row, K places chosen, D width of the model, V vocabulary.
"""

from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import Labelled, Passages
from qkv.objectives.masking import Hidden, MaskingConfig, Vocabulary, hide
from qkv.objectives.objective import ObjectiveConfig, PretrainingObjective
from qkv.objectives.tally import Tally
from qkv.parts.heads import ModelWithHeads, states_at
from qkv.parts.loss import cross_entropy_sum

LOOKED_AT = 2  # chosen places of each row at which guesses are counted in training


class MaskedConfig(MaskingConfig):
    kind: Literal["masked"] = "masked"
    sentence_task: Literal["none", "next", "order"] = (
        "none"  # what is asked of two passages; the data has them as that task needs
    )

    @property
    def heads(self) -> tuple[str, ...]:
        """What the model needs on top of its encoder."""
        return ("masked",) if self.sentence_task == "none" else ("masked", "pooler", "relation")

    def passage_tasks(self) -> dict[str, tuple[float, int]]:
        return super().passage_tasks() if self.sentence_task == "none" else {self.sentence_task: (1.0, 0)}


class Masked(PretrainingObjective):
    """The sum of both losses, each in nats: a masked word stands for 1 / rate tokens, a text's relation for all of its tokens."""

    config_class: ClassVar[type[ObjectiveConfig]] = MaskedConfig

    def __init__(self, config: MaskedConfig, vocabulary: Vocabulary):
        self.config = config
        self.vocabulary = vocabulary
        self.tally = Tally()

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, Vocabulary.of(tokenizer))

    def loss(self, model: ModelWithHeads, passages: Passages) -> Tensor:
        """Return the loss on rows that are masked anew at each call."""
        return self.loss_of(model, passages, hide(passages, self.config, self.vocabulary))

    def loss_of(self, model: ModelWithHeads, passages: Passages, hidden: Hidden) -> Tensor:
        """Return the loss on rows that are already masked."""
        known = model.encoder(passages.rows._replace(ids=hidden.ids), passages.segment)  # (R, W, D)
        loss = words_loss(model, known, hidden, self.tally) / self.config.rate
        if self.config.sentence_task == "none":
            return loss
        scores = model.heads["relation"](pooled(model, known, passages))  # (R, M, 2)
        return loss + labels_loss(scores, passages.answer, tokens_of_texts(passages), self.tally, "relation")


def words_loss(model: ModelWithHeads, known: Tensor, hidden: Hidden, tally: Tally) -> Tensor:
    """Sum over chosen places of the cross-entropy of what stood there. known (R, W, D)."""
    head: Any = model.heads["masked"]
    features = head.features(states_at(known, hidden.where))  # (R, K, E)
    return guesses_loss(head, features, hidden.answer, tally, "masked")


def guesses_loss(head: Any, features: Tensor, answer: Tensor, tally: Tally, name: str) -> Tensor:
    """Sum of the cross-entropies of words. features (R, K, E), answer (R, K)."""
    loss = cross_entropy_sum(features.flatten(0, 1), head.weight, answer.flatten(), bias=head.bias)
    tally.add(f"{name}_loss", loss, (answer != IGNORE_INDEX).sum())
    # Guesses need the scores of all words, which the loss does not keep: they are computed again, in training for a few places.
    # Places come in random order, so that the first are as good as any.
    looked_at = features.size(1) if not head.training else LOOKED_AT
    answer = answer[:, :looked_at]
    right = word_scores(head, features[:, :looked_at]).argmax(-1) == answer
    tally.add(f"{name}_accuracy", right.sum(), (answer != IGNORE_INDEX).sum())
    return loss


@torch.no_grad()
def word_scores(head: Any, features: Tensor) -> Tensor:
    """What a masked-word head makes of its features, outside of all learning. (..., E) -> (..., V)."""
    # Detached, because autocast would keep a copy made here, which knows no gradient, for the rest of the update.
    # As one matrix: for a part of a larger tensor torch would make a product for each row, and read all weights each time.
    scores = F.linear(features.flatten(0, -2), head.weight.detach(), head.bias.detach())
    return scores.unflatten(0, features.shape[:-1])


def pooled(model: ModelWithHeads, known: Tensor, passages: Passages) -> Tensor:
    """Each text as one vector. (R, W, D) -> (R, M, D)."""
    return model.heads["pooler"](states_at(known, passages.first))


def tokens_of_texts(passages: Passages | Labelled) -> Tensor:
    """How long each text is. -> (R, M), 0 where there is none."""
    number = torch.arange(1, passages.first.size(1) + 1, device=passages.text.device)
    return (passages.text[:, None] == number[:, None]).sum(-1)


def labels_loss(scores: Tensor, answer: Tensor, tokens: Tensor | int, tally: Tally, name: str) -> Tensor:
    """Sum of the cross-entropy of labels, each as often as it has tokens. scores (..., labels), answer and tokens (...)."""
    losses = F.cross_entropy(
        scores.flatten(0, -2).float(), answer.flatten(), ignore_index=IGNORE_INDEX, reduction="none"
    ).view_as(answer)
    counted = (answer != IGNORE_INDEX).sum()
    tally.add(f"{name}_loss", losses.sum(), counted)
    tally.add(f"{name}_accuracy", (scores.argmax(-1) == answer).sum(), counted)
    return (losses * tokens).sum()
