"""Where a token stands in its text, as a vector added to its embedding ("Attention Is All You Need", section 3.5).

Schemes that say where tokens stand to each other act inside self-attention instead: `relative.py`.
Every scheme is given the number of each token, its place (or, of a tree, its depth), and the text it belongs to.
B batch, T length, D width.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows
from qkv.parts.model_config import ModelConfig
from qkv.parts.trees import depths, heads_of

Scheme = Literal[
    "none", "counting", "normalised", "sinusoidal", "learned", "relative", "rotary", "alibi",
    "structural", "structural-absolute", "structural-relative",
]  # fmt: skip
# What a structural scheme is where there is no tree.
TREELESS: dict[str, Scheme] = {
    "structural": "relative", "structural-absolute": "sinusoidal", "structural-relative": "relative"
}  # fmt: skip


class PositionsConfig(ModelConfig):
    """What of an attention model's shape the scheme of positions has to do with."""

    kind: str  # which model it is the shape of
    width: int = Field(gt=0)  # of the layers
    heads: int = Field(gt=0)  # attention heads; must divide the width
    positions: Scheme
    max_positions: int = Field(
        default=512, gt=0
    )  # longest text in tokens, if learned; the decoder normalises by it if normalised
    max_distance: int = Field(default=16, gt=0)  # from which on relative positions tell no distances apart

    @field_validator("positions")
    @classmethod
    def _pairs_can_be_turned(cls, positions: str, known: ValidationInfo) -> str:
        width, heads = known.data.get("width", 0), known.data.get("heads", 1)
        if positions == "rotary" and width % (2 * heads):
            raise ValueError(
                f"rotary turns pairs of dimensions, but a width of {width} does not give each of {heads} heads an even number "
                "of them; choose a width that is a multiple of twice the heads, or other positions"
            )
        return positions

    @property
    def reads_trees(self) -> bool:
        """Whether every text must come with its dependency heads."""
        return self.positions in TREELESS

    @property
    def treeless(self) -> Scheme:
        """The scheme of texts that have no trees, which a decoder writes."""
        return TREELESS.get(self.positions, self.positions)

    @property
    def longest(self) -> int | None:
        """Places a text may have; None where there is no limit."""
        return self.max_positions if self.positions == "learned" else None

    def check_texts(self, length: int, key: str, segments: int = 1) -> None:
        if self.positions == "learned":
            check_max_positions(self.max_positions, length, key)


def check_max_positions(max_positions: int, length: int, key: str) -> None:
    """Raise ValueError where learned positions end before texts of `length` tokens, the value of `key`, do."""
    if max_positions < length:
        raise ValueError(
            f"model.max_positions {max_positions} is below {key} {length}: raise the one or lower the other; "
            "learned positions end there, others (model.positions) do not"
        )


class Sinusoidal(nn.Module):
    """sin(place / 10000^(2i/D)) at even dimensions, cos at odd ones. It has nothing to learn and no longest text."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, position: Tensor, text: Tensor | None = None) -> Tensor:
        """place (B, T), each below T -> (B, T, D), float32."""
        even = torch.arange(0, self.width, 2, device=position.device)
        angles = torch.arange(position.size(1), device=position.device)[:, None].float() * 10000.0 ** (-even.float() / self.width)
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[:, : self.width]
        return F.embedding(position, table)


class Learned(nn.Module):
    """A vector for each place, learned; a text longer than the table cannot be placed."""

    def __init__(self, width: int, max_positions: int):
        super().__init__()
        self.table = nn.Embedding(max_positions, width)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, position: Tensor, text: Tensor | None = None) -> Tensor:
        """place (B, T) -> (B, T, D)."""
        # Places are below the row's width, so the shape tells whether they fit without a look at the values.
        if position.size(1) > self.table.num_embeddings and int(position.max()) >= self.table.num_embeddings:
            raise ConfigError(
                f"a text of {int(position.max()) + 1} tokens does not fit the {self.table.num_embeddings} learned places; "
                "use model.positions=sinusoidal, or train with a larger model.max_positions"
            )
        return self.table(position)


class Counting(nn.Module):
    """The place itself, times a constant, for every dimension: the naive scheme, whose numbers outgrow the embeddings."""

    def __init__(self, unit: float = 1.0):
        super().__init__()
        self.unit = unit

    def forward(self, position: Tensor, text: Tensor | None = None) -> Tensor:
        """place (B, T) -> (B, T, 1), the same for all dimensions, float32."""
        return position[..., None].float() * self.unit


class Normalised(nn.Module):
    """How much of its text lies before a token, 0 at the first and 1 at the last, so that a step depends on the text's length."""

    def forward(self, position: Tensor, text: Tensor | None = None) -> Tensor:
        """place, text (B, T), or one text a row where text is None -> (B, T, 1), the same for all dimensions, float32."""
        text = torch.ones_like(position) if text is None else text
        # Texts of a row are numbered from 1, so there are no more of them than places; 0 is padding.
        last = (
            position.new_zeros(position.size(0), position.size(1) + 1).scatter_reduce(1, text, position, "amax").gather(1, text)
        )
        return (position / last.clamp(min=1))[..., None]


class NoPositions(nn.Module):
    """Nothing: all places look alike, unless a scheme inside attention tells them apart."""

    def forward(self, position: Tensor, text: Tensor | None = None) -> Tensor:
        """place (B, T) -> (B, T, 1), float32."""
        return torch.zeros(*position.shape, 1, device=position.device)


class Structural(nn.Module):
    """Places and depths in a tree, each as sines, made one vector by a learned layer; see `trees.py`."""

    def __init__(self, width: int):
        super().__init__()
        self.sines = Sinusoidal(width)
        self.mix = nn.Parameter(torch.empty(width, 2 * width))
        nn.init.xavier_uniform_(self.mix)

    def forward(self, position: Tensor, head: Tensor) -> Tensor:
        """place and head (B, T) -> (B, T, D)."""
        both = torch.cat([self.sines(position), self.sines(depths(position, head))], -1)
        return F.linear(both.to(self.mix.dtype), self.mix).tanh()


def placed(positions: nn.Module, rows: Rows) -> Tensor:
    """What a scheme adds to the embeddings of rows. -> (B, T, D), or (B, T, 1) where all dimensions get the same."""
    if isinstance(positions, Structural):
        return positions(rows.position, heads_of(rows))
    return positions(rows.position, rows.text)


def make_positions(kind: str, width: int, max_positions: int, known_length: bool = True) -> nn.Module:
    """The scheme of that name; where a text's length is not known yet, as in decoding, `normalised` goes by `places` instead."""
    if kind == "sinusoidal":
        return Sinusoidal(width)
    if kind == "learned":
        return Learned(width, max_positions)
    if kind in ("structural", "structural-absolute"):
        return Structural(width)
    if kind == "counting":
        return Counting()
    if kind == "normalised":
        return Normalised() if known_length else Counting(1 / max(max_positions - 1, 1))
    return NoPositions()
