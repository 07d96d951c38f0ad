"""Replaced-token detection: ELECTRA (Clark et al. 2020), section 2.

Two networks learn together. The generator, the smaller one, guesses masked tokens as BERT does. Tokens drawn from what it thinks
likely are put where the masks were, and the discriminator says of every token of the text whether it was there before or was put
there; one that happens to be the original counts as original. Nothing is learned through the drawing: the generator is taught by
its own guesses alone, and is not to deceive the discriminator. The loss is L_MLM + 50 L_Disc.
R rows, W width, K places chosen, D width of a model, E width of embeddings, V vocabulary.
"""

from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from qkv.base.rows import IGNORE_INDEX
from qkv.data.inputs import Passages
from qkv.objectives.masked import word_scores
from qkv.objectives.masking import Hidden, MaskingConfig, Vocabulary, hide
from qkv.objectives.objective import ObjectiveConfig, PretrainingObjective
from qkv.objectives.tally import Tally
from qkv.parts import kernels
from qkv.parts.heads import ModelWithHeads, states_at
from qkv.parts.loss import SCORES, cross_entropy_sum


class ReplacedConfig(MaskingConfig):
    kind: Literal["replaced"] = "replaced"
    mask: float = Field(default=1.0, ge=0, le=1)  # the generator never reads what it is to guess, nor a random token
    random: float = Field(default=0.0, ge=0, le=1)
    keep: float = Field(default=0.0, ge=0, le=1)
    discriminator_weight: float = Field(default=50.0, ge=0)  # of the discriminator's loss: the paper's lambda


class TwoNetworks(Protocol):
    """What is trained: a generator with the head "masked" and a discriminator with the head "replaced"."""

    generator: ModelWithHeads
    discriminator: ModelWithHeads


class Guessed(NamedTuple):
    """What the generator makes of the chosen places."""

    loss: Tensor  # of its guesses, summed over them
    drawn: Tensor  # (R, K) a token for each place, by its probability
    likeliest: Tensor  # (R, K)


class Replaced(PretrainingObjective):
    """The sum of both losses, in nats: a token that the generator guesses stands for 1 / rate of them."""

    config_class: ClassVar[type[ObjectiveConfig]] = ReplacedConfig

    def __init__(self, config: ReplacedConfig, vocabulary: Vocabulary):
        self.config = config
        self.vocabulary = vocabulary
        self.tally = Tally()

    @classmethod
    def build(cls, config: Any, tokenizer: Any) -> Self:
        return cls(config, Vocabulary.of(tokenizer))

    def loss(self, model: TwoNetworks, passages: Passages) -> Tensor:
        """Return the loss on rows that are masked anew at each call."""
        return self.loss_of(model, passages, hide(passages, self.config, self.vocabulary))

    def loss_of(self, model: TwoNetworks, passages: Passages, hidden: Hidden) -> Tensor:
        """Return the loss on rows that are already masked."""
        guessed = guess(model.generator, passages, hidden)
        self.count_guesses(guessed, hidden)
        found = self.detection_loss(model.discriminator, passages, replace(passages.ids, hidden, guessed.drawn))
        return guessed.loss / self.config.rate + self.config.discriminator_weight * found

    def count_guesses(self, guessed: Guessed, hidden: Hidden) -> None:
        chosen = (hidden.answer != IGNORE_INDEX).sum()
        self.tally.add("generator_loss", guessed.loss, chosen)
        self.tally.add("generator_accuracy", (guessed.likeliest == hidden.answer).sum(), chosen)

    def detection_loss(self, discriminator: ModelWithHeads, passages: Passages, read: Tensor) -> Tensor:
        """Sum over all tokens of the binary cross-entropy of their being other than they were. read (R, W)."""
        real, replaced = passages.text > 0, read != passages.ids
        scores = discriminator.heads["replaced"](discriminator.encoder(passages.rows._replace(ids=read), passages.segment))
        loss = (F.binary_cross_entropy_with_logits(scores.float(), replaced.float(), reduction="none") * real).sum()
        self.count_findings(scores > 0, real & replaced, real & ~replaced)
        self.tally.add("discriminator_loss", loss, real.sum())
        return loss

    def count_findings(self, said: Tensor, replaced: Tensor, original: Tensor) -> None:
        """Both recalls, because most tokens are originals: who finds nothing is right about nine in ten. All (R, W)."""
        others, originals = replaced.sum(), original.sum()
        self.tally.add("replaced", others, others + originals)
        self.tally.add("recall_replaced", (said & replaced).sum(), others)
        self.tally.add("recall_original", (~said & original).sum(), originals)


def replace(ids: Tensor, hidden: Hidden, drawn: Tensor) -> Tensor:
    """The text with the generator's tokens where some were chosen. ids (R, W), drawn (R, K) -> (R, W)."""
    put = torch.where(hidden.answer == IGNORE_INDEX, ids.gather(1, hidden.where), drawn)
    return ids.scatter(1, hidden.where, put)


def guess(generator: ModelWithHeads, passages: Passages, hidden: Hidden) -> Guessed:
    """The generator's loss, as in masked.py, and what it puts in the chosen places."""
    head: Any = generator.heads["masked"]
    known = generator.encoder(passages.rows._replace(ids=hidden.ids), passages.segment)  # (R, W, D)
    features = head.features(states_at(known, hidden.where)).flatten(0, 1)  # (R K, E)
    loss = cross_entropy_sum(features, head.weight, hidden.answer.flatten(), bias=head.bias)
    drawn, likeliest = draw(head, features)
    return Guessed(loss, drawn.view_as(hidden.answer), likeliest.view_as(hidden.answer))


def draw(head: Any, features: Tensor) -> tuple[Tensor, Tensor]:
    """A word for each place by its probability, and the likeliest one; some places at a time. (N, E) -> (N,), (N,)."""
    # Half as many as in the loss: the scores are held twice, once as probabilities in float32.
    step = max(1, SCORES[features.device.type] // 2 // len(head.weight))
    parts = [draw_from(word_scores(head, part)) for part in features.split(step)]
    drawn, likeliest = zip(*parts, strict=True)
    return torch.cat(drawn), torch.cat(likeliest)


def draw_from(scores: Tensor) -> tuple[Tensor, Tensor]:
    """A word with the probability that softmax gives it, and the one with the highest. (N, V) -> (N,), (N,)."""
    if kernels.usable(scores):
        return kernels.draw.draw(scores)
    # The word at which a random part of all probability is reached: one random number a place, where Gumbel's way needs V.
    reached = scores.softmax(-1, dtype=torch.float32).cumsum_(-1)
    part = torch.rand(len(scores), 1, device=scores.device) * reached[:, -1:]
    drawn = torch.searchsorted(reached, part, right=True).squeeze(-1)
    return drawn.clamp_(max=scores.size(-1) - 1), scores.argmax(-1)  # rounding may have made the part the whole
