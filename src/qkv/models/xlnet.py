"""XLNet (Yang et al. 2019, "XLNet: Generalized Autoregressive Pretraining for Language Understanding").

An encoder pretrained to predict tokens in random factorisation orders (objectives/permutation.py). Section 2: two streams,
relative positions and segments, and a memory of the positions before a row, all in parts/two_stream.py. Positions are not added
to embeddings, so a text may have any length. XLNet's summary token is the last one of a text; as for all encoders, texts come
with it first, and the model moves it to the end. Departures: no dropout on attention probabilities (bert.py), on encoded
distances and inside feed-forward networks; models narrower than base start with larger weights, see `Xlnet`.
B batch, T length, N predicted positions, M positions of memory, D width.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from qkv.base.rows import IGNORE_INDEX, Rows
from qkv.models.family import Family
from qkv.parts.attention_kinds import only_full
from qkv.parts.dropout import dropout
from qkv.parts.encoder import Encoder, EncoderConfig, TokenPositionEmbedding, initialise
from qkv.parts.heads import ModelWithHeads
from qkv.parts.masks import kernel_attends
from qkv.parts.token_scores import ControlTokens, TokenScores, one_by_one, score_with_head, scored_tokens
from qkv.parts.two_stream import Memory, TwoStreamLayer, encode_distances, restore_order, stream_masks, with_summary_last

StreamStates = tuple[Tensor, Tensor | None]  # h, the content stream (B, T, D), and g, the query stream (B, N, D), if any


class XlnetConfig(EncoderConfig):
    """The shape of an XLNet; the defaults are XLNet base."""

    kind: Literal["xlnet"] = "xlnet"
    width: int = Field(default=768, gt=0, multiple_of=2)  # of the layers; even, since distances are encoded by sines and cosines
    positions: Literal["none"] = "none"  # not in embeddings: attention reads relative distances
    segments: Literal[2] = 2  # attention reads only whether two tokens are in the same segment

    _full_attention_only = field_validator("attention")(only_full)


SIZES: dict[str, dict[str, Any]] = {
    "mini": {"width": 256, "feedforward": 1024, "heads": 4, "layers": 4},
    "base": {},
    "large": {"width": 1024, "feedforward": 4096, "heads": 16, "layers": 24},
}


class XlnetOutput(NamedTuple):
    """Hidden states of both streams, and the new memory."""

    content: Tensor  # (B, T, D)
    query: Tensor | None  # (B, N, D) at predicted positions
    memory: Memory | None  # for the next rows


class XlnetEmbedding(TokenPositionEmbedding):
    """Token embeddings, and the vector w with which the query stream starts at every predicted position."""

    def __init__(self, c: XlnetConfig, vocab: int):
        super().__init__(c, vocab, c.width)
        self.query = nn.Parameter(torch.empty(c.width))


class Xlnet(Encoder):
    """A two-stream encoder; a token attends to its whole text, or to the tokens before it in a factorisation order."""

    fill_head = "language_model"
    sees_masked = False
    summary_last = True  # the model moves a text's first token to its end

    def __init__(self, c: XlnetConfig, vocab: int):
        super().__init__(c, XlnetEmbedding(c, vocab))
        self.layers = nn.ModuleList(
            TwoStreamLayer(c.width, c.feedforward, c.heads, c.activation, c.dropout, c.epsilon) for _ in range(c.layers)
        )
        # Embeddings have no norm and stay as small as they are drawn, and narrow layers shrink the attention output further, so
        # that at first predictions would hardly depend on their context. Larger weights avoid this in models narrower than base.
        deviation = 0.02 * max(1.0, (768 / c.width) ** 0.5)
        initialise(self, deviation)
        for name, vectors in self.named_parameters():
            if name.endswith(("query", ".to_content", ".to_distance", ".to_segment", ".segments")):
                nn.init.trunc_normal_(vectors, std=deviation, a=-2 * deviation, b=2 * deviation)

    def forward(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Tensor:
        rows, segment, source = with_summary_last(rows, segment)
        return restore_order(self.both_streams(rows, segment).content, source)

    def each_layer(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Iterator[Tensor]:
        rows, segment, source = with_summary_last(rows, segment)
        for h, _ in self._layers(rows, segment):
            yield restore_order(h, source)

    def both_streams(
        self,
        rows: Rows,
        segment: Tensor,
        rank: Tensor | None = None,
        predicted: Tensor | None = None,
        memory: Memory | None = None,
        keep: int = 0,
    ) -> XlnetOutput:
        """Run both streams over rows, without moving summary tokens. segment, rank (B, T).

        A position attends to lower ranks, in the content stream to its own rank too. The query stream runs at the positions
        `predicted` (B, N). The new memory holds the last `keep` positions of the old memory and the rows.
        """
        *inputs, (h, g) = self._layers(rows, segment, rank, predicted, memory)
        g = None if g is None else self._dropout(g)
        return XlnetOutput(self._dropout(h), g, _next_memory(inputs, rows, segment, memory, keep))

    def query_stream(
        self, rows: Rows, segment: Tensor, rank: Tensor, predicted: Tensor, memory: Memory | None = None, keep: int = 0
    ) -> tuple[Tensor, Memory | None]:
        """Do the same without the last layer's content stream, which predictions do not need. -> (B, N, D) and the memory."""
        *inputs, (_, g) = self._layers(rows, segment, rank, predicted, memory, query_only=True)
        assert g is not None
        return self._dropout(g), _next_memory(inputs, rows, segment, memory, keep)

    def states_at_masked(self, rows: Rows, masked: Tensor) -> Tensor:
        """Return the query stream at masked positions (B, T), given all others, of rows as for `forward`. -> (masked, D)."""
        rows, segment, source = with_summary_last(rows, None)
        masked = masked.gather(1, source)
        everywhere = torch.arange(masked.size(1), device=masked.device).expand_as(masked)
        return self.query_stream(rows, segment, masked.long(), everywhere)[0][masked]

    def _dropout(self, x: Tensor) -> Tensor:
        return dropout(x, self.config.dropout, self.training)

    def _layers(
        self,
        rows: Rows,
        segment: Tensor,
        rank: Tensor | None = None,
        predicted: Tensor | None = None,
        memory: Memory | None = None,
        query_only: bool = False,
    ) -> Iterator[StreamStates]:
        """Yield both streams after the embeddings and after each layer; with `query_only` the last h is not updated."""
        c, length = self.config, rows.ids.size(1)

        def streams(x: Tensor) -> StreamStates:
            return x[:, :length], None if predicted is None else x[:, length:]

        x = self.embedding(rows, None, None)
        fused = kernel_attends(c.width // c.heads, like=x)
        mask, query_mask = stream_masks(rows.text, segment, rank, predicted, memory, fused)
        keys = length + (0 if memory is None else memory.text.size(1))
        distances = encode_distances(length, keys, c.width, x.device).to(x.dtype)
        if predicted is not None:
            g = self._dropout(self.embedding.query.to(x.dtype).expand(*predicted.shape, c.width))  # type: ignore[operator]
            x = torch.cat([x, g], 1)
        yield streams(x)
        for number, layer in enumerate(self.layers):
            source = None if memory is None else torch.cat([memory.states[number], x[:, :length]], 1)
            if query_only and number + 1 == len(self.layers):
                content = x[:, :length]
                yield content, layer(x[:, length:], content if source is None else source, distances, query_mask)
                return
            x = layer(x, source, distances, mask)
            yield streams(x)


def _next_memory(inputs: list[StreamStates], rows: Rows, segment: Tensor, memory: Memory | None, keep: int) -> Memory | None:
    """Return the last `keep` positions of the memory and of each layer's input; None if `keep` is 0."""
    if not keep:
        return None
    states = [h.detach() for h, _ in inputs]
    if memory is None:
        return Memory(tuple(h[:, -keep:] for h in states), rows.text[:, -keep:], segment[:, -keep:])
    pairs = [*zip(memory.states, states, strict=True), (memory.text, rows.text), (memory.segment, segment)]
    *states, text, segments = (torch.cat(pair, 1)[:, -keep:] for pair in pairs)
    return Memory(tuple(states), text, segments)


def score_left(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each token given the tokens before it, in the text's own order.

    Special tokens have rank 0, so all tokens see them.
    """
    rows, segment, _ = with_summary_last(rows, None)
    labels = scored_tokens(rows, control)
    rank = torch.where(labels == IGNORE_INDEX, 0, rows.position + 1)
    everywhere = torch.arange(rows.ids.size(1), device=rows.ids.device).expand_as(rows.ids)
    xlnet: Any = model.encoder
    return score_with_head(model, "language_model", xlnet.query_stream(rows, segment, rank, everywhere)[0], labels)


def score_each(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each token given all others: it comes last in the factorisation order."""
    rows, segment, _ = with_summary_last(rows, None)
    xlnet: Any = model.encoder

    def hidden_at(position: int) -> Tensor:
        last = (rows.position == position).long()
        return xlnet.query_stream(rows, segment, last, torch.full_like(rows.ids[:, :1], position))[0]

    return one_by_one(model, "language_model", hidden_at, scored_tokens(rows, control))


FAMILY = Family(
    kind="xlnet",
    config=XlnetConfig,
    network=Xlnet,
    sizes=SIZES,
    objectives=("permutation",),
    loads_as="encoder",
    token_scores={"each": score_each, "left": score_left},
    scoring_head="language_model",
)
