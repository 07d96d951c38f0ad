"""ELECTRA (Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators").

Both networks are BERT's, but embeddings may be narrower than the layers and are projected then. As in the authors' code,
generator and discriminator share the embeddings of words, places and segments and the norm over them, and each has a projection
of its own. Attention probabilities are not dropped out, see bert.py. Departure: the discriminator begins by expecting as many
replaced tokens as there are, see `Electra`.
"""

import math
from typing import Any, Literal

from pydantic import Field
from torch import nn

from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.models.bert import Bert
from qkv.models.family import Family
from qkv.parts.encoder import BertEmbedding, EncoderConfig, TokenPositionEmbedding
from qkv.parts.heads import ModelWithHeads
from qkv.parts.token_scores import masked_each


class ElectraConfig(EncoderConfig):
    """The shape of the discriminator, and how large the generator is beside it; the defaults are ELECTRA base."""

    kind: Literal["electra"] = "electra"
    embedding_width: int = Field(default=768, gt=0)  # width of the embeddings
    generator_size: float = Field(
        default=1 / 3, gt=0, le=1
    )  # its width, inner width and heads, as a fraction of the discriminator's

    def of_generator(self) -> "ElectraConfig":
        """The generator's own shape: as deep, but narrower."""
        parts = {name: max(1, round(getattr(self, name) * self.generator_size)) for name in ("width", "feedforward", "heads")}
        if parts["width"] % parts["heads"]:
            raise ConfigError(
                f"model.generator_size {self.generator_size:g} gives the generator a width of {parts['width']} and {parts['heads']} heads, "
                "which do not divide it; choose another fraction"
            )
        return parse(
            ElectraConfig, {**self.model_dump(), **parts, "generator_size": 1.0}, f"model.generator_size {self.generator_size:g}"
        )


SIZES: dict[str, dict[str, Any]] = {
    "small": {"width": 256, "feedforward": 1024, "heads": 4, "embedding_width": 128, "generator_size": 0.25},
    "base": {},
    "large": {"width": 1024, "feedforward": 4096, "heads": 16, "layers": 24, "embedding_width": 1024, "generator_size": 0.25},
}


class ElectraEncoder(Bert):
    """One of the two networks, most often the discriminator, by itself: the encoder that is kept."""

    # transformers' heads, which ours exchange weights with; the authors' classifier has no pooler at all.
    pooler_activation = "gelu"
    head_activation = "gelu"

    def __init__(self, c: ElectraConfig, vocab: int, embedding: TokenPositionEmbedding | None = None):
        super().__init__(c, vocab, BertEmbedding(c, vocab, c.embedding_width) if embedding is None else embedding)


class Electra(nn.Module):
    """Generator and discriminator together, for training: two encoders over the same embeddings, a head on each.

    `replaced` is the share of tokens that are, at first. Said by the last bias, it need not be learned: otherwise all tokens pull
    the score down together, and within 50 updates at a high rate the deepest states of all tokens are the same vector.
    """

    def __init__(self, c: ElectraConfig, vocab: int, replaced: float = 0.15):
        super().__init__()
        encoder = ElectraEncoder(c, vocab)
        self.config = c
        self.discriminator = ModelWithHeads(encoder, ["replaced"])
        head: Any = self.discriminator.heads["replaced"]
        nn.init.constant_(head.output.bias, math.log(replaced / (1 - replaced)))
        self.generator = ModelWithHeads(ElectraEncoder(c.of_generator(), vocab, encoder.embedding), ["masked"])

    @property
    def work_per_token(self) -> int:
        """Of both networks; the embeddings are looked up, and stand before the generator's few guesses alone."""
        looked_up = sum(p.numel() for p in self.discriminator.encoder.embedding.parameters())
        return self.discriminator.work_per_token + self.generator.work_per_token - 2 * looked_up


FAMILY = Family(
    kind="electra",
    config=ElectraConfig,
    network=ElectraEncoder,
    sizes=SIZES,
    objectives=("replaced",),
    loads_as="encoder",
    token_scores={"each": masked_each},
    pretraining_model=lambda config, vocabulary, objective: Electra(config, vocabulary, objective.rate),
    networks={"discriminator": lambda config: config, "generator": ElectraConfig.of_generator},
)
