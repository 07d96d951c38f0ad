"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017): encoder-decoder, for translation and any transduction.

The defaults are the paper's base model, exactly. Options beyond it: pre-norm (with a final norm, as it needs), other schemes
of positions, GELU or SwiGLU, separate embeddings, encoder and decoder of different depth, and an encoder whose attention is not
quadratic.
B batch, S source length, T target length, D width, V vocabulary.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows, padded_rows
from qkv.parts.attention import CrossAttention, SelfAttention, init_attention, recording, who_may_look
from qkv.parts.attention_kinds import AttentiveConfig, WhoLooks, make_attention
from qkv.parts.cache import Cache, Past
from qkv.parts.dropout import dropout
from qkv.parts.encoder import EncoderLayer
from qkv.parts.feedforward import FeedForward
from qkv.parts.masks import Packed, addable
from qkv.parts.positions import Scheme, make_positions, placed
from qkv.parts.relative import Sight, make_relation
from qkv.parts.residual import LastNorm, Residual
from qkv.parts.stepping import DecoderState, computed_in, word_scores
from qkv.parts.twin import forget, twin


class TransformerConfig(AttentiveConfig):
    """The shape of a Transformer; vocabulary sizes come from the tokenizers."""

    kind: Literal["transformer"] = "transformer"
    width: int = Field(default=512, gt=0)  # of embeddings and layers: the paper's d_model
    inner: int = Field(default=2048, gt=0)  # of the middle of the feed-forward network: d_ff
    heads: int = Field(default=8, gt=0)  # attention heads; must divide the width
    encoder_layers: int = Field(default=6, gt=0)
    decoder_layers: int = Field(default=6, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)  # on each sub-layer's output and on embeddings + positions
    norm: Literal["post", "pre"] = "post"  # post is the paper's
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    positions: Scheme = "sinusoidal"
    tied: Literal["all", "target", "none"] = "all"  # which embeddings share the output's weights; all needs one vocabulary


SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "big": {"width": 1024, "inner": 4096, "heads": 16, "dropout": 0.3},
}


class DecoderLayer(nn.Module):
    """Self-attention over the past, cross-attention over the source, feed-forward, a residual around each."""

    def __init__(self, c: TransformerConfig):
        super().__init__()
        self.attention = SelfAttention(c.width, c.heads, c.clipping)
        self.cross = CrossAttention(c.width, c.heads)
        self.feed = FeedForward(c.width, c.inner, c.activation)
        self.around_attention = Residual(c.width, c.norm, c.dropout)
        self.around_cross = Residual(c.width, c.norm, c.dropout)
        self.around_feed = Residual(c.width, c.norm, c.dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | tuple[Tensor, Tensor],
        may: Sight,
        may_source: Tensor | Packed,
        cache: Cache | None = None,
    ) -> Tensor:
        x = self.around_attention(x, lambda y: self.attention(y, may, cache))
        x = self.around_cross(x, lambda y: self.cross(y, memory, may_source))
        return self.around_feed(x, self.feed)


