"""ALBERT (Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations").

BERT with two savings (section 3.1): word embeddings of width E are projected to the layers' width, and layers share their
parameters. There is no dropout by default: section 4.9 finds the model better without. GELU is by tanh, as in the authors' code.
Attention probabilities are never dropped out, see bert.py. B batch, T length, D width.
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
    embedding_width: int = Field(default=128, gt=0)  # width of the embeddings: the paper's E
    sharing: Literal["all", "attention", "ffn", "none"] = "all"  # which sub-layers are the same in all layers
    groups: int = Field(default=1, gt=0)  # of neighbouring layers, which share among themselves only; must divide the layers


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "large": {"width": 1024, "feedforward": 4096, "heads": 16, "layers": 24},
    "xlarge": {"width": 2048, "feedforward": 8192, "heads": 16, "layers": 24},
    "xxlarge": {"width": 4096, "feedforward": 16384, "heads": 64, "layers": 12},
}


class Attention(nn.Module):
    """Self-attention with its residual: what `sharing: attention` shares."""

    def __init__(self, c: AlbertConfig):
        super().__init__()
        self.attention = make_attention(c)
        self.around = Residual(c.width, "post", c.dropout, c.epsilon)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        return self.around(x, lambda y: self.attention(y, context))


class Feed(nn.Module):
    """The feed-forward network with its residual: what `sharing: ffn` shares."""

    def __init__(self, c: AlbertConfig):
        super().__init__()
        self.feedforward = FeedForward(c.width, c.feedforward, c.activation)
        self.around = Residual(c.width, "post", c.dropout, c.epsilon)

    def forward(self, x: Tensor) -> Tensor:
        return self.around(x, self.feedforward)


class Albert(Encoder):
    """Reads rows of texts as BERT does; each sub-layer is kept once and run in every layer that shares it."""

    def __init__(self, c: AlbertConfig, vocab: int):
        super().__init__(
            c, BertEmbedding(c, vocab, c.embedding_width), always_project=True
        )  # also where E = D, as transformers does
        if c.layers % c.groups:
            raise ConfigError(f"model.layers {c.layers} do not split into {c.groups} groups; choose groups that divide them")
        # For each layer, which one of the sub-layers kept is run there.
        self.attention_of = self._shared(c, c.sharing in ("all", "attention"))
        self.feed_of = self._shared(c, c.sharing in ("all", "ffn"))
        self.attentions = nn.ModuleList(Attention(c) for _ in set(self.attention_of))
        self.feeds = nn.ModuleList(Feed(c) for _ in set(self.feed_of))
        initialise(self)

    @staticmethod
    def _shared(c: AlbertConfig, shared: bool) -> list[int]:
        return [layer * c.groups // c.layers if shared else layer for layer in range(c.layers)]

    @property
    def work_per_token(self) -> int:
        """A sub-layer works once for each layer that it is run in."""
        again = [(kept, self.config.layers // len(kept) - 1) for kept in (self.attentions, self.feeds)]
        return super().work_per_token + sum(times * p.numel() for kept, times in again for p in kept.parameters())

    def layer(self, number: int, x: Tensor, context: AttentionContext) -> Tensor:
        x = self.attentions[self.attention_of[number]](x, context)
        return self.feeds[self.feed_of[number]](x)


FAMILY = Family(
    kind="albert",
    config=AlbertConfig,
    network=Albert,
    sizes=SIZES,
    objectives=("masked", "ernie"),
    loads_as="encoder",
    token_scores={"each": masked_each},
)
