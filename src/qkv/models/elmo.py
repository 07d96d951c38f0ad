"""ELMo: a forward and a backward LSTM language model over character-based word embeddings, with a weighted sum of all layers.

Peters et al. 2018, "Deep contextualized word representations", section 3; the character CNN is that of Jozefowicz et al. 2016 and
Kim et al. 2015 (parts/characters.py). Each direction has its own LSTMs with projections. As in the authors' code, each layer but
the first has a residual connection, forget gates start open, and dropout is on the input of each layer.

Departures from that code: cells and projections are not clipped to [-3, 3], since torch's and cuDNN's LSTM cannot; a row holds
one text, and no state is carried over from the row before; the softmax is over the most frequent words (`output_words`), in full
and not sampled from 793,471; layers are not normalised before the weighted sum; projections start with larger weights
(`PROJECTION_GAIN`).
B batch, T length, P width of one direction, D = 2 P.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from qkv.base.characters import BOUNDARIES
from qkv.base.errors import DataError
from qkv.base.rows import Rows, host_copy, next_tokens, previous_tokens
from qkv.models.family import Family
from qkv.parts.characters import CharacterEmbedding
from qkv.parts.dropout import dropout
from qkv.parts.heads import ModelWithHeads
from qkv.parts.model_config import ModelConfig
from qkv.parts.recurrent import Recurrence, padded_texts, run_side_by_side
from qkv.parts.token_scores import ControlTokens, TokenScores, score_with_weights, without_control

# Standard deviation of a projection's initial weights, times the square root of its inputs. Gates start half open: with torch's
# own initialisation, about 0.6, the second layer's output varies by only 0.001 between positions, and for hundreds of updates the
# model learns nothing but word frequencies.
PROJECTION_GAIN = 4.0
FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # in all published sizes


class ElmoConfig(ModelConfig):
    """The shape of an ELMo; the defaults are those of the original model."""

    kind: Literal["elmo"] = "elmo"
    reads_characters: ClassVar[bool] = True
    shardable: ClassVar[bool] = False
    width: int = Field(default=1024, gt=0)  # of both directions together, half of it each: 2 P
    lstm_width: int = Field(default=4096, gt=0)  # LSTM cells, before the projection
    layers: int = Field(default=2, gt=0)  # in each direction
    dropout: float = Field(default=0.1, ge=0, lt=1)  # on the input of each layer and of the softmax
    activation: Literal["relu", "tanh"] = "relu"  # after the convolutions
    character_width: int = Field(default=16, gt=0)  # width of a byte's embedding
    filters: tuple[tuple[int, int], ...] = FILTERS  # of the character CNN: filter width and number of filters
    highway_layers: int = Field(default=2, ge=0)  # after the character CNN
    max_characters: int = Field(default=50, gt=BOUNDARIES)  # bytes of a word, with two boundaries; longer words are cut
    output_words: int = Field(default=30_000, gt=4)  # most frequent words, which the softmax predicts; all others are <unk>
    frozen: bool = False  # in fine-tuning: train only the weighted sum of layers, without dropout

    @field_validator("filters")
    @classmethod
    def _check_filters(cls, filters: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        if not filters or min(map(min, filters)) < 1:
            raise ValueError("filters are pairs of a width and a number of filters, both above 0, such as [[1, 32], [2, 64]]")
        return filters

    @model_validator(mode="after")
    def _check_width(self) -> "ElmoConfig":
        if self.width % 2:
            raise ValueError(f"width {self.width} is odd, and each direction has half of it; choose an even one")
        return self

    @property
    def one_text_per_row(self) -> bool:
        return True


MINI_FILTERS = ((1, 16), (2, 32), (3, 64), (4, 96), (5, 128))
SIZES: dict[str, dict[str, Any]] = {
    "mini": {"width": 256, "lstm_width": 512, "filters": MINI_FILTERS, "highway_layers": 1, "max_characters": 24},
    "small": {"width": 256, "lstm_width": 1024, "highway_layers": 1},
    "medium": {"width": 512, "lstm_width": 2048, "highway_layers": 1},
    "original": {},
}


class Elmo(nn.Module):
    """A bidirectional language model over rows of one text each; its output is the weighted sum of its layers."""

    summary = "mean"
    pooler_activation = "tanh"
    longest = None  # no limit on the length of texts

    def __init__(self, c: ElmoConfig, vocab: int):
        super().__init__()
        self.config = c
        half = c.width // 2
        self.embedding = CharacterEmbedding(
            vocab, c.max_characters, c.character_width, c.filters, c.highway_layers, half, c.activation
        )
        self.forward_layers, self.backward_layers = (
            nn.ModuleList(Recurrence("lstm", half, c.lstm_width, projection=half, recorded=True) for _ in range(c.layers))
            for _ in range(2)
        )
        layers: Any = (*self.forward_layers, *self.backward_layers)
        for weight in (self.embedding.projection.weight, *(layer.cells.weight_hr_l0 for layer in layers)):
            nn.init.normal_(weight, std=PROJECTION_GAIN * weight.size(1) ** -0.5)
        if c.frozen:
            self.requires_grad_(False)
        self.mix = ScalarMix(c.layers + 1)

    def forward(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Tensor:
        """Return the weighted sum of all layers. rows (B, T) -> (B, T, D)."""
        return self.mix([*self.each_layer(rows)])

    def each_layer(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Iterator[Tensor]:
        """Yield the word embeddings, twice side by side, then each layer of both directions. -> (B, T, D) each."""
        return (torch.cat(states, -1) for states in self.both_directions(rows))

    def both_directions(self, rows: Rows) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the same for each direction by itself: forward and backward states. -> two of (B, T, P) each."""
        if bool((host_copy(rows.text) > 1).any()):
            raise DataError("a row holds several texts, which an elmo would mix; make batches with one_text_per_row=True")
        texts = padded_texts(rows.text > 0)
        x: Tensor = self.embedding(rows.ids)
        yield x, x
        forward, backward = x, texts.reversed(x)
        layers: Any = zip(self.forward_layers, self.backward_layers, strict=True)
        for number, pair in enumerate(layers):
            inputs = self.apply_dropout(forward), self.apply_dropout(backward)
            forward, backward = run_side_by_side(pair, inputs)
            if number:
                forward, backward = forward + inputs[0], backward + inputs[1]
            yield forward, texts.reversed(backward)

    def apply_dropout(self, x: Tensor) -> Tensor:
        """Apply dropout, unless the layers are frozen."""
        return x if self.config.frozen else dropout(x, self.config.dropout, self.training)

    @property
    def output_size(self) -> int:
        """The number of words that the softmax predicts."""
        return min(self.config.output_words, len(self.embedding.token_embedding.weight))

    @property
    def multiply_adds_per_token(self) -> int:
        """Approximate multiply-adds per token; the character CNN uses its weights at each of a word's characters."""
        learned = sum(p.numel() for p in self.parameters()) - self.embedding.token_embedding.weight.numel()
        filters: Any = self.embedding.filters
        return learned + (self.config.max_characters - 1) * sum(p.numel() for p in filters.parameters())