class Transformer(nn.Module):
    """Reads source rows, predicts target rows; `start` and `step` decode with caches."""

    def __init__(self, c: TransformerConfig, source_vocab: int, target_vocab: int):
        super().__init__()
        if c.width % c.heads:
            raise ConfigError(f"model.width {c.width} does not split into {c.heads} heads; choose heads that divide it")
        if c.tied == "all" and source_vocab != target_vocab:
            raise ConfigError("model.tied=all needs one vocabulary for both sides; say model.tied=target for two")
        self.config = c
        self.alone = c.attention.alone  # whether rows must hold one text each
        self.head_width = c.width // c.heads
        self.target_embedding = nn.Embedding(target_vocab, c.width)
        self.source_embedding = self.target_embedding if c.tied == "all" else nn.Embedding(source_vocab, c.width)
        self.output = nn.Linear(c.width, target_vocab, bias=False)
        self.source_positions = make_positions(c.positions, c.width, c.places)
        self.target_positions = make_positions(c.treeless, c.width, c.places, known_length=False)
        self.source_relation = make_relation(c.positions, c.width, c.heads, c.distance)
        self.relation = make_relation(c.treeless, c.width, c.heads, c.distance)
        self.looking = WhoLooks(c)
        self.encoder = nn.ModuleList(
            EncoderLayer(make_attention(c), c.width, c.inner, c.activation, c.norm, c.dropout) for _ in range(c.encoder_layers)
        )
        self.decoder = nn.ModuleList(DecoderLayer(c) for _ in range(c.decoder_layers))
        last = LastNorm if c.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = last(c.width), last(c.width)
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            init_attention(module)
            if isinstance(module, FeedForward):
                for linear in (module.up, module.down):
                    nn.init.xavier_uniform_(linear.weight)
                    nn.init.zeros_(linear.bias)
            # Scaled by sqrt(D) on the way in, so that they have the size of the positions; unscaled, they suit the output.
            if module in (self.source_embedding, self.target_embedding, self.output):
                nn.init.normal_(module.weight, std=self.config.width**-0.5)
        if self.config.tied != "none":
            self.output.weight = self.target_embedding.weight

    def forward(self, source: Rows, target: Rows) -> Tensor:
        """What the decoder knows at each target place, teacher-forced. -> (B, T, D)."""
        memory = self.encode(source)
        x = self._embed(self.target_embedding, self.target_positions, target)
        looking = who_may_look(target.text, target.text, self.head_width, like=x, causal=True)
        may = self.relation.of_rows(looking, target, like=x)
        may_source = who_may_look(target.text, source.text, self.head_width, like=x)
        for layer in self.decoder:
            x = layer(x, layer.cross.look_up_packed(memory, may_source), may, may_source)  # type: ignore[operator, union-attr]
        return self.decoder_norm(x)

    def encode(self, source: Rows) -> Tensor:
        """What the encoder knows at each source place. -> (B, S, D)."""
        x = self._embed(self.source_embedding, self.source_positions, source)
        may = self.source_relation.of_rows(self.looking(source.text, like=x), source, like=x)
        for layer in self.encoder:
            x = layer(x, may)
        return self.encoder_norm(x)

    @property
    def longest(self) -> int | None:
        """Places a text may have; None where there is no limit."""
        return self.config.longest

    def words(self, hidden: Tensor) -> Tensor:
        """Scores of every target word. (..., D) -> (..., V)."""
        return self.output(hidden)

    def _embed(self, embedding: nn.Module, positions: nn.Module, rows: Rows) -> Tensor:
        vectors = embedding(rows.ids)
        x = (vectors * self.config.width**0.5 + placed(positions, rows)).to(vectors.dtype)
        return dropout(x, self.config.dropout, self.training)

    def train(self, mode: bool = True) -> "Transformer":
        """As for every module; what was prepared for decoding is let go, since weights may change now."""
        forget(self)
        return super().train(mode)

    def start(self, ids: Tensor, keep: Tensor, longest: int, attention: bool = False, head: Tensor | None = None) -> DecoderState:
        """Encode padded sources (B, S), with heads where they have trees, and make room for `longest` target words each."""
        dtype = computed_in(self.output.weight)
        with torch.autocast(ids.device.type, enabled=False):
            return twin(self, dtype)._started(ids, keep, longest, attention, head)

    def _started(self, ids: Tensor, keep: Tensor, longest: int, attention: bool, head: Tensor | None) -> DecoderState:
        if ids.is_cuda and not attention:  # fused attention adds a mask fastest if it is aligned
            more = (0, -ids.size(1) % 8)
            ids, keep, head = F.pad(ids, more), F.pad(keep, more), None if head is None else F.pad(head, more)
        memory = self.encode(padded_rows(ids, keep, head))
        past = Past(longest)
        places = torch.arange(min(longest, self.longest or longest), device=ids.device)
        return DecoderState(
            run=self._stepped,
            past=past,
            caches=[Cache(past) for _ in self.decoder],
            memories=[layer.cross.look_up(memory) for layer in self.decoder],  # type: ignore[operator, union-attr]
            may_source=addable(keep[:, None, None, :], memory.dtype),
            places=self.target_positions(places[None])[0].to(memory.dtype),
            want_attention=attention,
            fused=self.relation.fused,
        )

    def step(self, words: Tensor, state: DecoderState) -> Tensor:
        """The last word of each hypothesis (R,) in, scores of the next one (R, V) out, in float32."""
        if torch.is_autocast_enabled(words.device.type):
            with torch.autocast(words.device.type, enabled=False):
                return state.step(words)
        return state.step(words)

    def _stepped(self, words: Tensor, state: DecoderState) -> Tensor:
        past = state.past
        past.advance(len(words), words.device)
        vectors = self.target_embedding(words.view(state.sources, -1))  # (N, W, D)
        x = past.newest(state.places).add(vectors, alpha=self.config.width**0.5)
        may = self.relation.newest(past, like=x)
        for layer, cache, memory in zip(self.decoder, state.caches, state.memories, strict=True):
            if state.want_attention and layer is self.decoder[-1]:
                with recording() as weights:
                    x = layer(x, memory, may, state.may_source, cache)
                state.attention = weights[-1].mean(1).flatten(0, 1).float()
            else:
                x = layer(x, memory, may, state.may_source, cache)
        return word_scores(self.output, self.decoder_norm(x).flatten(0, 1))
