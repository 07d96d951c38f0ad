"""XLNet (Yang et al. 2019, "XLNet: Generalized Autoregressive Pretraining for Language Understanding").

An encoder that is pretrained to guess tokens in any order (objectives/permutation.py): two streams, relative places and parts, a
memory of what lies before a row, section 2; all of that is in parts/two_stream.py. Nothing is added to embeddings, and a text
may be of any length. A text's summary token is its last one; texts come with their first token in its place, as to all encoders,
and are turned round here. As in BERT (bert.py), attention probabilities are not dropped out; nor are distances and the inside of
the feed-forward network. What is narrower than base begins with larger weights, see `Xlnet`.
B batch, T length, N places to be guessed, M places of memory, D width.
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
from qkv.parts.token_scores import ControlTokens, TokenScores, one_by_one, score_with_head, scored_tokens
from qkv.parts.two_stream import Memory, TwoStreamLayer, encode_distances, restore_order, stream_masks, with_summary_last

Streams = tuple[Tensor, Tensor | None]  # content (B, T, D), and queries (B, N, D) where there are some


class XlnetConfig(EncoderConfig):
    """The shape of an XLNet; the defaults are XLNet base."""

    kind: Literal["xlnet"] = "xlnet"
    width: int = Field(default=768, gt=0, multiple_of=2)  # of the layers: half of it are sines of a distance, half cosines
    positions: Literal["none"] = "none"  # attention is told all distances, and embeddings nothing
    segments: Literal[2] = 2  # only whether two tokens are of the same part is told

    _all_of_the_text = field_validator("attention")(only_full)


SIZES: dict[str, dict[str, Any]] = {
    "mini": {"width": 256, "feedforward": 1024, "heads": 4, "layers": 4},
    "base": {},
    "large": {"width": 1024, "feedforward": 4096, "heads": 16, "layers": 24},
}


class Reading(NamedTuple):
    """What an XLNet makes of rows."""

    content: Tensor  # (B, T, D)
    query: Tensor | None  # (B, N, D) at the places to be guessed
    memory: Memory | None  # for the rows that follow


class XlnetEmbedding(TokenPositionEmbedding):
    """What a token is; and one vector for whatever is to be guessed."""

    def __init__(self, c: XlnetConfig, vocab: int):
        super().__init__(c, vocab, c.width)
        self.query = nn.Parameter(torch.empty(c.width))


class Xlnet(Encoder):
    """Reads rows of texts; every token sees its whole text, or what comes before it in an order."""

    fill_head = "words"
    sees_masked = False
    summary_last = True  # inside, a text's first token is moved to its end

    def __init__(self, c: XlnetConfig, vocab: int):
        super().__init__(c, XlnetEmbedding(c, vocab))
        self.layers = nn.ModuleList(
            TwoStreamLayer(c.width, c.feedforward, c.heads, c.activation, c.dropout, c.epsilon) for _ in range(c.layers)
        )
        # With no norm over them, embeddings are as small as they are drawn, and of what is found a narrow layer makes still less:
        # a guess would begin without anything of its context. So what is narrower than base begins with larger weights.
        deviation = 0.02 * max(1.0, (768 / c.width) ** 0.5)
        initialise(self, deviation)
        for name, vectors in self.named_parameters():
            if name.endswith(("query", ".to_content", ".to_distance", ".to_segment", ".segments")):
                nn.init.trunc_normal_(vectors, std=deviation, a=-2 * deviation, b=2 * deviation)

    def forward(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Tensor:
        rows, segment, source = with_summary_last(rows, segment)
        return restore_order(self.read(rows, segment).content, source)

    def each_layer(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Iterator[Tensor]:
        rows, segment, source = with_summary_last(rows, segment)
        for h, _ in self._layers(rows, segment):
            yield restore_order(h, source)

    def read(
        self,
        rows: Rows,
        segment: Tensor,
        rank: Tensor | None = None,
        where: Tensor | None = None,
        memory: Memory | None = None,
        keep: int = 0,
    ) -> Reading:
        """Rows as they stand, with the summary wherever it is. segment, rank (B, T), where (B, N).

        A place of a rank sees those of lower ranks; as content those of its own rank too, but at places `where` something is to
        be guessed without them. The new memory has the last `keep` places of the old one and of the rows.
        """
        *below, (h, g) = self._layers(rows, segment, rank, where, memory)
        g = None if g is None else self._dropped(g)
        return Reading(self._dropped(h), g, _remembered(below, rows, segment, memory, keep))

    def guess(
        self, rows: Rows, segment: Tensor, rank: Tensor, where: Tensor, memory: Memory | None = None, keep: int = 0
    ) -> tuple[Tensor, Memory | None]:
        """The query stream (B, N, D) and the memory alone: the last layer's content, which nobody sees, is not computed."""
        *below, (_, g) = self._layers(rows, segment, rank, where, memory, only_guess=True)
        assert g is not None
        return self._dropped(g), _remembered(below, rows, segment, memory, keep)

    def states_at_masked(self, rows: Rows, masked: Tensor) -> Tensor:
        """Return the query stream at masked positions (B, T), given all others, of rows as for `forward`. -> (masked, D)."""
        hidden = masked
        rows, segment, source = with_summary_last(rows, None)
        hidden = hidden.gather(1, source)
        where = torch.arange(hidden.size(1), device=hidden.device).expand_as(hidden)
        return self.guess(rows, segment, hidden.long(), where)[0][hidden]

    def _dropped(self, x: Tensor) -> Tensor:
        return dropout(x, self.config.dropout, self.training)

    def _layers(
        self,
        rows: Rows,
        segment: Tensor,
        rank: Tensor | None = None,
        where: Tensor | None = None,
        memory: Memory | None = None,
        only_guess: bool = False,
    ) -> Iterator[Streams]:
        """Both streams after the embeddings and after each layer."""
        c = self.config
        content, query = stream_masks(rows.text, segment, rank, where, memory)
        h, g = self.embedding(rows, None, None), None
        if where is not None:
            g = self._dropped(self.embedding.query.to(h.dtype).expand(*where.shape, c.width))  # type: ignore[operator]
        distances = encode_distances(h.size(1), content.mask.size(-1), c.width, h.device).to(h.dtype)
        yield h, g
        for number, layer in enumerate(self.layers):
            last = only_guess and number + 1 == len(self.layers)
            before = None if memory is None else memory.states[number]
            h, g = layer(h, g, before, distances, (None if last else content, query))
            yield h, g


