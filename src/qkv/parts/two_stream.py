"""Two-stream attention with relative positions, segments and a memory: the layers of XLNet.

Yang et al. 2019 (XLNet), section 2.3: the content stream knows the token at a position, the query stream only the position that
it predicts; both attend to the content stream, with the same weights. Dai et al. 2019 (Transformer-XL), section 3.3: a score is
(q + u)·k for the key's content, plus (q + v)·r for its distance, where r encodes the distance by sines; plus (q + w)·s for
whether query and key are in the same segment (XLNet, section 2.5). The factorisation order is given by ranks: a position attends
to lower ranks, in the content stream to its own rank too.

Both streams are one sequence of queries, the content stream first, so that each weight is used once. A mask knows its engine:
torch's attention with a dense mask, or our kernels on a GPU.
B batch, T positions, N of them predicted, Q = T + N queries, or T, or N, M positions of memory, S = M + T keys, L = S + T
distances, D width, H heads of width K.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.rows import Rows
from qkv.parts import kernels
from qkv.parts.dot_product import RecordedAttention, attend
from qkv.parts.feedforward import FeedForward
from qkv.parts.masks import in_order, same_text
from qkv.parts.residual import Residual

MEMORY_RANK = -1  # everybody attends to memory
SUMMARY = 2  # the segment of a text's summary token


class Memory(NamedTuple):
    """Hidden states of the positions before a row, without gradients."""

    states: tuple[Tensor, ...]  # (B, M, D) each: the input of each layer
    text: Tensor  # (B, M) the text of the row that they belong to
    segment: Tensor  # (B, M) and the segment of it


class StreamMask(NamedTuple):
    """The attention mask of both streams or of one, with what else their scores depend on."""

    mask: Tensor  # (B, 1, Q, S) True = attend
    other_segment: Tensor  # (B, 1, Q, S) whether query and key are in different segments
    positions: Tensor | None = None  # (B, Q) positions of the queries; None where there is one at every position

    def attend(self, x: Tensor, source: Tensor | None, distance: Tensor, layer: "RelativeAttention") -> Tensor:
        """Compute a layer's attention up to its output projection; inputs as for `RelativeAttention`. -> (B, Q, D)."""
        heads = layer.heads
        q = layer.q(x).unflatten(-1, (heads, -1)).transpose(1, 2)  # (B, H, Q, K)
        kv = layer.kv(x[:, : self.mask.size(-1)] if source is None else source)
        key, value = kv.unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
        distance = distance.unflatten(-1, (heads, -1)).permute(1, 2, 0)  # (H, K, L)
        distant = _scaled(q, layer.to_distance) @ distance  # (B, H, Q, L): (q + v)·r / sqrt(K)
        if self.positions is None:
            by_distance = relative_shift(distant, key.size(2))
        else:
            by_distance = pick_distances(distant, self.positions, key.size(2))
        same, other = (_scaled(q, layer.to_segment) @ layer.segments.permute(1, 2, 0)).split(1, -1)  # (B, H, Q, 1) each
        scores = by_distance + torch.where(self.other_segment, other, same)
        # Half of the lowest number: kernels multiply it once more, and minus infinity would give NaN where all keys are masked.
        scores = scores.masked_fill(~self.mask, torch.finfo(scores.dtype).min / 2)
        return attend((q + layer.to_content[:, None]).to(q.dtype), key, value, scores).transpose(1, 2).flatten(-2)


def _scaled(q: Tensor, bias: Tensor) -> Tensor:
    return ((q + bias[:, None]) * q.size(-1) ** -0.5).to(q.dtype)


@dataclass(frozen=True, eq=False)
class FusedStreamMask:
    """The same for our kernels: which keys a query attends to is worked out where its scores are."""

    queries: Tensor  # (4, B, Q), int32: text, 0 = padding; the highest rank that it attends to; segment; position
    keys: Tensor  # (3, B, S), int32: text, rank, segment
    distances: int  # L

    def attend(self, x: Tensor, source: Tensor | None, distance: Tensor, layer: "RelativeAttention") -> Tensor:
        """Compute a layer's attention up to its output projection; inputs as for `RelativeAttention`. -> (B, Q, D)."""
        u, v, q, segment = layer.to_content, layer.to_distance, layer.q.weight, layer.segments[1] - layer.segments[0]
        vectors = kernels.two_stream.with_segment(distance, segment.flatten())
        segment_bias = ((layer.to_segment - v) * segment).sum(-1)  # (q + v)·s is among the products with vectors
        bias = torch.cat([u.flatten(), v.flatten()])
        if source is None:  # one projection for all, though nothing reads keys and values of the query stream
            queries, kv = layer.fused_linear(x, torch.cat([q, q, layer.kv.weight]), F.pad(bias, (0, bias.numel()))), None
        else:
            queries, kv = layer.fused_linear(x, torch.cat([q, q]), bias), layer.kv(source)
        return kernels.two_stream.attend(queries, kv, vectors, segment_bias, self)


class RelativeAttention(RecordedAttention):
    """Transformer-XL's attention over a row and its memory, with segments."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        # torch's own: without a bias, ours would be no faster.
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * width, bias=False)
        self.distance = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.to_content, self.to_distance, self.to_segment = (  # u, v and w
            nn.Parameter(torch.empty(heads, width // heads)) for _ in range(3)
        )
        self.segments = nn.Parameter(torch.empty(2, heads, width // heads))  # the same segment, another one

    def fused_linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Project x, with our own backward pass in training. (B, Q, D) -> (B, Q, 2 D or 4 D)."""
        fused = self.training and torch.is_grad_enabled()
        return kernels.linear.linear(x, weight, bias) if fused else F.linear(x, weight, bias)

    def forward(self, x: Tensor, source: Tensor | None, distances: Tensor, mask: StreamMask | FusedStreamMask) -> Tensor:
        """Attend from x (B, Q, D) to source (B, S, D), or to the first S positions of x. distances (L, D). -> (B, Q, D)."""
        return self.out(mask.attend(x, source, self.distance(distances), self))


