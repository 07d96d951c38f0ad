"""ELMo: words by their letters, read from left to right and from right to left; a mix of all layers is a word's vector.

Peters et al. 2018, "Deep contextualized word representations", section 3; the letters as in Jozefowicz et al. 2016 and Kim et al.
2015 (parts/characters.py). Each direction has LSTMs of its own, whose states are projected; as in the authors' code, each layer
but the first adds what it is given to what it gives, forget gates begin open, and dropout is on what each layer is given.
Where we depart from that code: neither the cells nor the projections are clipped to [-3, 3], since torch's LSTM, which cuDNN
computes, does not; a row holds one text, and nothing is carried over from the row before; the softmax is over the commonest words
(`output_words`), all of them each time, and not over a sample of 793,471. Layers are not normalised before they are mixed. Projections
begin larger than there (`LOUD`).
B batch, T length, P width of one direction, D = 2 P.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from qkv.base.characters import BOUNDARIES
from qkv.base.errors import DataError
from qkv.base.rows import Rows, next_tokens, previous_tokens
from qkv.models.family import Family
from qkv.parts.characters import CharacterEmbedding
from qkv.parts.dropout import dropout
from qkv.parts.heads import ModelWithHeads
from qkv.parts.model_config import ModelConfig
from qkv.parts.recurrent import Recurrence, padded_texts
from qkv.parts.token_scores import ControlTokens, TokenScores, score_with_weights, without_control

# Deviation of a projection's first weights, times the root of how many numbers it reads. Gates begin half open: with torch's own,
# about 0.6, what the second layer adds differs from place to place by 0.001, and for hundreds of updates nothing is learned but
# how frequent words are.
LOUD = 4.0
FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))  # of all published sizes


class ElmoConfig(ModelConfig):
    """The shape of an ELMo; the defaults are the published one's."""

    kind: Literal["elmo"] = "elmo"
    reads_characters: ClassVar[bool] = True
    width: int = Field(default=1024, gt=0)  # of both directions together, half of it each
    lstm_width: int = Field(default=4096, gt=0)  # cells of an LSTM, before the projection
    layers: int = Field(default=2, gt=0)  # of each direction
    dropout: float = Field(default=0.1, ge=0, lt=1)  # on the input of each layer and of the softmax
    activation: Literal["relu", "tanh"] = "relu"  # after the convolutions
    character_width: int = Field(default=16, gt=0)  # width of a byte's embedding
    filters: tuple[tuple[int, int], ...] = FILTERS  # of the convolutions over letters: width, and how many there are
    highway_layers: int = Field(default=2, ge=0)  # highway layers after them
    max_characters: int = Field(
        default=50, gt=BOUNDARIES
    )  # for the bytes of a word and the two marks around it; longer ones lose their end
    output_words: int = Field(
        default=30_000, gt=4
    )  # the commonest words, which the softmax tells apart; all others are <unk> to it
    frozen: bool = False  # in fine-tuning: nothing is learned but the mix of layers, and nothing dropped out

    @field_validator("filters")
    @classmethod
    def _are_some(cls, filters: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        if not filters or min(map(min, filters)) < 1:
            raise ValueError("filters are pairs of a width and a number of filters, both above 0, such as [[1, 32], [2, 64]]")
        return filters

    @model_validator(mode="after")
    def _has_two_halves(self) -> "ElmoConfig":
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
    """Reads rows of one text each; what it gives is the mix of its layers."""

    summary = "mean"
    pooler_activation = "tanh"
    longest = None  # texts of any length

    def __init__(self, c: ElmoConfig, vocab: int):
        super().__init__()
        self.config = c
        half = c.width // 2
        self.embedding = CharacterEmbedding(
            vocab, c.max_characters, c.character_width, c.filters, c.highway_layers, half, c.activation
        )
        self.rightward, self.leftward = (
            nn.ModuleList(Recurrence("lstm", half, c.lstm_width, projection=half, recorded=True) for _ in range(c.layers))
            for _ in range(2)
        )
        layers: Any = (*self.rightward, *self.leftward)
        for weight in (self.embedding.projection.weight, *(layer.cells.weight_hr_l0 for layer in layers)):
            nn.init.normal_(weight, std=LOUD * weight.size(1) ** -0.5)
        if c.frozen:
            self.requires_grad_(False)
        self.mix = Mix(c.layers + 1)

    def forward(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Tensor:
        """The mix of all layers at each place. rows (B, T) -> (B, T, D)."""
        return self.mix([*self.each_layer(rows)])

    def each_layer(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Iterator[Tensor]:
        """Words by themselves, twice side by side, and then each layer of both directions. -> (B, T, D) each."""
        return (torch.cat(both, -1) for both in self.each_way(rows))

    def each_way(self, rows: Rows) -> Iterator[tuple[Tensor, Tensor]]:
        """The same, apart: what is known at each place when the text was read from its beginning, and from its end."""
        self._check(rows)
        texts = padded_texts(rows.text > 0)
        x: Tensor = self.embedding(rows.ids)
        yield x, x
        ahead, back = x, texts.reversed(x)
        for number, (rightward, leftward) in enumerate(zip(self.rightward, self.leftward, strict=True)):
            ahead, back = self._read(rightward, ahead, number > 0), self._read(leftward, back, number > 0)
            yield ahead, texts.reversed(back)

    def _read(self, layer: nn.Module, x: Tensor, residual: bool) -> Tensor:
        x = self.drop(x)
        return layer(x) + x if residual else layer(x)

    def drop(self, x: Tensor) -> Tensor:
        """Dropout, while the layers learn."""
        return x if self.config.frozen else dropout(x, self.config.dropout, self.training)

    def _check(self, rows: Rows) -> None:
        """Refuse rows with several texts."""
        if bool((rows.text > 1).any()):
            raise DataError("a row holds several texts, and an elmo would mix them; make batches with alone=True")

    @property
    def answered(self) -> int:
        """How many words its softmax tells apart."""
        return min(self.config.output_words, len(self.embedding.token_embedding.weight))

    @property
    def work_per_token(self) -> int:
        """Multiply-adds that a token takes, nearly: a convolution's weights are used at each of a word's symbols."""
        learned = sum(p.numel() for p in self.parameters()) - self.embedding.token_embedding.weight.numel()
        filters: Any = self.embedding.filters
        return learned + (self.config.max_characters - 1) * sum(p.numel() for p in filters.parameters())


class Mix(nn.Module):
    """Equation 1: gamma times the sum of all layers, each by a share that is learned; at first their mean."""

    def __init__(self, layers: int):
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))  # the paper's s, before the softmax
        self.gamma = nn.Parameter(torch.ones(1))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """(B, T, D) each -> (B, T, D)."""
        shares = self.scores.softmax(0)
        mixed = layers[0] * shares[0]
        for layer, share in zip(layers[1:], shares[1:], strict=True):
            mixed = mixed + layer * share
        return self.gamma * mixed


def score_left(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each word given those before it, by the forward layers."""
    *_, (forward, _) = model.encoder.each_way(rows)
    return _score_words(model, forward, next_tokens(rows), control)


def score_each(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each word by the mean of both directions, neither of which sees the other."""
    *_, (forward, backward) = model.encoder.each_way(rows)
    scores = [
        _score_words(model, forward, next_tokens(rows), control),
        _score_words(model, backward, previous_tokens(rows), control),
    ]
    return TokenScores(torch.cat([one.logs for one in scores], 1) / 2, torch.cat([one.labels for one in scores], 1))


def _score_words(model: ModelWithHeads, hidden: Tensor, labels: Tensor, control: ControlTokens) -> TokenScores:
    """Words beyond the softmax's are <unk> to it."""
    head: Any = model.heads["neighbours"]
    labels = without_control(labels, control)
    return score_with_weights(hidden, head.weight, head.bias, labels.masked_fill(labels >= len(head.weight), control.unknown))


def _pretraining_model(config: ElmoConfig, vocabulary: int, objective: Any) -> ModelWithHeads:
    """Build the language model; its layers are mixed by who uses them, so the mix does not learn."""
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
    scoring_head="neighbours",
    fills=False,
)
