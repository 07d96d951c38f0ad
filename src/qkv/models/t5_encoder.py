"""The encoder of a T5 alone, for the heads of fine-tuning: it has seen whole texts from both sides, as a BERT's has.

No token of it was made to stand for a text: pretraining asks the decoder alone. So a text is the mean over its places, which Ni
et al. 2022 ("Sentence-T5") found to be better than its first token. Texts begin with bos here, as in all fine-tuning, which those
of a T5 do not.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator
from torch import Tensor, nn

from qkv.base.rows import Rows
from qkv.models.t5 import T5Config, attention_of, initialise, shape_of
from qkv.parts.attention_kinds import WhoLooks, only_full
from qkv.parts.dropout import dropout
from qkv.parts.encoder import Encoder, EncoderConfig, EncoderLayer, PlacedWords
from qkv.parts.relative import Bucketed, Sight

# What weights of a T5 are called here, by what their names begin with; no others are taken.
TAKEN = {
    "target_embedding.": "embedding.words.",
    "source_relation.": "relation.",
    "encoder.": "layers.",
    "encoder_norm.": "norm.",
}


class T5EncoderConfig(EncoderConfig):
    """The shape of a T5's encoder; the keys are the T5's own."""

    kind: Literal["t5-encoder"] = "t5-encoder"
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


SHARED = {"width", "feedforward", "heads", "head_width", "dropout", "activation", "buckets", "distance", "epsilon"}


class ScaledWords(PlacedWords):
    """Words alone, multiplied by the square root of the width, as in models/t5.py."""

    def forward(self, rows: Rows, segment: Tensor | None, task: Tensor | None) -> Tensor:
        """rows (B, T) -> (B, T, D)."""
        vectors = self.words(rows.ids)
        return dropout(vectors * vectors.size(-1) ** 0.5, self.dropout, self.training)


class T5Encoder(Encoder):
    """Reads rows of texts; every token sees all of its text."""

    averaged = True

    def __init__(self, c: T5EncoderConfig, vocab: int):
        nn.Module.__init__(self)  # heads have a width of their own, and distances numbers that are learned
        self.config = c
        self.embedding = ScaledWords(c, vocab, c.width)
        self.relation = Bucketed(c.heads, c.buckets, c.max_distance, causal=False)
        self.looking = WhoLooks(c)
        self.projection = nn.Identity()
        self.layers = nn.ModuleList(EncoderLayer(attention_of(c), **shape_of(c)) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.width, eps=c.epsilon)
        initialise(self, c.width)

    def layer(self, number: int, x: Tensor, may: Sight) -> Tensor:
        x = self.layers[number](x, may)
        return self.norm(x) if number == self.config.layers - 1 else x


def encoder_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those of a T5's encoder, by name, of all the T5's."""
    found: dict[str, Any] = {}
    for name, weight in weights.items():
        begin = next((begin for begin in TAKEN if name.startswith(begin)), None)
        if begin is not None:
            found[TAKEN[begin] + name.removeprefix(begin)] = weight
    return found
