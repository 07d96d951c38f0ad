"""Where a token stands in its text ("Attention Is All You Need", section 3.5). B batch, T length, D width."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.errors import ConfigError


class Sinusoidal(nn.Module):
    """sin(place / 10000^(2i/D)) at even dimensions, cos at odd ones. It has nothing to learn and no longest text."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, place: Tensor) -> Tensor:
        """place (B, T), each below T -> (B, T, D), float32."""
        even = torch.arange(0, self.width, 2, device=place.device)
        angles = torch.arange(place.size(1), device=place.device)[:, None].float() * 10000.0 ** (-even.float() / self.width)
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[:, : self.width]
        return F.embedding(place, table)


class Learned(nn.Module):
    """A vector for each place, learned; a text longer than the table cannot be placed."""

    def __init__(self, width: int, places: int):
        super().__init__()
        self.table = nn.Embedding(places, width)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, place: Tensor) -> Tensor:
        """place (B, T) -> (B, T, D)."""
        # Places are below the row's width, so the shape tells whether they fit without a look at the values.
        if place.size(1) > self.table.num_embeddings and int(place.max()) >= self.table.num_embeddings:
            raise ConfigError(
                f"a text of {int(place.max()) + 1} tokens does not fit the {self.table.num_embeddings} learned places; "
                "use model.positions=sinusoidal, or train with a larger model.places"
            )
        return self.table(place)


def make_positions(kind: str, width: int, places: int) -> nn.Module:
    """The scheme of that name."""
    return Sinusoidal(width) if kind == "sinusoidal" else Learned(width, places)
