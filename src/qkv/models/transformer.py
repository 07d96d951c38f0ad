"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017): an encoder-decoder for translation and other
transduction.

The defaults are exactly the paper's base model. Options beyond the paper: pre-norm with a final norm, other position schemes,
GELU, SiLU or SwiGLU, separate embeddings, an output bias, different depths of encoder and decoder, and efficient attention in
the encoder. The base class in parts/encoder_decoder.py encodes and decodes.
"""

from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.models.family import Family
from qkv.parts.attention import CrossAttention, SelfAttention, init_attention
from qkv.parts.attention_kinds import AttentiveConfig, MaskBuilder, make_attention
from qkv.parts.encoder import EncoderLayer
from qkv.parts.encoder_decoder import DecoderLayer, EncoderDecoder
from qkv.parts.feedforward import FeedForward
from qkv.parts.masks import AttentionMask
from qkv.parts.positions import Scheme, make_positions
from qkv.parts.relative import make_position_scheme
from qkv.parts.residual import FinalNorm


class TransformerConfig(AttentiveConfig):
    """The shape of a Transformer; vocabulary sizes come from the tokenizers."""

    kind: Literal["transformer"] = "transformer"
    takes_adapters: ClassVar[bool] = True
    width: int = Field(default=512, gt=0)  # of embeddings and layers: the paper's d_model
    feedforward: int = Field(default=2048, gt=0)  # inner width of the feed-forward network: d_ff
    heads: int = Field(default=8, gt=0)  # attention heads; must divide the width
    encoder_layers: int = Field(default=6, gt=0)
    decoder_layers: int = Field(default=6, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)  # on each sub-layer's output and on embeddings + positions
    norm: Literal["post", "pre"] = "post"  # post is the paper's
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    positions: Scheme = "sinusoidal"
    tied: Literal["all", "target", "none"] = "all"  # which embeddings share the output's weights; all needs one vocabulary
    output_bias: bool = False  # adds a bias to each logit, as in Marian


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "big": {"width": 1024, "feedforward": 4096, "heads": 16, "dropout": 0.3},
}


class Transformer(EncoderDecoder):
    """The encoder-decoder, section 3; the encoder's attention may be an efficient kind."""

    def __init__(self, c: TransformerConfig, source_vocab: int, target_vocab: int):
        super().__init__()
        if c.width % c.heads:
            raise ConfigError(f"model.width {c.width} does not split into {c.heads} heads; choose heads that divide it")
        if c.tied == "all" and source_vocab != target_vocab:
            raise ConfigError("model.tied=all needs one vocabulary for both sides; set model.tied=target for two")
        self.config = c
        self.longest = c.longest
        self.head_width = c.width // c.heads
        self.target_embedding = nn.Embedding(target_vocab, c.width)
        self.source_embedding = self.target_embedding if c.tied == "all" else nn.Embedding(source_vocab, c.width)
        self.output = nn.Linear(c.width, target_vocab, bias=c.output_bias)
        self.source_positions = make_positions(c.positions, c.width, c.max_positions)
        self.target_positions = make_positions(c.treeless, c.width, c.max_positions, known_length=False)
        self.source_position_scheme = make_position_scheme(c.positions, c.width, c.heads, c.max_distance)
        self.target_position_scheme = make_position_scheme(c.treeless, c.width, c.heads, c.max_distance)
        self.mask_builder = MaskBuilder(c)
        self.encoder = nn.ModuleList(
            EncoderLayer(make_attention(c), c.width, c.feedforward, c.activation, c.norm, c.dropout)
            for _ in range(c.encoder_layers)
        )
        self.decoder = nn.ModuleList()
        for _ in range(c.decoder_layers):
            attention = SelfAttention(c.width, c.heads, self.target_position_scheme)
            cross = CrossAttention(c.width, c.heads)
            self.decoder.append(DecoderLayer(attention, cross, c.width, c.feedforward, c.activation, c.norm, c.dropout))
        final_norm = FinalNorm if c.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = final_norm(c.width), final_norm(c.width)
        self._initialise()

    def encoder_mask(self, text: Tensor, like: Tensor) -> AttentionMask:
        return self.mask_builder(text, like)

    def _initialise(self) -> None:
        for module in self.modules():
            init_attention(module)
            if isinstance(module, FeedForward):
                for linear in (module.up, module.down):
                    nn.init.xavier_uniform_(linear.weight)
                    nn.init.zeros_(linear.bias)
            # `_embed` multiplies embeddings by sqrt(D), which makes them as large as positions; the output uses them unscaled.
            if module in (self.source_embedding, self.target_embedding, self.output):
                nn.init.normal_(module.weight, std=self.config.width**-0.5)
        if self.output.bias is not None:
            nn.init.zeros_(self.output.bias)
        if self.config.tied != "none":
            self.output.weight = self.target_embedding.weight


FAMILY = Family(
    kind="transformer",
    config=TransformerConfig,
    translator=lambda config, source, target, mask: Transformer(config, source, target),
    sizes=SIZES,
    objectives=("translation",),
    loads_as="translator",
)
