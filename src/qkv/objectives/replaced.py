"""Replaced-token detection: ELECTRA (Clark et al. 2020), section 2.

Two networks are trained together. The generator, the smaller one, is a masked language model. Tokens sampled from it replace the
masked ones, and the discriminator predicts for every token whether it was replaced; a sample that equals the original counts as
original. No gradient flows through sampling: the generator is trained by its own loss alone, not to fool the discriminator. The
loss is L_MLM + 50 L_Disc.

Departures, for short trainings: the weight of L_Disc may be smaller, the generator may be trained alone at first
(`generator_alone`), and that weight may grow (`discriminator_warmup`), so that the discriminator begins when there is something
to detect. With a generator that is tied to the discriminator (models/electra.py) the discriminator then begins with what the
generator has learned, as in the paper's two-stage training (section 3.3), but both go on together.
R rows, W width, K slots for masked tokens, D width of a model, E width of embeddings, V vocabulary.
"""

from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import Passages
from qkv.objectives.masked import ACCURACY_SLOTS, MaskingObjective, token_logits
from qkv.objectives.masking import MaskedBatch, MaskingConfig, MaskingVocabulary
from qkv.objectives.objective import ObjectiveConfig
from qkv.parts import kernels
from qkv.parts.draws import random_int64
from qkv.parts.heads import ModelWithHeads, states_at
from qkv.parts.loss import PIECE, cross_entropy_sum, log_probabilities


class ReplacedConfig(MaskingConfig):
    kind: Literal["replaced"] = "replaced"
    mask: float = Field(default=1.0, ge=0, le=1)  # the generator reads [MASK] for every chosen token
    random: float = Field(default=0.0, ge=0, le=1)
    keep: float = Field(default=0.0, ge=0, le=1)
    discriminator_weight: float = Field(default=50.0, ge=0)  # of the discriminator's loss: the paper's lambda
    generator_alone: float = Field(default=0.0, ge=0, lt=1)  # fraction of all updates, the first, of the generator alone
    discriminator_warmup: float = Field(default=0.0, ge=0, le=1)  # fraction, after those, in which that weight grows linearly


class GeneratorAndDiscriminator(Protocol):
    """The model that is trained: a generator with the head "masked" and a discriminator with the head "replaced"."""

    training: bool
    generator: ModelWithHeads
    discriminator: ModelWithHeads


class GeneratorOutput(NamedTuple):
    """The generator's loss and predictions."""

    features: Tensor  # (R, K, E) the input of the output layer
    loss: Tensor  # summed over chosen tokens
    samples: Tensor  # (R, K) a token for each slot, sampled by its probability
    predictions: Tensor  # (R, K) the most probable tokens


BOTH = 1.9  # how long an update of both takes, in updates of the generator alone: measured with one encoder on an H200


