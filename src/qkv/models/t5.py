"""T5: text in, text out, with one network for every task (Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a
Unified Text-to-Text Transformer", section 2.1).

An encoder-decoder whose norms come first and only divide by a root mean square, without biases anywhere. Where tokens stand is
told by numbers for buckets of distances, added to the scores of self-attention; one table serves all layers of the encoder,
another those of the decoder. Version 1.0 has ReLU and an output that is the word embedding; version 1.1 a gated GELU and an
output of its own.

The authors trained by Adafactor, whose steps are as large as a weight is. Ours are not, so weights that they made larger or
smaller are of the usual size here, and the same function is computed: embeddings are multiplied by the square root of D on the
way in, which in version 1.0 is their division of what goes out; and scores are divided by the square root of K as in every model
here, so that queries are larger than theirs by as much. Attention probabilities and what is inside feed-forward networks are not
dropped out.

`T5Encoder` is the encoder alone, for the heads of fine-tuning. Pretraining trains no token to stand for a text, so a text is the
mean over its positions, which Ni et al. 2022 ("Sentence-T5") found to be better than its first token. In fine-tuning texts begin
with bos, as for all encoders.
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


class T5Config(ModelConfig):
    """The shape of a T5, which reads and writes one vocabulary; the defaults are those of version 1.0's small one."""

    kind: Literal["t5"] = "t5"
    one_vocabulary: ClassVar[bool] = True
    source_eos: ClassVar[bool] = True
    width: int = Field(default=512, gt=0)  # of embeddings and layers: the paper's d_model
    feedforward: int = Field(default=2048, gt=0)  # of the middle of the feed-forward network: d_ff
    heads: int = Field(default=8, gt=0)  # attention heads
    head_width: int = Field(default=64, gt=0)  # of each of them: d_kv
    encoder_layers: int = Field(default=6, gt=0)
    decoder_layers: int = Field(default=6, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)  # on each sub-layer's output and on embeddings
    activation: Literal["relu", "gelu", "geglu", "swiglu"] = "relu"  # geglu in version 1.1
    tied: Literal["all", "inputs"] = "all"  # whether the output is the word embedding too; inputs in version 1.1
    buckets: int = Field(default=32, ge=4, multiple_of=4)  # of distances
    max_distance: int = Field(default=128, gt=0)  # from which on all are in one bucket
    epsilon: float = Field(default=1e-6, gt=0)  # added to the mean square in norms

    @model_validator(mode="after")
    def _buckets_reach(self) -> "T5Config":
        if self.max_distance <= self.buckets // 2:
            raise ValueError(
                f"model.max_distance {self.max_distance} must be more than half of the {self.buckets} buckets; raise it"
            )
        return self


NEW: dict[str, Any] = {"activation": "geglu", "tied": "inputs"}  # in version 1.1
SIZES: dict[str, dict[str, Any]] = {
    "mini": {"width": 256, "feedforward": 688, "heads": 4, "encoder_layers": 4, "decoder_layers": 4, **NEW},
    "small": {},
    "base": {"width": 768, "feedforward": 3072, "heads": 12, "encoder_layers": 12, "decoder_layers": 12},
    "small-1.1": {"feedforward": 1024, "heads": 6, "encoder_layers": 8, "decoder_layers": 8, **NEW},
    "base-1.1": {"width": 768, "feedforward": 2048, "heads": 12, "encoder_layers": 12, "decoder_layers": 12, **NEW},
}


