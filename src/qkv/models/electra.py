"""ELECTRA (Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators").

Generator and discriminator are BERTs whose embeddings may be narrower than the layers and are then projected. As in the authors'
code, both share the embeddings of tokens, positions and segments and the norm over them, and each has its own projection.
Departures: no dropout on attention probabilities, see bert.py; the discriminator's output bias starts at the expected share of
replaced tokens, see `Electra`; a generator may have fewer layers instead of narrower ones (`generator_layers`), and queries and
keys may start larger (`query_key_deviation`). With `tied_generator`, both networks are one encoder with two heads: the paper ties
all weights too (section 3.2, "Weight Sharing"), and rejects it only because the generator then is as large as the discriminator.
"""

import math
from typing import Any, Literal

from pydantic import Field, model_validator
from torch import nn

from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.models.bert import Bert
from qkv.models.family import Family
from qkv.parts.attention import SelfAttention
from qkv.parts.encoder import BertEmbedding, EncoderConfig, TokenPositionEmbedding
from qkv.parts.heads import ModelWithHeads
from qkv.parts.token_scores import masked_each


class ElectraConfig(EncoderConfig):
    """The shape of the discriminator, and the relative size of the generator; the defaults are ELECTRA base."""

    kind: Literal["electra"] = "electra"
    embedding_width: int = Field(default=768, gt=0)
    # The generator's width, feed-forward width and heads, as a fraction of the discriminator's.
    generator_size: float = Field(default=1 / 3, gt=0, le=1)
    generator_layers: int | None = Field(default=None, gt=0)  # as many as the discriminator has when not given
    tied_generator: bool = False  # generator and discriminator share all weights but those of their heads
    # Standard deviation of the initial weights of queries and keys. With BERT's 0.02, attention is nearly uniform in a narrow
    # network at first; with width^-0.5 its scores have a deviation of about 1.
    query_key_deviation: float = Field(default=0.02, gt=0)

    @model_validator(mode="after")
    def _tied_networks_have_one_shape(self) -> "ElectraConfig":
        if self.tied_generator and (self.generator_size != 1 or self.generator_layers not in (None, self.layers)):
            raise ValueError(
                "a tied_generator has the discriminator's shape; set generator_size to 1 and leave generator_layers out, or set "
                "tied_generator to false"
            )
        return self

    def generator_config(self) -> "ElectraConfig":
        """Return the shape of the generator: the discriminator's, or a narrower or less deep one."""
        sizes = {name: max(1, round(getattr(self, name) * self.generator_size)) for name in ("width", "feedforward", "heads")}
        where = f"model.generator_size {self.generator_size:g}"
        if sizes["width"] % sizes["heads"]:
            raise ConfigError(
                f"{where} gives the generator a width of {sizes['width']} and {sizes['heads']} heads, which do not divide it; "
                "choose another fraction"
            )
        shape = {**sizes, "layers": self.generator_layers or self.layers, "generator_size": 1.0, "generator_layers": None}
        return parse(ElectraConfig, {**self.model_dump(), **shape}, where)


SIZES: dict[str, dict[str, Any]] = {
    "small": {"width": 256, "feedforward": 1024, "heads": 4, "embedding_width": 128, "generator_size": 0.25},
    "base": {},
    "large": {"width": 1024, "feedforward": 4096, "heads": 16, "layers": 24, "embedding_width": 1024, "generator_size": 0.25},
}


class ElectraEncoder(Bert):
    """One of the two networks: the discriminator, which is kept after pretraining, or the generator."""

    # As in transformers, with which we exchange weights; the authors' classifier has no pooler.
    pooler_activation = "gelu"
    head_activation = "gelu"

    def __init__(self, c: ElectraConfig, vocab: int, embedding: TokenPositionEmbedding | None = None):
        super().__init__(c, vocab, BertEmbedding(c, vocab, c.embedding_width) if embedding is None else embedding)
        deviation = c.query_key_deviation
        for part in self.modules():
            if isinstance(part, SelfAttention):
                queries_keys = part.qkv.weight.data[: 2 * c.width]
                nn.init.trunc_normal_(queries_keys, std=deviation, a=-2 * deviation, b=2 * deviation)


class Electra(nn.Module):
    """Generator and discriminator for pretraining: two encoders that share their embeddings or all weights, with a head each.

    `replaced` is the expected share of replaced tokens at first, which the output bias starts with. With a bias of 0, all tokens
    push the logit down together, and within 50 updates at a high learning rate the top hidden states of all tokens collapse to
    one vector.
    """

    def __init__(self, c: ElectraConfig, vocab: int, replaced: float = 0.15):
        super().__init__()
        encoder = ElectraEncoder(c, vocab)
        self.config = c
        self.discriminator = ModelWithHeads(encoder, ["replaced"])
        head: Any = self.discriminator.heads["replaced"]
        nn.init.constant_(head.output.bias, math.log(replaced / (1 - replaced)))
        tied = encoder if c.tied_generator else ElectraEncoder(c.generator_config(), vocab, encoder.embedding)
        self.generator = ModelWithHeads(tied, ["masked"])

    @property
    def multiply_adds_per_token(self) -> int:
        """Approximate multiply-adds per token of both networks.

        Embeddings do not count: they are lookups, and as the generator's output layer they run for few tokens.
        """
        embeddings = sum(p.numel() for p in self.discriminator.encoder.embedding.parameters())
        return self.discriminator.multiply_adds_per_token + self.generator.multiply_adds_per_token - 2 * embeddings


FAMILY = Family(
    kind="electra",
    config=ElectraConfig,
    network=ElectraEncoder,
    sizes=SIZES,
    objectives=("replaced",),
    loads_as="encoder",
    token_scores={"each": masked_each},
    pretraining_model=lambda config, vocabulary, objective: Electra(config, vocabulary, objective.rate),
    networks={"discriminator": lambda config: config, "generator": ElectraConfig.generator_config},
)