def relative_shift(scores: Tensor, keys: int) -> Tensor:
    """Turn scores of distances, from L - T down, into scores of keys: entry T - i + j for query i, key j. (..., T, L) -> (..., T,
    S).

    Each query's keys begin one entry earlier than those of the query before: reading rows as one entry shorter shifts them by
    that.
    """
    queries, distances = scores.shape[-2:]
    rows = scores.reshape(*scores.shape[:-2], distances, queries)[..., 1:, :]
    return rows.reshape(*scores.shape[:-1], distances - 1)[..., :keys]


def pick_distances(scores: Tensor, positions: Tensor, keys: int) -> Tensor:
    """Do the same for queries at some positions (B, N). (B, H, N, L) -> (B, H, N, S)."""
    length = scores.size(-1) - keys
    index = length - positions[..., None] + torch.arange(keys, device=positions.device)  # (B, N, S)
    return scores.gather(-1, index[:, None].expand(-1, scores.size(1), -1, -1))


def encode_distances(queries: int, keys: int, width: int, device: torch.device) -> Tensor:
    """Return sines, then cosines, of the distances from S down to 1 - T. -> (L, D), float32."""
    distance = torch.arange(keys, -queries, -1, device=device).float()
    angles = distance[:, None] * 10000.0 ** (-torch.arange(0, width, 2, device=device).float() / width)
    return torch.cat([angles.sin(), angles.cos()], -1)


class TwoStreamLayer(nn.Module):
    """Attention, then feed-forward, a norm after each; both streams share the weights."""

    def __init__(self, width: int, feedforward: int, heads: int, activation: str, dropout: float, epsilon: float):
        super().__init__()
        self.attention = RelativeAttention(width, heads)
        self.feedforward = FeedForward(width, feedforward, activation)
        self.around_attention = Residual(width, "post", dropout, epsilon)
        self.around_feedforward = Residual(width, "post", dropout, epsilon)

    def forward(self, x: Tensor, source: Tensor | None, distances: Tensor, mask: StreamMask | FusedStreamMask) -> Tensor:
        """Update streams x (B, Q, D), which attend to source (B, S, D), or to the content stream in x. -> (B, Q, D)."""
        x = self.around_attention(x, lambda y: self.attention(y, source, distances, mask))
        return self.around_feedforward(x, self.feedforward)


def stream_masks(
    text: Tensor,
    segment: Tensor,
    rank: Tensor | None,
    positions: Tensor | None,
    memory: Memory | None,
    fused: bool = False,
) -> tuple[Any, Any]:
    """Build the mask of the content stream followed by the query stream at some positions (B, N), and that of the latter alone.

    Without ranks every position attends to its whole text. Without positions there is no query stream. `fused` masks are for our
    kernels. text, segment, rank (B, T).
    """
    rank = torch.zeros_like(text) if rank is None else rank
    before = [] if memory is None else [memory]
    texts = torch.cat([*(past.text for past in before), text], 1)
    segments = torch.cat([*(past.segment for past in before), segment], 1)
    ranks = torch.cat([*(torch.full_like(past.text, MEMORY_RANK) for past in before), rank], 1)
    here = torch.arange(text.size(1), device=text.device).expand_as(text)
    stacked = torch.stack([texts, ranks, segments]).int() if fused else None

    def stream_mask(queries: Tensor, everywhere: bool) -> StreamMask | FusedStreamMask:
        """`queries` (4, B, Q) is as in `FusedStreamMask`; `everywhere`: there is one query at each position, in order."""
        own, highest, own_segment, where = queries
        if stacked is not None:
            return FusedStreamMask(queries.int(), stacked, text.size(1) + texts.size(1))
        rule = same_text(own, texts) & in_order(highest, ranks)
        mask = rule.dense(len(own), own.size(1), texts.size(1), text.device)
        other_segment = (own_segment[:, :, None] != segments[:, None])[:, None]
        return StreamMask(mask, other_segment, None if everywhere else where)

    content = torch.stack([text, rank, segment, here])
    if positions is None:
        return stream_mask(content, True), None
    query = content.gather(2, positions.expand(len(content), -1, -1))
    query[1] -= 1  # a prediction does not see its own rank
    return stream_mask(torch.cat([content, query], 2), False), stream_mask(query, False)


# The summary token


def with_summary_last(rows: Rows, segment: Tensor | None) -> tuple[Rows, Tensor, Tensor]:
    """Move the first token of each text to its end, where XLNet has it. Return rows, segments and where each token came from.

    The summary token is a segment of its own. (B, T) each.
    """
    here = torch.arange(rows.text.size(1), device=rows.text.device).expand_as(rows.text)
    last = nn.functional.pad(rows.text[:, 1:], (0, 1), value=-1) != rows.text
    source = torch.where(rows.text == 0, here, torch.where(last, here - rows.position, here + 1))
    segments = torch.zeros_like(rows.ids) if segment is None else segment.gather(1, source)
    segments = segments.masked_fill(last & (rows.text > 0), SUMMARY)
    return rows._replace(ids=rows.ids.gather(1, source)), segments, source


def restore_order(hidden: Tensor, source: Tensor) -> Tensor:
    """Return hidden states (B, T, D) in the order that the tokens came in."""
    return torch.empty_like(hidden).scatter(1, source[..., None].expand_as(hidden), hidden)
