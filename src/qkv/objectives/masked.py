"""Masked language modelling and sentence tasks: BERT, ALBERT and ERNIE 1.0.

Devlin et al. 2019 (BERT), section 3.1. Task 1: some tokens are masked (masking.py), and the model predicts them from the whole
text. Task 2, next-sentence prediction (`sentence_task: next`): does the second passage of a text follow the first, or is it from
elsewhere? ALBERT (Lan et al. 2020, section 3.1) predicts sentence order instead (`sentence_task: order`): were the two passages
swapped? Both are predicted from the first token, through the pooler: 0 for text as it stands, else 1. ERNIE 1.0 (Sun et al.
2019) is `units: unit`.
R rows, W width, M texts in a row, K slots for masked tokens, D width of the model, E width of embeddings, V vocabulary.
"""

from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import LabelledTexts, Passages
from qkv.objectives.masking import MaskedBatch, MaskingConfig, MaskingVocabulary, mask_tokens
from qkv.objectives.objective import ObjectiveConfig, PretrainingObjective
from qkv.objectives.tally import Tally
from qkv.parts.heads import ModelWithHeads, states_at
from qkv.parts.loss import cross_entropy_sum

ACCURACY_SLOTS = 2  # slots of each row over which accuracy is measured in training


class MaskedConfig(MaskingConfig):
    kind: Literal["masked"] = "masked"
    sentence_task: Literal["none", "next", "order"] = "none"  # predicted for the two passages of each text

    @property
    def heads(self) -> tuple[str, ...]:
        return ("masked",) if self.sentence_task == "none" else ("masked", "pooler", "sentence_task")

    def passage_tasks(self) -> dict[str, tuple[float, int]]:
        return super().passage_tasks() if self.sentence_task == "none" else {self.sentence_task: (1.0, 0)}


class MaskingObjective(PretrainingObjective):
    """An objective that masks tokens anew each time it reads them."""

    def __init__(self, config: Any, vocabulary: MaskingVocabulary):
        self.config = config
        self.vocabulary = vocabulary
        self.tally = Tally()

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, MaskingVocabulary.of(tokenizer))

    def mask(self, passages: Passages) -> MaskedBatch:
        """Choose tokens at random, and mask them."""
        return mask_tokens(passages, self.config, self.vocabulary)


class MaskedLanguageModelling(MaskingObjective):
    """The sum of both losses in nats; a masked token counts for 1 / rate tokens, a text's sentence task for all its tokens."""

    config_class: ClassVar[type[ObjectiveConfig]] = MaskedConfig
    unigram_figure = "masked_loss"

    def chance(self) -> dict[str, float]:
        return {} if self.config.sentence_task == "none" else {"sentence_task_accuracy": 0.5}

    def loss(self, model: ModelWithHeads, passages: Passages, masked: MaskedBatch | None = None) -> Tensor:
        """Return the loss on rows that are masked anew, or as `masked` says."""
        masked = masked or self.mask(passages)
        hidden = model.encoder(passages.rows._replace(ids=masked.ids), passages.segment)  # (R, W, D)
        # The loop divides by the number of all tokens, of which `rate` are masked.
        loss = masked_lm_loss(model, hidden, masked, self.tally) / self.config.rate
        if self.config.sentence_task == "none":
            return loss
        logits = model.heads["sentence_task"](pooled_texts(model, hidden, passages))  # (R, M, 2)
        return loss + label_loss(logits, passages.labels, text_lengths(passages), self.tally, "sentence_task")


def masked_lm_loss(model: ModelWithHeads, hidden: Tensor, masked: MaskedBatch, tally: Tally) -> Tensor:
    """Return the sum of the cross-entropies of the masked tokens. hidden (R, W, D)."""
    head: Any = model.heads["masked"]
    features = head.features(states_at(hidden, masked.columns))  # (R, K, E)
    return token_loss(head, features, masked.labels, tally, "masked")


def token_loss(head: Any, features: Tensor, labels: Tensor, tally: Tally, name: str) -> Tensor:
    """Return the sum of the cross-entropies of tokens, and count it and the accuracy. features (R, K, E), labels (R, K)."""
    loss = cross_entropy_sum(features.flatten(0, 1), head.weight, labels.flatten(), bias=head.bias)
    tally.add(f"{name}_loss", loss, (labels != IGNORE_INDEX).sum())
    # The fused loss keeps no logits: accuracy computes them again, in training for a few slots only.
    # Slots are in random order, so that the first ones are as good as any.
    measured = features.size(1) if not head.training else ACCURACY_SLOTS
    labels = labels[:, :measured]
    right = token_logits(head, features[:, :measured]).argmax(-1) == labels
    tally.add(f"{name}_accuracy", right.sum(), (labels != IGNORE_INDEX).sum())
    return loss


@torch.no_grad()
def token_logits(head: Any, features: Tensor) -> Tensor:
    """Return the logits of a language model's head, without gradient. (..., E) -> (..., V)."""
    # Detached, because autocast would cache a copy made here, without gradient, for the rest of the update.
    # As one matrix: for a slice of a larger tensor torch would multiply row by row, and read all weights each time.
    logits = F.linear(features.flatten(0, -2), head.weight.detach(), head.bias.detach())
    return logits.unflatten(0, features.shape[:-1])


def pooled_texts(model: ModelWithHeads, hidden: Tensor, passages: Passages) -> Tensor:
    """Return the pooled first token of each text. (R, W, D) -> (R, M, D)."""
    return model.heads["pooler"](states_at(hidden, passages.first))


def text_lengths(passages: Passages | LabelledTexts) -> Tensor:
    """Return the length of each text in tokens. -> (R, M), 0 where there is no text."""
    number = torch.arange(1, passages.first.size(1) + 1, device=passages.text.device)
    return (passages.text[:, None] == number[:, None]).sum(-1)


def label_loss(logits: Tensor, labels: Tensor, weights: Tensor | int, tally: Tally, name: str) -> Tensor:
    """Return the weighted sum of the cross-entropies of labels. logits (..., C), labels and weights (...)."""
    losses = F.cross_entropy(
        logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORE_INDEX, reduction="none"
    ).view_as(labels)
    counted = (labels != IGNORE_INDEX).sum()
    tally.add(f"{name}_loss", losses.sum(), counted)
    tally.add(f"{name}_accuracy", (logits.argmax(-1) == labels).sum(), counted)
    return (losses * weights).sum()