def _remembered(below: list[Streams], rows: Rows, segment: Tensor, memory: Memory | None, keep: int) -> Memory | None:
    """What layers were given, and in the memory before, of the last `keep` places; None where none are to be kept."""
    if not keep:
        return None
    given = [h.detach() for h, _ in below]
    if memory is None:
        return Memory(tuple(x[:, -keep:] for x in given), rows.text[:, -keep:], segment[:, -keep:])
    pairs = [*zip(memory.states, given, strict=True), (memory.text, rows.text), (memory.segment, segment)]
    *states, text, parts = (torch.cat(pair, 1)[:, -keep:] for pair in pairs)
    return Memory(tuple(states), text, parts)


def score_left(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each token given those before it: the factorisation order is the text's own. Only the text's end is known before."""
    rows, segment, _ = with_summary_last(rows, None)
    labels = scored_tokens(rows, control)
    rank = torch.where(labels == IGNORE_INDEX, 0, rows.position + 1)
    where = torch.arange(rows.ids.size(1), device=rows.ids.device).expand_as(rows.ids)
    xlnet: Any = model.encoder
    return score_with_head(model, "words", xlnet.guess(rows, segment, rank, where)[0], labels)


def score_each(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each token given all others: it is the last one of its order."""
    rows, segment, _ = with_summary_last(rows, None)
    xlnet: Any = model.encoder

    def hidden_at(position: int) -> Tensor:
        last = (rows.position == position).long()
        return xlnet.guess(rows, segment, last, torch.full_like(rows.ids[:, :1], position))[0]

    return one_by_one(model, "words", hidden_at, scored_tokens(rows, control))


FAMILY = Family(
    kind="xlnet",
    config=XlnetConfig,
    network=Xlnet,
    sizes=SIZES,
    objectives=("permutation",),
    loads_as="encoder",
    token_scores={"each": score_each, "left": score_left},
    scoring_head="words",
)
