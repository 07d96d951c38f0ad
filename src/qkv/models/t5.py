"""T5: a text-to-text encoder-decoder (Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", section 2.1).

Pre-norm with RMS norms and no biases. A relative position bias, one scalar for each head and bucket of distances, is added to the
scores of self-attention; all layers of the encoder share one table, those of the decoder another. Version 1.0 has ReLU and ties
the output layer to the token embedding; version 1.1 has a gated GELU and a separate output layer.

Initial weights compute what the authors' (Mesh TensorFlow) do. Matrices, the separate output layer among them, have deviation
fan-in^-0.5 as theirs, position biases D^-0.5 as in transformers. Two scales stand elsewhere, because the authors trained with
Adafactor, whose steps scale with a weight's size, and our optimisers' do not. Their embeddings have deviation 1; ours have D^-0.5
and are multiplied by sqrt(D), which in version 1.0 replaces their division before the output. Their query weights are sqrt(K)
smaller; ours divide scores by sqrt(K) as in every model here. Their rate of 0.01 (1 / sqrt(n) after 10,000 updates) changes a
weight by up to 1 % of its size. Adam at rate r changes a matrix by up to r sqrt(D) of its size, and the weights of norms, whose
size is 1, by r; so 0.01 / sqrt(D) is nearest, 4e-4 at width 512. There is no dropout on attention probabilities and inside
feed-forward networks.

`T5Encoder` is the encoder with heads for fine-tuning. Pretraining trains no summary token, so the mean over positions represents
a text, which Ni et al. 2022 ("Sentence-T5") found to be better than the first token. In fine-tuning texts begin with bos, as for
all encoders.
B batch, T length, D width, K head width.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows
from qkv.models.family import Family
from qkv.parts.attention import CrossAttention, SelfAttention
from qkv.parts.attention_kinds import MaskBuilder, only_full
from qkv.parts.context import AttentionContext
from qkv.parts.dropout import dropout
from qkv.parts.encoder import Encoder, EncoderConfig, EncoderLayer, TokenPositionEmbedding
from qkv.parts.encoder_decoder import DecoderLayer, EncoderDecoder
from qkv.parts.model_config import ModelConfig
from qkv.parts.positions import make_positions
from qkv.parts.relative import T5RelativeBias
from qkv.parts.residual import FinalRMSNorm


class T5Config(ModelConfig):
    """The shape of a T5; source and target share one vocabulary; the defaults are T5 1.0 small."""

    kind: Literal["t5"] = "t5"
    one_vocabulary: ClassVar[bool] = True
    source_eos: ClassVar[bool] = True
    takes_adapters: ClassVar[bool] = True
    width: int = Field(default=512, gt=0)  # of embeddings and layers: the paper's d_model
    feedforward: int = Field(default=2048, gt=0)  # inner width of the feed-forward network: d_ff
    heads: int = Field(default=8, gt=0)  # attention heads
    head_width: int = Field(default=64, gt=0)  # of each head: d_kv
    encoder_layers: int = Field(default=6, gt=0)
    decoder_layers: int = Field(default=6, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)  # on each sub-layer's output and on embeddings
    activation: Literal["relu", "gelu", "geglu", "swiglu"] = "relu"  # geglu in version 1.1
    tied: Literal["all", "inputs"] = "all"  # whether the output layer shares the token embedding; inputs in version 1.1
    buckets: int = Field(default=32, ge=4, multiple_of=4)  # of distances
    max_distance: int = Field(default=128, gt=0)  # larger distances share one bucket
    epsilon: float = Field(default=1e-6, gt=0)  # added to the mean square in norms

    @model_validator(mode="after")
    def _check_buckets(self) -> "T5Config":
        if self.max_distance <= self.buckets // 2:
            raise ValueError(
                f"model.max_distance {self.max_distance} must be more than half of the {self.buckets} buckets; raise it"
            )
        return self


VERSION_1_1: dict[str, Any] = {"activation": "geglu", "tied": "inputs"}
SIZES: dict[str, dict[str, Any]] = {
    "mini": {"width": 256, "feedforward": 688, "heads": 4, "encoder_layers": 4, "decoder_layers": 4, **VERSION_1_1},
    "small": {},
    "base": {"width": 768, "feedforward": 3072, "heads": 12, "encoder_layers": 12, "decoder_layers": 12},
    "small-1.1": {"feedforward": 1024, "heads": 6, "encoder_layers": 8, "decoder_layers": 8, **VERSION_1_1},
    "base-1.1": {"width": 768, "feedforward": 2048, "heads": 12, "encoder_layers": 12, "decoder_layers": 12, **VERSION_1_1},
}


class T5(EncoderDecoder):
    """The encoder-decoder; its base class (parts/encoder_decoder.py) encodes and decodes."""

    def __init__(self, c: T5Config, source_vocab: int, target_vocab: int):
        super().__init__()
        if source_vocab != target_vocab:
            raise ConfigError("a t5 reads and writes one vocabulary; give tokenizer.shared")
        self.config, self.head_width = c, c.head_width
        self.target_embedding = nn.Embedding(target_vocab, c.width)
        self.source_embedding = self.target_embedding
        self.output = nn.Linear(c.width, target_vocab, bias=False)
        self.source_positions = self.target_positions = make_positions("none", c.width, 1)
        self.source_position_scheme = T5RelativeBias(c.heads, c.buckets, c.max_distance, causal=False)
        self.target_position_scheme = T5RelativeBias(c.heads, c.buckets, c.max_distance, causal=True)
        self.encoder = nn.ModuleList(EncoderLayer(self_attention(c), **layer_options(c)) for _ in range(c.encoder_layers))
        self.decoder = nn.ModuleList(
            DecoderLayer(self_attention(c), CrossAttention(c.width, c.heads, c.head_width, bias=False), **layer_options(c))
            for _ in range(c.decoder_layers)
        )
        self.encoder_norm, self.decoder_norm = (FinalRMSNorm(c.width, eps=c.epsilon) for _ in range(2))
        initialise(self, c.width)
        if c.tied == "all":
            self.output.weight = self.target_embedding.weight


def initialise(model: nn.Module, width: int) -> None:
    """Initialise as in the authors' code, except for the scales that this module's docstring explains."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=width**-0.5)
        elif isinstance(module, T5RelativeBias):
            nn.init.normal_(module.table, std=width**-0.5)


