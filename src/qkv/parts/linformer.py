"""Linformer attention: "Linformer: Self-Attention with Linear Complexity" (Wang et al. 2020, section 4).

Keys and values are projected along the length, from a text's positions to a fixed number M of mixtures, and every token attends
to these. The projection's weights belong to positions, so that a row holds one text, and no text may be longer than
`max_positions`; padding is set to zero before the projection.
Departures: the weights are not initialised from the normal distribution of the paper's proof, but so that each mixture is the
mean of every M-th position, for texts of any length. A text of fewer than M tokens has a mixture for each token and attends to no
others: for it this is full attention at first. With random weights, mixtures of short texts are small and their signs cancel:
with
128 mixtures for 4,096 positions an encoder learned nothing about film reviews in 2,000 updates.
The parameters are the weights times the root of the number of positions: a mixture is a sum over all of them, so that Adam, whose
steps do not depend on the size of the gradient, would change it by hundreds of times the learning rate at once.
B rows, T positions, D width, H heads, K head width, M mixtures.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.errors import ConfigError, DataError
from qkv.parts.attention import SelfAttention
from qkv.parts.dot_product import attend, is_recording, join_heads
from qkv.parts.masks import AttentionMask
from qkv.parts.relative import PositionScheme

# The paper's: one projection per head, for keys and values apart; shared by heads; by keys and values too; by all layers.
SHARING = ("none", "heads", "key-value", "layers")
PIECE = 512  # most queries of a piece


def real_positions(text: Tensor, max_positions: int, checked: bool = False) -> Tensor:
    """Return where rows hold a token; refuse rows of several texts and texts beyond `max_positions`. text (B, T), 0 = padding.

    The number of texts, which needs a wait for the device, is not checked again if `checked`.
    """
    if not checked and int(text.max()) > 1:
        raise DataError(
            f"a row holds {int(text.max())} texts, and Linformer mixes all positions of a row; give each text a row of its own"
        )
    if text.size(1) > max_positions and bool(text[:, max_positions:].any()):
        longest = int((text > 0).sum(1).max())
        raise DataError(
            f"a text of {longest} tokens is longer than the {max_positions} positions of Linformer's projection; cut it"
        )
    return text > 0


class LengthProjection(nn.Module):
    """The projection along the length: the paper's E for keys and F for values."""

    def __init__(self, max_positions: int, projected_length: int, heads: int, sharing: str):
        super().__init__()
        if sharing not in SHARING:
            raise ConfigError(f"sharing {sharing!r} is not known; use one of {', '.join(SHARING)}")
        if not 1 <= projected_length <= max_positions:
            raise ConfigError(
                f"projected_length {projected_length} is not between 1 and max_positions {max_positions}; choose one that is"
            )
        shape = (heads, projected_length, max_positions) if sharing == "none" else (projected_length, max_positions)
        self.keys = nn.Parameter(torch.empty(shape))
        self.values = nn.Parameter(torch.empty(shape)) if sharing in ("none", "heads") else None
        self.projected_length, self.root = projected_length, max_positions**0.5
        first = torch.eye(projected_length).repeat(1, -(-max_positions // projected_length))[:, :max_positions]
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(first * self.root)

    def forward(self, k: Tensor, v: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project keys and values, (B, T, H, K) each, of rows with tokens at `real` (B, T).

        Returns two of (B, H, M, K), and the mask of the mixtures, (B, 1, 1, M).
        """
        hidden, length = ~real[..., None, None], real.sum(1)[:, None, None, None]
        each = (length / self.projected_length).clamp(min=1)  # positions in a mixture
        k = self._project(self.keys, k.masked_fill(hidden, 0)) / each.to(k.dtype)
        v = self._project(self.keys if self.values is None else self.values, v.masked_fill(hidden, 0)) / each.to(v.dtype)
        # An empty row attends to the first mixture, since a softmax over nothing would give NaN.
        return k, v, torch.arange(self.projected_length, device=real.device) < length.clamp(min=1)

    def _project(self, weight: Tensor, x: Tensor) -> Tensor:
        # A row may be wider than max_positions: only padding is there.
        length = min(weight.size(-1), x.size(1))
        equation = "hmt,bthk->bhmk" if weight.dim() == 3 else "mt,bthk->bhmk"
        return torch.einsum(equation, weight[..., :length] / self.root, x[:, :length])


class LinformerAttention(SelfAttention):
    """Self-attention that holds a layer's own length projection; None where all layers share the mask's."""

    def __init__(
        self,
        width: int,
        heads: int,
        max_positions: int,
        projected_length: int,
        sharing: str,
        scheme: PositionScheme | None = None,
    ):
        super().__init__(width, heads, scheme)
        own = sharing != "layers"
        self.length_projection = LengthProjection(max_positions, projected_length, heads, sharing) if own else None


@dataclass(frozen=True, eq=False)
class LinformerMask(AttentionMask):
    """Rows of one text each, whose keys and values are projected to a fixed length before attention."""

    real: Tensor  # (B, T) False at padding
    shared: LengthProjection | None = None  # the projection of all layers, where they share one

    def dense(self) -> Tensor:
        raise ValueError("Linformer attends to projected keys: it has no mask over tokens")

    def attend(self, qkv: Tensor, layer: SelfAttention) -> Tensor:
        assert isinstance(layer, LinformerAttention)
        projection = self.shared if layer.length_projection is None else layer.length_projection
        if projection is None:
            raise ValueError("with sharing=layers the mask holds the length projection, and this one holds none")
        q, k, v = qkv.unflatten(-1, (3, layer.heads, -1)).unbind(2)  # each (B, T, H, K)
        k, v, mask = projection(k, v, self.real)
        if q.is_cuda and q.size(1) > PIECE and not is_recording():
            return attend_in_pieces(q, k, v, mask).flatten(-2)
        return join_heads(attend(q.transpose(1, 2), k, v, mask))


def attend_in_pieces(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attend with the queries of a row split into rows. q (B, T, H, K), k and v (B, H, M, K), mask (B, 1, 1, M) -> (B, T, H, K).

    For the gradients of few keys and values torch's kernels start few programs, and each goes through all queries of a row.
    """
    length, pieces = q.size(1), -(-q.size(1) // PIECE)
    each = -(-length // pieces)
    if length < pieces * each:
        q = F.pad(q, (0, 0, 0, 0, 0, pieces * each - length))
    q = q.unflatten(1, (pieces, each))
    k, v, mask = (x[:, None].expand(-1, pieces, -1, -1, -1).flatten(0, 1) for x in (k, v, mask))
    found = attend(q.flatten(0, 1).transpose(1, 2), k, v, mask).transpose(1, 2)
    return found.unflatten(0, q.shape[:2]).flatten(1, 2)[:, :length]
