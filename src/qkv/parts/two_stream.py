"""Two-stream attention with relative places, parts and a memory: what XLNet is made of.

Yang et al. 2019 (XLNet), section 2.3: the content stream knows what stands at a place, the query stream only where it guesses;
both ask the content stream, with the same weights. Dai et al. 2019 (Transformer-XL), section 3.3: a score is
(q + u)·k for what a key is, plus (q + v)·r for how far away it is, r being made of sines of the distance; and plus (q + w)·s for
whether query and key are of the same part of a text (XLNet, section 2.5). Who comes before whom is a rank: places of a lower rank
are seen, by the content stream those of the same rank too.
B batch, T places, N of them to be guessed, M places of memory, S = M + T keys, L = S + T distances, D width, H heads of width K.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from qkv.base.rows import Rows
from qkv.parts.dot_product import RecordedAttention, attend
from qkv.parts.feedforward import FeedForward
from qkv.parts.masks import in_order, same_text
from qkv.parts.residual import Residual

REMEMBERED = -1  # the rank of memory, which everyone may see
SUMMARY = 2  # the part that a text's summary token is: another than those of its words


class Memory(NamedTuple):
    """What is still known of the places before a row, of which nothing is learned any more."""

    states: tuple[Tensor, ...]  # (B, M, D) each: what each layer was given
    text: Tensor  # (B, M) to which text of the row they belong
    segment: Tensor  # (B, M) and to which part of it


class Looks(NamedTuple):
    """What a stream is told of each of its queries and all keys."""

    may: Tensor  # (B, 1, T or N, S) whether the one may look at the other
    apart: Tensor  # (B, 1, T or N, S) whether they belong to different parts of their text
    where: Tensor | None = None  # (B, N) at which places queries stand; None where there is one at every place


class Keys(NamedTuple):
    """What queries look at."""

    key: Tensor  # (B, H, S, K)
    value: Tensor  # (B, H, S, K)
    distance: Tensor  # (H, K, L)


class RelativeAttention(RecordedAttention):
    """Attention over a row and what lies before it, which knows distances and parts."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        # torch's own: without a bias, ours would be no faster.
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * width, bias=False)
        self.distance = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.to_content, self.to_distance, self.to_parts = (  # u, v and w
            nn.Parameter(torch.empty(heads, width // heads)) for _ in range(3)
        )
        self.parts = nn.Parameter(torch.empty(2, heads, width // heads))  # the same part, another part

    def look_up(self, known: Tensor, distances: Tensor) -> Keys:
        """Keys and values of both streams. known (B, S, D), distances (L, D)."""
        key, value = self.kv(known).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return Keys(key, value, self.distance(distances).unflatten(-1, (self.heads, -1)).permute(1, 2, 0))

    def forward(self, x: Tensor, keys: Keys, looks: Looks) -> Tensor:
        """x (B, T or N, D) -> the same shape."""
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, K)
        scores = self._by_distance(q, keys, looks.where) + self._by_part(q, looks.apart)
        # Half of the lowest number: kernels multiply it once more, and where all is forbidden infinity would be no number.
        scores = scores.masked_fill(~looks.may, torch.finfo(scores.dtype).min / 2)
        found = attend((q + self.to_content[:, None]).to(q.dtype), keys.key, keys.value, scores)
        return self.out(found.transpose(1, 2).flatten(-2))

    def _by_distance(self, q: Tensor, keys: Keys, where: Tensor | None) -> Tensor:
        """(q + v)·r / sqrt(K) of each query and key. -> (B, H, T, S)."""
        every = self._scaled(q, self.to_distance) @ keys.distance  # (B, H, T, L)
        seen = keys.key.size(2)
        return slid(every, seen) if where is None else picked(every, where, seen)

    def _by_part(self, q: Tensor, apart: Tensor) -> Tensor:
        """(q + w)·s / sqrt(K) of each query and key. -> (B, H, T, S)."""
        same, other = (self._scaled(q, self.to_parts) @ self.parts.permute(1, 2, 0)).split(1, -1)  # (B, H, T, 1) each
        return torch.where(apart, other, same)

    def _scaled(self, q: Tensor, bias: Tensor) -> Tensor:
        return ((q + bias[:, None]) * q.size(-1) ** -0.5).to(q.dtype)


def slid(scores: Tensor, seen: int) -> Tensor:
    """Scores of all distances, from L - T down, as scores of keys: at query i and key j that of T - i + j. (..., T, L) -> S.

    In memory each query's keys begin one number earlier than the last one's: a row that is one number shorter slides by that.
    """
    asked, distances = scores.shape[-2:]
    rows = scores.reshape(*scores.shape[:-2], distances, asked)[..., 1:, :]
    return rows.reshape(*scores.shape[:-1], distances - 1)[..., :seen]


def picked(scores: Tensor, where: Tensor, seen: int) -> Tensor:
    """The same for queries that stand at some places (B, N). (B, H, N, L) -> (B, H, N, S)."""
    asked = scores.size(-1) - seen
    which = asked - where[..., None] + torch.arange(seen, device=where.device)  # (B, N, S)
    return scores.gather(-1, which[:, None].expand(-1, scores.size(1), -1, -1))


def encoded_distances(asked: int, seen: int, width: int, device: torch.device) -> Tensor:
    """Sines, then cosines, of the distances from S down to 1 - T. -> (L, D), float32."""
    distance = torch.arange(seen, -asked, -1, device=device).float()
    angles = distance[:, None] * 10000.0 ** (-torch.arange(0, width, 2, device=device).float() / width)
    return torch.cat([angles.sin(), angles.cos()], -1)


class TwoStreamLayer(nn.Module):
    """Attention, then feed-forward, a norm after each; the same weights for both streams."""

    def __init__(self, width: int, feedforward: int, heads: int, activation: str, dropout: float, epsilon: float):
        super().__init__()
        self.attention = RelativeAttention(width, heads)
        self.feed = FeedForward(width, feedforward, activation)
        self.around_attention = Residual(width, "post", dropout, epsilon)
        self.around_feed = Residual(width, "post", dropout, epsilon)

    def forward(
        self, h: Tensor, g: Tensor | None, memory: Tensor | None, distances: Tensor, looks: tuple[Looks | None, Looks | None]
    ) -> tuple[Tensor, Tensor | None]:
        """Content h (B, T, D), queries g (B, N, D) where something is to be guessed, memory (B, M, D) -> h and g.

        A stream that is told nothing stays as it was.
        """
        keys = self.attention.look_up(h if memory is None else torch.cat([memory, h], 1), distances)
        content, query = looks
        new_h = h if content is None else self._stream(h, keys, content)
        return new_h, g if g is None or query is None else self._stream(g, keys, query)

    def _stream(self, x: Tensor, keys: Keys, looks: Looks) -> Tensor:
        x = self.around_attention(x, lambda y: self.attention(y, keys, looks))
        return self.around_feed(x, self.feed)


def looks_of(
    text: Tensor, segment: Tensor, rank: Tensor | None, where: Tensor | None, memory: Memory | None
) -> tuple[Looks, Looks | None]:
    """What the content stream is told, and the query stream at some places (B, N). text, segment, rank (B, T).

    Without ranks every place sees its whole text.
    """
    rank = torch.zeros_like(text) if rank is None else rank
    before = [] if memory is None else [memory]
    texts = torch.cat([*(past.text for past in before), text], 1)
    segments = torch.cat([*(past.segment for past in before), segment], 1)
    ranks = torch.cat([*(torch.full_like(past.text, REMEMBERED) for past in before), rank], 1)

    def looks(own: Tensor, part: Tensor, order: Tensor, strictly: bool) -> Looks:
        rule = same_text(own, texts) & in_order(order, ranks, strictly)
        may = rule.dense(len(own), own.size(1), texts.size(1), text.device)
        return Looks(may, (part[:, :, None] != segments[:, None])[:, None], where if strictly else None)

    content = looks(text, segment, rank, False)
    if where is None:
        return content, None
    own, part, order = (values.gather(1, where) for values in (text, segment, rank))
    return content, looks(own, part, order, True)


# The summary token


def with_summary_last(rows: Rows, segment: Tensor | None) -> tuple[Rows, Tensor, Tensor]:
    """Rows whose texts end with their first token, as XLNet has them; their parts, and where each token came from. (B, T) each.

    The summary is a part of its own.
    """
    here = torch.arange(rows.text.size(1), device=rows.text.device).expand_as(rows.text)
    last = nn.functional.pad(rows.text[:, 1:], (0, 1), value=-1) != rows.text
    source = torch.where(rows.text == 0, here, torch.where(last, here - rows.position, here + 1))
    parts = torch.zeros_like(rows.ids) if segment is None else segment.gather(1, source)
    parts = parts.masked_fill(last & (rows.text > 0), SUMMARY)
    return rows._replace(ids=rows.ids.gather(1, source)), parts, source


def put_back(hidden: Tensor, source: Tensor) -> Tensor:
    """Hidden states (B, T, D) in the order that the tokens came in."""
    return torch.empty_like(hidden).scatter(1, source[..., None].expand_as(hidden), hidden)
