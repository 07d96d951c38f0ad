"""A Transformer as ONNX graphs; the keys and values of the tokens so far go from step to step.

The masks of attention patterns, which only encoders have, are dense: the result is that of our own engine, the cost that of full
attention. The graph chooses BigBird's random blocks from random numbers that are saved in it.
B batch, S source length, T tokens so far, D width, H heads, K head width, L decoder layers, V vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from qkv.base.rows import Rows, padded_rows
from qkv.interop.onnx.graphs import FLOAT, NEXT, Graphs, Value, position_encoding_at
from qkv.models.transformer import Transformer
from qkv.parts.attention_kinds import BigBird, Linformer, Window
from qkv.parts.context import AttentionContext
from qkv.parts.dot_product import attention_weights, join_heads, recording, split_heads
from qkv.parts.linformer import LinformerMask
from qkv.parts.masks import AttentionMask, DenseMask
from qkv.parts.positions import PositionalEncoding
from qkv.parts.residual import Residual
from qkv.parts.trees import MAX_EXPORTED_POSITIONS


def transformer_graphs(model: Transformer) -> Graphs:
    """Describe the graphs of a Transformer."""
    c = model.config
    memory = {"memory": Value(FLOAT, "B L 2 H S K", "keys and values of the source for each decoder layer")}
    state = {"past": Value(FLOAT, "B L 2 H T K", "keys and values of the tokens so far, none at first")}
    attention = Value(FLOAT, "B L S", "attention of each layer to each source token, mean over its heads")
    sizes = {"L": c.decoder_layers, "H": c.heads, "K": c.width // c.heads, "V": model.target_embedding.num_embeddings}
    encoder = TransformerEncoderGraph(model)
    return Graphs(encoder, TransformerDecoderGraph(model), sizes, memory, state, attention, encoder.longest, c.reads_trees)


class TransformerEncoderGraph(nn.Module):
    """ids, keep, and head where there are trees -> memory and an empty past."""

    draws: Tensor | None

    def __init__(self, model: Transformer):
        super().__init__()
        self.model: Any = model
        attention = model.config.attention
        self.pattern = attention.pattern if isinstance(attention, Window | BigBird) else None
        self.longest, draws = model.longest, None
        if model.config.reads_trees:  # the graph counts steps in trees up to a number
            self.longest = self.longest or MAX_EXPORTED_POSITIONS
        if self.pattern is not None and self.pattern.random_blocks:
            self.longest = self.longest or MAX_EXPORTED_POSITIONS
            draws = self.pattern.random_numbers(self.longest, torch.device("cpu"))
        self.register_buffer("draws", draws)

    def forward(self, ids: Tensor, keep: Tensor, head: Tensor | None = None) -> dict[str, Tensor]:
        m, rows = self.model, padded_rows(ids, keep, head)
        x = _embed(m, m.source_embedding, m.source_positions, rows)
        context = m.source_position_scheme.context_of_rows(self._mask(keep, rows.position), rows, x)
        with recording():  # computes attention step by step, as a graph has no fused kernel
            for layer in m.encoder:
                x = _around(layer.around_attention, x, partial(layer.attention, context=context))
                x = _around(layer.around_feedforward, x, layer.feedforward)
        x = m.encoder_norm(x)
        kept = [split_heads(layer.cross.kv(x), 2, layer.cross.heads) for layer in m.decoder]  # each (2, B, H, S, K)
        memory = torch.stack(kept).permute(2, 0, 1, 3, 4, 5)
        return {"memory": memory, "past": memory[:, :, :, :, :0]}

    def _mask(self, keep: Tensor, position: Tensor) -> AttentionMask:
        """Build the mask for rows of one text each; a pattern's is dense. keep and position (B, S)."""
        if isinstance(self.model.config.attention, Linformer):
            return LinformerMask(keep, self.model.mask_builder.shared)
        if self.pattern is None:
            return DenseMask(keep[:, None, None])
        rule = self.pattern.within(position, keep.sum(1, keepdim=True).expand_as(position), self.draws)
        return DenseMask(keep[:, None, None] & rule.dense(keep.size(0), keep.size(1), keep.size(1)))


class TransformerDecoderGraph(nn.Module):
    """words, memory, keep, past -> logits, the past with these tokens, attention."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model: Any = model

    def forward(self, words: Tensor, memory: Tensor, keep: Tensor, past: Tensor) -> dict[str, Tensor]:
        m = self.model
        present: list[Tensor] = []
        weights: list[Tensor] = []
        position = torch.full_like(words, 1)[:, None] * past.size(4)
        key_positions = torch.arange(past.size(4) + 1)[None]
        newest = Rows(words[:, None], torch.ones_like(position), position)
        x = _embed(m, m.target_embedding, m.target_positions, newest)  # (B, 1, D)
        context = m.target_position_scheme.context(DenseMask(None), position, key_positions, x)
        for number, layer in enumerate(m.decoder):
            own, source = past[:, number], memory[:, number]  # (B, 2, H, T, K) and (B, 2, H, S, K)
            x = _around(
                layer.around_attention, x, partial(_decode_step, layer.attention, context=context, past=own, present=present)
            )
            x = _around(layer.around_cross, x, partial(_cross_attend, layer.cross, source=source, keep=keep, recorded=weights))
            x = _around(layer.around_feedforward, x, layer.feedforward)
        logits = m.output(m.decoder_norm(x)[:, 0])
        return {"logits": logits, f"{NEXT}past": torch.stack(present, 1), "attention": torch.stack(weights, 1)}


def _embed(model: Transformer, embedding: nn.Module, positions: PositionalEncoding, rows: Rows) -> Tensor:
    where = positions.of_rows(rows) if rows.head is not None else position_encoding_at(positions, rows.position, rows.text)
    return embedding(rows.ids) * model.config.width**0.5 + where


def _around(residual: Residual, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    change = sublayer(residual.norm(x) if residual.pre_norm else x)
    return x + change if residual.pre_norm else residual.norm(x + change)


def _decode_step(attention: Any, x: Tensor, context: AttentionContext, past: Tensor, present: list[Tensor]) -> Tensor:
    """Attend from the newest token to all so far, and append its keys and values to `present`."""
    q, k, v = split_heads(context.rotate(attention.qkv(x), attention.heads), 3, attention.heads)
    present.append(torch.cat([past, torch.stack([k, v], 1)], 3))  # (B, 2, H, T + 1, K)
    keys, values = present[-1].unbind(1)
    with recording():  # as in the encoder
        return attention.out(join_heads(context.mask.attend_heads(q, keys, values, attention)))


def _cross_attend(attention: Any, x: Tensor, source: Tensor, keep: Tensor, recorded: list[Tensor]) -> Tensor:
    """Attend from the newest token to the source, and append the mean weights over heads to `recorded`."""
    (q,) = split_heads(attention.q(x), 1, attention.heads)
    keys, values = source.unbind(1)
    weights = attention_weights(q, keys, keep[:, None, None])
    recorded.append(weights[:, :, 0].mean(1))
    return attention.out(join_heads(weights @ values))
