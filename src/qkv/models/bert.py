"""BERT (Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding").

The encoder, section 3; its heads are in parts/heads.py. Departure: there is no dropout on attention probabilities, because the
fused kernels have none; dropout on sub-layers and embeddings is the paper's. Sizes below base are those of Turc et al. 2019.
B batch, T length, D width.
"""

from typing import Any, Literal

from torch import Tensor, nn

from qkv.models.family import Family
from qkv.parts.attention_kinds import make_attention
from qkv.parts.context import AttentionContext
from qkv.parts.encoder import BertEmbedding, Encoder, EncoderConfig, EncoderLayer, TokenPositionEmbedding, initialise
from qkv.parts.token_scores import masked_each


class BertConfig(EncoderConfig):
    """The shape of a BERT; the defaults are BERT base."""

    kind: Literal["bert"] = "bert"


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"width": 128, "feedforward": 512, "heads": 2, "layers": 2},
    "mini": {"width": 256, "feedforward": 1024, "heads": 4, "layers": 4},
    "small": {"width": 512, "feedforward": 2048, "heads": 8, "layers": 4},
    "medium": {"width": 512, "feedforward": 2048, "heads": 8, "layers": 8},
    "base": {},
    "large": {"width": 1024, "feedforward": 4096, "heads": 16, "layers": 24},
}


class Bert(Encoder):
    """A post-norm Transformer encoder with segment embeddings; every token attends to its whole text."""

    def __init__(self, c: EncoderConfig, vocab: int, embedding: TokenPositionEmbedding | None = None):
        """`embedding` is for models that share or extend it; by default it is as wide as the layers."""
        super().__init__(c, BertEmbedding(c, vocab, c.width) if embedding is None else embedding)
        self.layers = nn.ModuleList(
            EncoderLayer(make_attention(c), c.width, c.feedforward, c.activation, "post", c.dropout, c.epsilon)
            for _ in range(c.layers)
        )
        initialise(self)

    def layer(self, number: int, x: Tensor, context: AttentionContext) -> Tensor:
        return self.layers[number](x, context)


FAMILY = Family(
    kind="bert",
    config=BertConfig,
    network=Bert,
    sizes=SIZES,
    objectives=("masked", "ernie"),
    loads_as="encoder",
    token_scores={"each": masked_each},
)
