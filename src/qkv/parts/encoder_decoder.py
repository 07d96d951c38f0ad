"""The base of the Transformer and of T5: encoding, teacher-forced decoding, and decoding with caches.

"Attention Is All You Need", section 3.1. A model's constructor builds the embeddings, position schemes and layers.

B batch, S source length, T target length, D width, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.rows import Rows, padded_rows
from qkv.parts.attention import CrossAttention, SelfAttention
from qkv.parts.cache import KVCache, LayerCache
from qkv.parts.context import AttentionContext
from qkv.parts.cross_memory import cross_memory
from qkv.parts.decoding_weights import IncrementalDecoder
from qkv.parts.dot_product import additive, recording
from qkv.parts.dropout import dropout
from qkv.parts.feedforward import FeedForward
from qkv.parts.masks import AttentionMask, DenseMask, KeysValues, packed_mask
from qkv.parts.positions import PositionalEncoding
from qkv.parts.relative import PositionScheme
from qkv.parts.residual import Residual
from qkv.parts.stepping import DecoderState, left_padded_step, token_logits


class DecoderLayer(nn.Module):
    """Self-attention over the past, cross-attention over the source, feed-forward, a residual around each."""

    def __init__(
        self,
        attention: SelfAttention,
        cross: CrossAttention,
        width: int,
        feedforward: int,
        activation: str,
        norm: str,
        dropout: float,
        epsilon: float = 1e-5,
        lean: bool = False,
    ):
        """`lean` is for T5: no biases, and RMS norms."""
        super().__init__()
        self.attention, self.cross = attention, cross
        self.feedforward = FeedForward(width, feedforward, activation, bias=not lean)
        self.around_attention = Residual(width, norm, dropout, epsilon, lean)
        self.around_cross = Residual(width, norm, dropout, epsilon, lean)
        self.around_feedforward = Residual(width, norm, dropout, epsilon, lean)

    def forward(
        self,
        x: Tensor,
        memory: KeysValues,
        context: AttentionContext,
        source_mask: AttentionMask,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """x (B, T, D) -> (B, T, D). The memory is the encoder's states, (B, S, D); in decoding, with a cache, it is projected."""
        keys_values = memory if cache else self.cross.project_memory(memory, source_mask)  # type: ignore[arg-type]
        x = self.around_attention(x, lambda y: self.attention(y, context, cache))
        x = self.around_cross(x, lambda y: self.cross(y, keys_values, source_mask))
        return self.around_feedforward(x, self.feedforward)