class T5(EncoderDecoder):
    """Reads source rows, predicts target rows; `start` and `step` decode with caches."""

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
        self.encoder = nn.ModuleList(EncoderLayer(attention_of(c), **shape_of(c)) for _ in range(c.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(attention_of(c), _cross(c), **shape_of(c)) for _ in range(c.decoder_layers))
        self.encoder_norm, self.decoder_norm = (nn.RMSNorm(c.width, eps=c.epsilon) for _ in range(2))
        initialise(self, c.width)
        if c.tied == "all":
            self.output.weight = self.target_embedding.weight


def initialise(model: nn.Module, width: int) -> None:
    """As in the authors' code, but for the scales that the first lines of this file tell of."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=width**-0.5)
        elif isinstance(module, T5RelativeBias):
            nn.init.normal_(module.table, std=width**-0.5)


def attention_of(c: Any) -> SelfAttention:
    """Of a layer of such a shape."""
    return SelfAttention(c.width, c.heads, head_width=c.head_width, bias=False)


def _cross(c: T5Config) -> CrossAttention:
    return CrossAttention(c.width, c.heads, c.head_width, bias=False)


def shape_of(c: Any) -> dict[str, Any]:
    """What encoder and decoder layers have in common."""
    kept = c.model_dump(include={"width", "feedforward", "activation", "dropout", "epsilon"})
    return {**kept, "norm": "pre", "lean": True}


# What weights of a T5 are called here, by what their names begin with; no others are taken.
TAKEN = {
    "target_embedding.": "embedding.token_embedding.",
    "source_position_scheme.": "position_scheme.",
    "encoder.": "layers.",
    "encoder_norm.": "norm.",
}


class T5EncoderConfig(EncoderConfig):
    """The shape of a T5's encoder by itself."""

    kind: Literal["t5"] = "t5"
    width: int = Field(default=512, gt=0)
    feedforward: int = Field(default=2048, gt=0)
    heads: int = Field(default=8, gt=0)
    head_width: int = Field(default=64, gt=0)  # of each head, which need not share the width
    layers: int = Field(default=6, gt=0)
    activation: Literal["relu", "gelu", "geglu", "swiglu"] = "relu"  # type: ignore[assignment]
    positions: Literal["none"] = "none"  # which buckets of distances tell instead
    segments: Literal[1] = 1  # parts of a text are told apart by what stands between them
    buckets: int = Field(default=32, ge=4, multiple_of=4)  # of distances
    max_distance: int = Field(default=128, gt=0)  # from which on all are in one bucket
    epsilon: float = Field(default=1e-6, gt=0)  # added to the mean square in norms

    _all_of_the_text = field_validator("attention")(only_full)

    @classmethod
    def of(cls, c: T5Config) -> "T5EncoderConfig":
        """That of a T5's encoder."""
        return cls(layers=c.encoder_layers, **{key: getattr(c, key) for key in cls.model_fields.keys() & SHARED})


SHARED = {"width", "feedforward", "heads", "head_width", "dropout", "activation", "buckets", "max_distance", "epsilon"}


class ScaledTokenEmbedding(TokenPositionEmbedding):
    """Words alone, multiplied by the square root of the width, as in models/t5.py."""

    def forward(self, rows: Rows, segment: Tensor | None, task: Tensor | None) -> Tensor:
        """rows (B, T) -> (B, T, D)."""
        vectors = self.token_embedding(rows.ids)
        return dropout(vectors * vectors.size(-1) ** 0.5, self.dropout, self.training)


class T5Encoder(Encoder):
    """Reads rows of texts; every token sees all of its text."""

    summary = "mean"

    def __init__(self, whole: T5Config, vocab: int):
        nn.Module.__init__(self)  # heads have a width of their own, and distances numbers that are learned
        self.config = c = T5EncoderConfig.of(whole)
        self.embedding = ScaledTokenEmbedding(c, vocab, c.width)
        self.position_scheme = T5RelativeBias(c.heads, c.buckets, c.max_distance, causal=False)
        self.mask_builder = MaskBuilder(c)
        self.projection = nn.Identity()
        self.layers = nn.ModuleList(EncoderLayer(attention_of(c), **shape_of(c)) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.width, eps=c.epsilon)
        initialise(self, c.width)

    def layer(self, number: int, x: Tensor, context: AttentionContext) -> Tensor:
        x = self.layers[number](x, context)
        return self.norm(x) if number == self.config.layers - 1 else x


def encoder_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those of a T5's encoder, by name, of all the T5's."""
    found: dict[str, Any] = {}
    for name, weight in weights.items():
        begin = next((begin for begin in TAKEN if name.startswith(begin)), None)
        if begin is not None:
            found[TAKEN[begin] + name.removeprefix(begin)] = weight
    return found


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