def self_attention(c: Any) -> SelfAttention:
    """Build the self-attention of an encoder or decoder layer."""
    return SelfAttention(c.width, c.heads, head_width=c.head_width, bias=False)


def layer_options(c: Any) -> dict[str, Any]:
    """Return the arguments that encoder and decoder layers share."""
    options = c.model_dump(include={"width", "feedforward", "activation", "dropout", "epsilon"})
    return {**options, "norm": "pre", "lean": True}


# Prefixes of weights: in a T5 -> in its encoder. The encoder has no others.
ENCODER_PREFIXES = {
    "target_embedding.": "embedding.token_embedding.",
    "source_position_scheme.": "position_scheme.",
    "encoder.": "layers.",
    "encoder_norm.": "norm.",
}


class T5EncoderConfig(EncoderConfig):
    """The shape of a T5's encoder."""

    kind: Literal["t5"] = "t5"
    width: int = Field(default=512, gt=0)
    feedforward: int = Field(default=2048, gt=0)
    heads: int = Field(default=8, gt=0)
    head_width: int = Field(default=64, gt=0)  # of each head; heads times head_width may differ from width
    layers: int = Field(default=6, gt=0)
    activation: Literal["relu", "gelu", "geglu", "swiglu"] = "relu"  # type: ignore[assignment]
    positions: Literal["none"] = "none"  # attention has the relative position bias instead
    segments: Literal[1] = 1  # no segment embeddings: separator tokens mark the parts of a text
    buckets: int = Field(default=32, ge=4, multiple_of=4)  # of distances
    max_distance: int = Field(default=128, gt=0)  # larger distances share one bucket
    epsilon: float = Field(default=1e-6, gt=0)  # added to the mean square in norms

    _full_attention_only = field_validator("attention")(only_full)

    @classmethod
    def from_t5(cls, c: T5Config) -> "T5EncoderConfig":
        """Return the shape of a T5's encoder."""
        return cls(layers=c.encoder_layers, **{key: getattr(c, key) for key in SHARED_FIELDS})


SHARED_FIELDS = ("width", "feedforward", "heads", "head_width", "dropout", "activation", "buckets", "max_distance", "epsilon")


class ScaledTokenEmbedding(TokenPositionEmbedding):
    """Token embeddings times sqrt(D), without positions."""

    @property
    def scale(self) -> float:  # type: ignore[override]
        """The factor of token embeddings."""
        return self.token_embedding.embedding_dim**0.5

    def forward(self, rows: Rows, segment: Tensor | None, task: Tensor | None) -> Tensor:
        """Embed rows; segment and task are unused. rows (B, T) -> (B, T, D)."""
        vectors = self.token_embedding(rows.ids)
        return dropout(vectors * self.scale, self.dropout, self.training)


class T5Encoder(Encoder):
    """A T5's encoder, for fine-tuning; every token attends to its whole text."""

    summary = "mean"

    def __init__(self, t5_config: T5Config, vocab: int):
        nn.Module.__init__(self)  # not Encoder's: heads have their own width, and the position bias is learned
        self.config = c = T5EncoderConfig.from_t5(t5_config)
        self.embedding = ScaledTokenEmbedding(c, vocab, c.width)
        self.position_scheme = T5RelativeBias(c.heads, c.buckets, c.max_distance, causal=False)
        self.mask_builder = MaskBuilder(c)
        self.projection = nn.Identity()
        self.layers = nn.ModuleList(EncoderLayer(self_attention(c), **layer_options(c)) for _ in range(c.layers))
        self.norm = FinalRMSNorm(c.width, eps=c.epsilon)
        initialise(self, c.width)

    def layer(self, number: int, x: Tensor, context: AttentionContext) -> Tensor:
        x = self.layers[number](x, context)
        return self.norm(x) if number == self.config.layers - 1 else x


def encoder_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Select the encoder's weights from those of a whole T5, and rename them for `T5Encoder`."""
    return {
        ours + name.removeprefix(prefix): weight
        for name, weight in weights.items()
        for prefix, ours in ENCODER_PREFIXES.items()
        if name.startswith(prefix)
    }


FAMILY = Family(
    kind="t5",
    config=T5Config,
    network=T5Encoder,
    network_weights=encoder_weights,
    translator=lambda config, source, target, mask: T5(config, source, target),
    pretraining_model=lambda config, vocabulary, objective: T5(config, vocabulary, vocabulary),
    pretrains_translator=True,
    sizes=SIZES,
    objectives=("translation", "spans"),
    loads_as="infiller",
    token_scores={},
)
