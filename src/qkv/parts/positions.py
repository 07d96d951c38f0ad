"""Positional encodings: vectors that are added to token embeddings ("Attention Is All You Need", section 3.5).

Schemes that act inside self-attention are in `relative.py`.
B batch, T length, D width.
"""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows
from qkv.parts.model_config import ModelConfig
from qkv.parts.trees import heads_of, tree_depths

Scheme = Literal[
    "none", "counting", "normalised", "sinusoidal", "learned", "relative", "rotary", "alibi",
    "structural", "structural-absolute", "structural-relative",
]  # fmt: skip
# The scheme that takes the place of a structural one where there is no tree.
TREELESS: dict[str, Scheme] = {
    "structural": "relative", "structural-absolute": "sinusoidal", "structural-relative": "relative"
}  # fmt: skip


class PositionsConfig(ModelConfig):
    """The part of a model's shape that positions depend on."""

    kind: str
    width: int = Field(gt=0)  # of the layers
    heads: int = Field(gt=0)  # attention heads; must divide the width
    positions: Scheme
    # The longest text in tokens, if positions are learned; the length that a decoder divides by if they are normalised.
    max_positions: int = Field(default=512, gt=0)
    max_distance: int = Field(default=16, gt=0)  # distance at which relative positions are clipped

    @field_validator("positions")
    @classmethod
    def _rotary_needs_even_heads(cls, positions: str, info: ValidationInfo) -> str:
        width, heads = info.data.get("width", 0), info.data.get("heads", 1)
        if positions == "rotary" and width % (2 * heads):
            raise ValueError(
                f"rotary rotates pairs of dimensions, but a width of {width} does not give each of {heads} heads an even number "
                "of them; choose a width that is a multiple of twice the heads, or other positions"
            )
        return positions

    @property
    def reads_trees(self) -> bool:
        """Whether every text must come with its dependency heads."""
        return self.positions in TREELESS

    @property
    def treeless(self) -> Scheme:
        """The scheme for texts without trees, such as a decoder's."""
        return TREELESS.get(self.positions, self.positions)

    @property
    def longest(self) -> int | None:
        """The longest text in tokens; None without a limit."""
        return self.max_positions if self.positions == "learned" else None

    def check_texts(self, length: int, key: str, segments: int = 1) -> None:
        if self.positions == "learned":
            check_max_positions(self.max_positions, length, key)


def check_max_positions(max_positions: int, length: int, key: str) -> None:
    """Raise ValueError where there are fewer learned positions than `length`, the value of `key`."""
    if max_positions < length:
        raise ValueError(
            f"model.max_positions {max_positions} is below {key} {length}: raise the one or lower the other; "
            "learned positions end there, others (model.positions) do not"
        )


class PositionalEncoding(nn.Module):
    """Base of the encodings. `forward` takes each token's position and text, (B, T) -> (B, T, D), or (B, T, 1) to broadcast."""

    def of_rows(self, rows: Rows) -> Tensor:
        """Return the vectors to add to the embeddings of rows. -> (B, T, D), or (B, T, 1) to broadcast."""
        return self(rows.position, rows.text)


class SinusoidalPositions(PositionalEncoding):
    """sin(position / 10000^(2i/D)) at even dimensions, cos at odd ones: no weights, and no longest text."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, position: Tensor, text: Tensor | None = None) -> Tensor:
        """position (B, T), each below T -> (B, T, D), float32."""
        even = torch.arange(0, self.width, 2, device=position.device)
        angles = torch.arange(position.size(1), device=position.device)[:, None].float() * 10000.0 ** (-even.float() / self.width)
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[:, : self.width]
        return F.embedding(position, table)


class LearnedPositions(PositionalEncoding):
    """A learned vector for each position; a text longer than the table is refused."""

    def __init__(self, width: int, max_positions: int):
        super().__init__()
        self.table = nn.Embedding(max_positions, width)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, position: Tensor, text: Tensor | None = None) -> Tensor:
        """position (B, T) -> (B, T, D)."""
        # Positions are below the row's width: only wider rows need a look at the values, which waits for the device.
        if position.size(1) > self.table.num_embeddings and int(position.max()) >= self.table.num_embeddings:
            raise ConfigError(
                f"a text of {int(position.max()) + 1} tokens does not fit the {self.table.num_embeddings} learned positions; "
                "use model.positions=sinusoidal, or train with a larger model.max_positions"
            )
        return self.table(position)


class CountingPositions(PositionalEncoding):
    """The position times a constant in every dimension: the naive encoding, whose numbers outgrow the embeddings."""

    def __init__(self, unit: float = 1.0):
        super().__init__()
        self.unit = unit

    def forward(self, position: Tensor, text: Tensor | None = None) -> Tensor:
        """position (B, T) -> (B, T, 1), float32."""
        return position[..., None].float() * self.unit


class NormalisedPositions(PositionalEncoding):
    """The position divided by the last one of the text, from 0 to 1: the step depends on the text's length."""

    def forward(self, position: Tensor, text: Tensor | None = None) -> Tensor:
        """position and text (B, T), text None for one text a row -> (B, T, 1), float32."""
        text = torch.ones_like(position) if text is None else text
        # Texts of a row are numbered from 1, 0 is padding: there are no more numbers than positions and one.
        zeros = position.new_zeros(position.size(0), position.size(1) + 1)
        last = zeros.scatter_reduce(1, text, position, "amax").gather(1, text)
        return (position / last.clamp(min=1))[..., None]


class NoPositions(PositionalEncoding):
    """Zeros, for models without positions and for schemes inside attention."""

    def forward(self, position: Tensor, text: Tensor | None = None) -> Tensor:
        """position (B, T) -> (B, T, 1), float32."""
        return torch.zeros(*position.shape, 1, device=position.device)


class StructuralPositions(PositionalEncoding):
    """Sines of the position and of the depth in the dependency tree, joined by a learned layer; see `trees.py`."""

    def __init__(self, width: int):
        super().__init__()
        self.sines = SinusoidalPositions(width)
        self.mix = nn.Parameter(torch.empty(width, 2 * width))
        nn.init.xavier_uniform_(self.mix)

    def forward(self, position: Tensor, head: Tensor) -> Tensor:
        """position and head (B, T) -> (B, T, D)."""
        both = torch.cat([self.sines(position), self.sines(tree_depths(position, head))], -1)
        return F.linear(both.to(self.mix.dtype), self.mix).tanh()

    def of_rows(self, rows: Rows) -> Tensor:
        return self(rows.position, heads_of(rows))


def make_positions(kind: str, width: int, max_positions: int, known_length: bool = True) -> PositionalEncoding:
    """Build the encoding of that name.

    Without a known length, as in decoding, `normalised` divides by `max_positions` instead of the text's length.
    """
    encodings: dict[str, Callable[[], PositionalEncoding]] = {
        "counting": CountingPositions,
        "normalised": NormalisedPositions if known_length else lambda: CountingPositions(1 / max(max_positions - 1, 1)),
        "sinusoidal": lambda: SinusoidalPositions(width),
        "learned": lambda: LearnedPositions(width, max_positions),
        "structural": lambda: StructuralPositions(width),
        "structural-absolute": lambda: StructuralPositions(width),
    }
    return encodings.get(kind, NoPositions)()
