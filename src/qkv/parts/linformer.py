"""Attention to a text made shorter: "Linformer: Self-Attention with Linear Complexity" (Wang et al. 2020, section 4).

Keys and values are multiplied along the length, from the text's places to a fixed number of mixtures of them, and every place
looks at those. The weights of these products belong to places, so that a row holds one text and no more, and no text may be
longer than those that were trained on; padding is zero before the products and adds nothing to them.
Departures: the weights do not start at random, from the normal distribution of the paper's proof, but so that mixtures are means
of every M-th place, of however long a text. One of fewer than M tokens has a mixture for each, and sees no others: for it this is
full attention at first. At random, mixtures of short texts are small and their signs cancel: with 128 for 4,096 places an encoder
learned nothing about film reviews in 2,000 updates.
What is learned are the weights times the root of the number of places: a mixture is a sum over all of them, so that Adam, which
moves every number by the rate whatever its gradient, would change it by hundreds of times the rate at once.
B rows, T places, D width, H heads, K head width, M mixtures.
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

# The paper's: matrices for each head, for keys and values apart; the same for all heads; for both of these; for all layers.
SHARING = ("none", "heads", "key-value", "layers")
PIECE = 512  # queries, at most


def real_positions(text: Tensor, max_positions: int, known: bool = False) -> Tensor:
    """Which places are no padding, where each row holds one text of at most so many. text (B, T), 0 = padding -> (B, T).

    That rows hold one text is `known` where others of the same kind were looked at, for which the device is waited for.
    """
    if not known and int(text.max()) > 1:
        raise DataError(f"a row holds {int(text.max())} texts, and Linformer mixes all of a row; give each text a row of its own")
    if text.size(1) > max_positions and bool(text[:, max_positions:].any()):
        longest = int((text > 0).sum(1).max())
        raise DataError(
            f"a text of {longest} tokens is longer than the {max_positions} places that Linformer's weights are for; cut it"
        )
    return text > 0


class LengthProjection(nn.Module):
    """The weights along the length: the paper's E for keys and F for values."""

    def __init__(self, max_positions: int, projected_length: int, heads: int, sharing: str):
        super().__init__()
        if sharing not in SHARING:
            raise ConfigError(f"sharing {sharing!r} is not known; use one of {', '.join(SHARING)}")
        if not 1 <= projected_length <= max_positions:
            raise ConfigError(
                f"{max_positions} places cannot be mixed into {projected_length}; use at least 1 and at most as many as there are places"
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
        """Two of (B, T, H, K), `real` (B, T) -> two of (B, H, M, K), and which of these mixtures may be seen, (B, 1, 1, M)."""
        hidden, length = ~real[..., None, None], real.sum(1)[:, None, None, None]
        each = (length / self.projected_length).clamp(min=1)  # places of a mixture
        k = self._mix(self.keys, k.masked_fill(hidden, 0)) / each.to(k.dtype)
        v = self._mix(self.keys if self.values is None else self.values, v.masked_fill(hidden, 0)) / each.to(v.dtype)
        # Of a row without a text the first mixture is seen, since a softmax over nothing would not be a number.
        return k, v, torch.arange(self.projected_length, device=real.device) < length.clamp(min=1)

    def _mix(self, weight: Tensor, x: Tensor) -> Tensor:
        # A row may be wider than the longest text: only padding is there.
        max_positions = min(weight.size(-1), x.size(1))
        written = "hmt,bthk->bhmk" if weight.dim() == 3 else "mt,bthk->bhmk"
        return torch.einsum(written, weight[..., :max_positions] / self.root, x[:, :max_positions])


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


def attend_in_pieces(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """q (B, T, H, K), k and v (B, H, M, K), seen (B, 1, 1, M) -> (B, T, H, K).

    Pieces of the queries are as rows with the same mixtures: for the gradients of so few keys and values torch's kernels start so
    few programs that each would go through all queries of a row alone.
    """
    max_positions, pieces = q.size(1), -(-q.size(1) // PIECE)
    each = -(-max_positions // pieces)
    if max_positions < pieces * each:
        q = F.pad(q, (0, 0, 0, 0, 0, pieces * each - max_positions))
    q = q.unflatten(1, (pieces, each))
    k, v, seen = (x[:, None].expand(-1, pieces, -1, -1, -1).flatten(0, 1) for x in (k, v, seen))
    found = attend(q.flatten(0, 1).transpose(1, 2), k, v, seen).transpose(1, 2)
    return found.unflatten(0, q.shape[:2]).flatten(1, 2)[:, :max_positions]