class ReplacedTokenDetection(MaskingObjective):
    """The weighted sum of both losses in nats; a chosen token counts for 1 / rate tokens."""

    config_class: ClassVar[type[ObjectiveConfig]] = ReplacedConfig
    unigram_figure = "generator_loss"
    progress: Tensor | None = None  # the fraction of all updates that are done, on the device, where the weight grows; None: all
    alone = False  # whether the generator is trained alone now

    def __init__(self, config: ReplacedConfig, vocabulary: MaskingVocabulary):
        super().__init__(config, vocabulary)
        self.tasks_judged_after = (1 + config.generator_alone) / 2

    def begin_update(self, done: float, device: torch.device) -> bool:
        c = self.config
        if c.discriminator_warmup:
            self.progress = torch.zeros((), device=device) if self.progress is None else self.progress
            self.progress.fill_(done)
        self.alone = done < c.generator_alone
        return self.alone

    def stages(self) -> tuple[tuple[float, float], ...]:
        alone = self.config.generator_alone
        return ((alone, 1.0), (1 - alone, BOTH)) if 0 < alone < 1 else super().stages()

    def chance(self) -> dict[str, float]:
        return {"recall_replaced": 0.0, "recall_original": 0.0}

    def loss(self, model: GeneratorAndDiscriminator, passages: Passages, masked: MaskedBatch | None = None) -> Tensor:
        """Return the loss on rows that are masked anew, or as `masked` says."""
        masked = masked or self.mask(passages)
        if self.alone and model.training:
            features, loss = generator_loss(model.generator, passages, masked)
            self.count_generator(model.generator, features, None, masked)
            return loss / self.config.rate
        output = run_generator(model.generator, passages, masked)
        self.count_generator(model.generator, output.features, output.predictions, masked)
        ids = replace_tokens(passages.ids, masked, output.samples)
        detection = self.detection_loss(model.discriminator, passages, ids)
        return output.loss / self.config.rate + self.weight() * detection

    def weight(self) -> Tensor | float:
        """Return the weight of the discriminator's loss at this point of the training."""
        c = self.config
        if self.progress is None:
            return c.discriminator_weight
        # A factor on the device, which a recorded update (a CUDA graph) reads.
        return c.discriminator_weight * ((self.progress - c.generator_alone) / c.discriminator_warmup).clamp(0, 1)

    @torch.no_grad()
    def count_generator(
        self, generator: ModelWithHeads, features: Tensor, predictions: Tensor | None, masked: MaskedBatch
    ) -> None:
        """Count loss and accuracy over tokens that the generator reads as [MASK]: those it sees are easy to copy."""
        head: Any = generator.heads["masked"]
        is_mask = masked.ids.gather(1, masked.columns) == self.vocabulary.mask  # (R, K)
        labels = masked.labels.masked_fill(~is_mask, IGNORE_INDEX)
        if predictions is not None:
            self.tally.add("generator_accuracy", (predictions == labels).sum(), (labels != IGNORE_INDEX).sum())
        # In training over a few slots only, as in masked.py: the logits are computed again.
        measured = labels.size(1) if not head.training else ACCURACY_SLOTS
        features, labels = features[:, :measured].flatten(0, 1), labels[:, :measured].flatten()
        logs = log_probabilities(features, head.weight.detach(), labels, head.bias.detach())  # detached, see `token_logits`
        self.tally.add("generator_loss", -logs.sum(), (labels != IGNORE_INDEX).sum())

    def detection_loss(self, discriminator: ModelWithHeads, passages: Passages, ids: Tensor) -> Tensor:
        """Return the sum over all tokens of the binary cross-entropy of being replaced. ids (R, W)."""
        real, replaced = passages.text > 0, ids != passages.ids
        logits = discriminator.heads["replaced"](discriminator.encoder(passages.rows._replace(ids=ids), passages.segment))
        loss = (F.binary_cross_entropy_with_logits(logits.float(), replaced.float(), reduction="none") * real).sum()
        self.count_recalls(logits > 0, real & replaced, real & ~replaced)
        self.tally.add("discriminator_loss", loss, real.sum())
        return loss

    def count_recalls(self, predicted: Tensor, replaced: Tensor, original: Tensor) -> None:
        """Count both recalls: most tokens are originals, and accuracy is about 90 % for a model that detects none. All (R, W)."""
        replaced_count, original_count = replaced.sum(), original.sum()
        self.tally.add("replaced", replaced_count, replaced_count + original_count)
        self.tally.add("recall_replaced", (predicted & replaced).sum(), replaced_count)
        self.tally.add("recall_original", (~predicted & original).sum(), original_count)


def replace_tokens(ids: Tensor, masked: MaskedBatch, samples: Tensor) -> Tensor:
    """Put the generator's samples in the place of the chosen tokens. ids (R, W), samples (R, K) -> (R, W)."""
    tokens = torch.where(masked.labels == IGNORE_INDEX, ids.gather(1, masked.columns), samples)
    return ids.scatter(1, masked.columns, tokens)


def generator_loss(generator: ModelWithHeads, passages: Passages, masked: MaskedBatch) -> tuple[Tensor, Tensor]:
    """Return the input of the generator's output layer, (R, K, E), and its loss, summed over chosen tokens."""
    head: Any = generator.heads["masked"]
    hidden = generator.encoder(passages.rows._replace(ids=masked.ids), passages.segment)  # (R, W, D)
    features = head.features(states_at(hidden, masked.columns))
    return features, cross_entropy_sum(features.flatten(0, 1), head.weight, masked.labels.flatten(), bias=head.bias)


def run_generator(generator: ModelWithHeads, passages: Passages, masked: MaskedBatch) -> GeneratorOutput:
    """Compute the generator's loss and sample a token for each slot."""
    features, loss = generator_loss(generator, passages, masked)
    samples, predictions = sample_tokens(generator.heads["masked"], features.flatten(0, 1))
    shape = masked.labels.shape
    return GeneratorOutput(features, loss, samples.view(shape), predictions.view(shape))


def sample_tokens(head: Any, features: Tensor) -> tuple[Tensor, Tensor]:
    """Sample a token from each distribution, in parts that fit into memory, and take its mode. (N, E) -> (N,), (N,)."""
    # Half the part size of the loss: the logits are held twice, once as probabilities in float32.
    step = max(1, PIECE[features.device.type] // 2 // len(head.weight))
    keys = random_int64(len(features), features.device)
    parts = [sample_from(token_logits(head, part), own) for part, own in zip(features.split(step), keys.split(step), strict=True)]
    samples, predictions = zip(*parts, strict=True)
    return torch.cat(samples), torch.cat(predictions)


def sample_from(logits: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Sample a token by its softmax probability, and take the most probable one. (N, V), random keys (N,) -> (N,), (N,)."""
    if kernels.usable(logits):
        return kernels.draw.draw(logits, keys)
    # Inverse transform sampling: one random number per row, where the Gumbel-max trick needs V.
    cumulative = logits.softmax(-1, dtype=torch.float32).cumsum_(-1)
    threshold = (keys >> 40 & 0xFFFFFF)[:, None] * 2.0**-24 * cumulative[:, -1:]
    samples = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1)
    return samples.clamp_(max=logits.size(-1) - 1), logits.argmax(-1)  # rounding may have made the threshold the total