class ScalarMix(nn.Module):
    """Equation 1: gamma times the sum of all layers with learned, softmax-normalised weights; at first their mean."""

    def __init__(self, layers: int):
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))  # the paper's s, before the softmax
        self.gamma = nn.Parameter(torch.ones(1))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """(B, T, D) each -> (B, T, D)."""
        weights = self.scores.softmax(0)
        total = layers[0] * weights[0]
        for layer, weight in zip(layers[1:], weights[1:], strict=True):
            total = total + layer * weight
        return self.gamma * total


def score_left(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each word given those before it, by the forward layers."""
    *_, (forward, _) = model.encoder.both_directions(rows)
    return _score_words(model, forward, next_tokens(rows), control)


def score_each(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each word by the mean of both directions, neither of which sees the other."""
    *_, (forward, backward) = model.encoder.both_directions(rows)
    scores = [
        _score_words(model, forward, next_tokens(rows), control),
        _score_words(model, backward, previous_tokens(rows), control),
    ]
    return TokenScores(torch.cat([one.logs for one in scores], 1) / 2, torch.cat([one.labels for one in scores], 1))


def _score_words(model: ModelWithHeads, hidden: Tensor, labels: Tensor, control: ControlTokens) -> TokenScores:
    """Score words by the softmax; words beyond it count as <unk>."""
    head: Any = model.heads["bidirectional"]
    labels = without_control(labels, control)
    return score_with_weights(hidden, head.weight, head.bias, labels.masked_fill(labels >= len(head.weight), control.unknown))


def _pretraining_model(config: ElmoConfig, vocabulary: int, objective: Any) -> ModelWithHeads:
    """Build the language model; pretraining does not train the weighted sum of layers, which belongs to a downstream task."""
    elmo = Elmo(config, vocabulary)
    elmo.mix.requires_grad_(False)
    return ModelWithHeads(elmo, objective.heads)


FAMILY = Family(
    kind="elmo",
    config=ElmoConfig,
    network=Elmo,
    pretraining_model=_pretraining_model,
    sizes=SIZES,
    objectives=("bidirectional",),
    loads_as="encoder",
    token_scores={"each": score_each, "left": score_left},
    scoring_head="bidirectional",
    fills=False,
)