class EncoderDecoder(IncrementalDecoder):
    """An encoder-decoder over source and target rows; `start` and the state's `step` decode with caches."""

    config: Any  # has width and dropout
    joins_source_and_target = False  # whether the network reads both as one text
    head_width: int
    longest: int | None = None  # the longest text in tokens; None without a limit
    target_embedding: nn.Embedding
    source_embedding: nn.Embedding
    output: nn.Linear
    source_positions: PositionalEncoding
    target_positions: PositionalEncoding
    source_position_scheme: PositionScheme
    target_position_scheme: PositionScheme
    encoder: nn.ModuleList
    decoder: nn.ModuleList
    encoder_norm: nn.Module
    decoder_norm: nn.Module

    def forward(self, source: Rows, target: Rows) -> Tensor:
        """Return the decoder's hidden states under teacher forcing. source (B, S), target (B, T) -> (B, T, D)."""
        memory = self.encode(source)
        x = self._embed(self.target_embedding, self.target_positions, target)
        mask = packed_mask(target.text, target.text, self.head_width, like=x, causal=True)
        context = self.target_position_scheme.context_of_rows(mask, target, like=x)
        source_mask = packed_mask(target.text, source.text, self.head_width, like=x)
        for layer in self.decoder:
            x = layer(x, memory, context, source_mask)
        return self.decoder_norm(x)

    def encode(self, source: Rows) -> Tensor:
        """Return the encoder's hidden states. source (B, S) -> (B, S, D)."""
        x = self._embed(self.source_embedding, self.source_positions, source)
        context = self.source_position_scheme.context_of_rows(self.encoder_mask(source.text, like=x), source, like=x)
        for layer in self.encoder:
            x = layer(x, context)
        return self.encoder_norm(x)

    def encoder_mask(self, text: Tensor, like: Tensor) -> AttentionMask:
        """Build the mask of all encoder layers: full attention unless a model overrides it. text (B, S)."""
        return packed_mask(text, text, self.head_width, like)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of every target token. (..., D) -> (..., V)."""
        return self.output(hidden)

    @property
    def embedding_scale(self) -> float:
        """The factor of token embeddings ("Attention Is All You Need", section 3.4)."""
        return self.config.width**0.5

    def _embed(self, embedding: nn.Module, positions: PositionalEncoding, rows: Rows) -> Tensor:
        vectors = embedding(rows.ids)
        x = (vectors * self.embedding_scale + positions.of_rows(rows)).to(vectors.dtype)
        return dropout(x, self.config.dropout, self.training)

    def start(
        self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False, head: Tensor | None = None
    ) -> DecoderState:
        """Encode padded sources (B, S) and allocate caches for `max_length` target tokens each; `head` gives dependency heads."""
        model = self.in_compute_dtype()
        with torch.autocast(ids.device.type, enabled=False):
            return model._prefill(ids, keep, max_length, attention, head)

    def _prefill(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool, head: Tensor | None) -> DecoderState:
        if ids.is_cuda and not attention:  # fused attention is fastest with an aligned mask
            padding = (0, -ids.size(1) % 8)
            ids, keep, head = F.pad(ids, padding), F.pad(keep, padding), None if head is None else F.pad(head, padding)
        memory = self.encode(padded_rows(ids, keep, head))
        projected = [layer.cross.kv(memory) for layer in self.decoder]  # type: ignore[operator, union-attr]
        cache = KVCache(max_length)
        positions = torch.arange(min(max_length, self.longest or max_length), device=ids.device)
        return DecoderState(
            run=self._decode_step,
            cache=cache,
            layer_caches=[LayerCache(cache) for _ in self.decoder],
            rows=len(ids),
            memory=cross_memory(projected, keep, self.decoder[0].cross.heads, recorded=attention),  # type: ignore[union-attr, arg-type]
            positions=self.target_positions(positions[None])[0].to(memory.dtype),
            want_attention=attention,
            fused=self.target_position_scheme.fused,
        )

    def _decode_step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Return the logits (R, V) that follow the newest tokens (R,)."""
        state.cache.advance(len(tokens), tokens.device)
        vectors = self.target_embedding(tokens.view(state.sources, -1))  # (N, W, D)
        if state.shift is None:
            x = state.cache.at_newest(state.positions).add(vectors, alpha=self.embedding_scale)
            context: AttentionContext = self.target_position_scheme.decode_context(state.cache, like=x)
        else:
            shift, scheme = state.shift.repeat_interleave(vectors.size(1)), self.target_position_scheme
            mask, position, keys = left_padded_step(state.cache, shift)
            at = F.embedding(position.view(vectors.shape[:2]).clamp(max=len(state.positions) - 1), state.positions)
            x = at.add(vectors, alpha=self.embedding_scale)
            context = scheme.context(DenseMask(additive(mask, x.dtype)), position, keys, like=x)
            context = context.decode_step(shift, scheme.fused, vectors.size(1))
        source_mask = state.memory.mask
        for layer, cache, memory in zip(self.decoder, state.layer_caches, state.memory.layers, strict=True):
            if state.want_attention and layer is self.decoder[-1]:
                with recording() as weights:
                    x = layer(x, memory, context, source_mask, cache)
                state.attention = weights[-1].mean(1).flatten(0, 1).float()
            else:
                x = layer(x, memory, context, source_mask, cache)
        return token_logits(self.output, self.decoder_norm(x).flatten(0, 1))
