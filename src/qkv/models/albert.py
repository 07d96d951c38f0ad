"""ALBERT (Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations").

BERT with two parameter reductions (section 3.1): token embeddings of width E are projected to the layers' width D, and layers
share their parameters. There is no dropout by default: section 4.9 finds the model better without. GELU is the tanh
approximation, as in the authors' code. Departure: no dropout on attention probabilities, see bert.py.
B batch, T length, D width, E width of embeddings.
"""

from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.models.family import Family
from qkv.parts.attention_kinds import make_attention
from qkv.parts.context import AttentionContext
from qkv.parts.encoder import BertEmbedding, Encoder, EncoderConfig, initialise
from qkv.parts.feedforward import FeedForward
from qkv.parts.residual import Residual
from qkv.parts.token_scores import masked_each


class AlbertConfig(EncoderConfig):
    """The shape of an ALBERT; the defaults are ALBERT base."""

    kind: Literal["albert"] = "albert"
    dropout: float = Field(default=0.0, ge=0, lt=1)  # on each sub-layer's output and on embeddings; not inside attention
    activation: Literal["gelu", "gelu-tanh", "relu", "tanh"] = "gelu-tanh"
    embedding_width: int = Field(default=128, gt=0)  # the paper's E
    sharing: Literal["all", "attention", "ffn", "none"] = "all"  # which sub-layers share parameters across layers
    groups: int = Field(default=1, gt=0)  # groups of adjacent layers; layers share only within a group; must divide the layers


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": {"width": 1024, "feedforward": 4096, "heads": 16, "layers": 24},
    "xlarge": {"width": 2048, "feedforward": 8192, "heads": 16, "layers": 24},
    "xxlarge": {"width": 4096, "feedforward": 16384, "heads": 64, "layers": 12},
}


class AlbertAttention(nn.Module):
    """Self-attention with its residual, which `sharing: attention` shares."""

    def __init__(self, c: AlbertConfig):
        super().__init__()
        self.attention = make_attention(c)
        self.around = Residual(c.width, "post", c.dropout, c.epsilon)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        return self.around(x, lambda y: self.attention(y, context))


class AlbertFeedForward(nn.Module):
    """The feed-forward network with its residual, which `sharing: ffn` shares."""

    def __init__(self, c: AlbertConfig):
        super().__init__()
        self.feedforward = FeedForward(c.width, c.feedforward, c.activation)
        self.around = Residual(c.width, "post", c.dropout, c.epsilon)

    def forward(self, x: Tensor) -> Tensor:
        return self.around(x, self.feedforward)


class Albert(Encoder):
    """A BERT whose layers share sub-layers: each shared sub-layer exists once and runs in several layers."""

    def __init__(self, c: AlbertConfig, vocab: int):
        # transformers projects even if E = D.
        super().__init__(c, BertEmbedding(c, vocab, c.embedding_width), always_project=True)
        if c.layers % c.groups:
            raise ConfigError(f"model.layers {c.layers} do not split into {c.groups} groups; choose groups that divide them")
        # The index of each layer's sub-layers in the lists below.
        group, own = [layer * c.groups // c.layers for layer in range(c.layers)], [*range(c.layers)]
        self.attention_index = group if c.sharing in ("all", "attention") else own
        self.feedforward_index = group if c.sharing in ("all", "ffn") else own
        self.attention_blocks = nn.ModuleList(AlbertAttention(c) for _ in set(self.attention_index))
        self.feedforward_blocks = nn.ModuleList(AlbertFeedForward(c) for _ in set(self.feedforward_index))
        initialise(self)

    @property
    def multiply_adds_per_token(self) -> int:
        """Approximate multiply-adds per token; a sub-layer counts once for each layer that runs it."""
        total = super().multiply_adds_per_token
        for blocks in (self.attention_blocks, self.feedforward_blocks):
            repeats = self.config.layers // len(blocks) - 1
            total += repeats * sum(p.numel() for p in blocks.parameters())
        return total

    def layer(self, number: int, x: Tensor, context: AttentionContext) -> Tensor:
        x = self.attention_blocks[self.attention_index[number]](x, context)
        return self.feedforward_blocks[self.feedforward_index[number]](x)

    def layer_modules(self, number: int) -> list[nn.Module]:
        attention, feedforward = self.attention_index[number], self.feedforward_index[number]
        return [self.attention_blocks[attention], self.feedforward_blocks[feedforward]]


FAMILY = Family(
    kind="albert",
    config=AlbertConfig,
    network=Albert,
    sizes=SIZES,
    objectives=("masked", "ernie"),
    loads_as="encoder",
    token_scores={"each": masked_each},
)
