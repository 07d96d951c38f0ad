"""Two-stream attention with relative positions, segments and a memory: the layers of XLNet.

Yang et al. 2019 (XLNet), section 2.3: the content stream knows the token at a position, the query stream only the position that
it predicts; both attend to the content stream, with the same weights. Dai et al. 2019 (Transformer-XL), section 3.3: a score is
(q + u)·k for the key's content, plus (q + v)·r for its distance, where r encodes the distance by sines; plus (q + w)·s for
whether query and key are in the same segment (XLNet, section 2.5). The factorisation order is given by ranks: a position attends
to lower ranks, in the content stream to its own rank too.
B batch, T positions, N of them predicted, M positions of memory, S = M + T keys, L = S + T distances, D width, H heads of width
K.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from qkv.base.rows import Rows
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
    """The attention mask of one stream, with what else its scores depend on."""

    mask: Tensor  # (B, 1, T or N, S) True = attend
    other_segment: Tensor  # (B, 1, T or N, S) whether query and key are in different segments
    positions: Tensor | None = None  # (B, N) positions of the queries; None where there is one at every position


class StreamKeys(NamedTuple):
    """Keys and values of both streams."""

    key: Tensor  # (B, H, S, K)
    value: Tensor  # (B, H, S, K)
    distance: Tensor  # (H, K, L)


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

    def project_keys(self, content: Tensor, distances: Tensor) -> StreamKeys:
        """Project keys, values and distances. content (B, S, D), distances (L, D)."""
        key, value = self.kv(content).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return StreamKeys(key, value, self.distance(distances).unflatten(-1, (self.heads, -1)).permute(1, 2, 0))

    def forward(self, x: Tensor, keys: StreamKeys, mask: StreamMask) -> Tensor:
        """x (B, T or N, D) -> the same shape."""
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, K)
        length = keys.key.size(2)
        distant = self._scaled(q, self.to_distance) @ keys.distance  # (B, H, T, L): (q + v)·r / sqrt(K)
        if mask.positions is None:
            by_distance = relative_shift(distant, length)
        else:
            by_distance = pick_distances(distant, mask.positions, length)
        same, other = (self._scaled(q, self.to_segment) @ self.segments.permute(1, 2, 0)).split(1, -1)  # (B, H, T, 1) each
        scores = by_distance + torch.where(mask.other_segment, other, same)
        # Half of the lowest number: kernels multiply it once more, and minus infinity would give NaN where all keys are masked.
        scores = scores.masked_fill(~mask.mask, torch.finfo(scores.dtype).min / 2)
        found = attend((q + self.to_content[:, None]).to(q.dtype), keys.key, keys.value, scores)
        return self.out(found.transpose(1, 2).flatten(-2))

    def _scaled(self, q: Tensor, bias: Tensor) -> Tensor:
        return ((q + bias[:, None]) * q.size(-1) ** -0.5).to(q.dtype)


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

    def forward(
        self,
        h: Tensor,
        g: Tensor | None,
        memory: Tensor | None,
        distances: Tensor,
        masks: tuple[StreamMask | None, StreamMask | None],
    ) -> tuple[Tensor, Tensor | None]:
        """Update content h (B, T, D) and queries g (B, N, D), or None, given memory (B, M, D). -> h and g.

        A stream without a mask stays unchanged.
        """
        keys = self.attention.project_keys(h if memory is None else torch.cat([memory, h], 1), distances)
        content, query = masks
        new_h = h if content is None else self._stream(h, keys, content)
        return new_h, g if g is None or query is None else self._stream(g, keys, query)

    def _stream(self, x: Tensor, keys: StreamKeys, mask: StreamMask) -> Tensor:
        x = self.around_attention(x, lambda y: self.attention(y, keys, mask))
        return self.around_feedforward(x, self.feedforward)


def stream_masks(
    text: Tensor, segment: Tensor, rank: Tensor | None, positions: Tensor | None, memory: Memory | None
) -> tuple[StreamMask, StreamMask | None]:
    """Build the masks of the content stream and of the query stream at some positions (B, N). text, segment, rank (B, T).

    Without ranks every position attends to its whole text.
    """
    rank = torch.zeros_like(text) if rank is None else rank
    before = [] if memory is None else [memory]
    texts = torch.cat([*(past.text for past in before), text], 1)
    segments = torch.cat([*(past.segment for past in before), segment], 1)
    ranks = torch.cat([*(torch.full_like(past.text, MEMORY_RANK) for past in before), rank], 1)

    def stream_mask(own: Tensor, own_segment: Tensor, order: Tensor, strictly: bool) -> StreamMask:
        rule = same_text(own, texts) & in_order(order, ranks, strictly)
        mask = rule.dense(len(own), own.size(1), texts.size(1), text.device)
        other_segment = (own_segment[:, :, None] != segments[:, None])[:, None]
        return StreamMask(mask, other_segment, positions if strictly else None)

    content = stream_mask(text, segment, rank, False)
    if positions is None:
        return content, None
    own, own_segment, order = (values.gather(1, positions) for values in (text, segment, rank))
    return content, stream_mask(own, own_segment, order, True)


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
