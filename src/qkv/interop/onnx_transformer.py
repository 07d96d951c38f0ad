"""A Transformer as ONNX graphs, with the keys and values of what was written so far going from step to step.

B batch, S source length, T words so far, D width, H heads, K head width, L decoder layers, V vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from qkv.interop.onnx_graphs import FLOAT, NEXT, Graphs, Value, placed_at
from qkv.models.transformer import Transformer
from qkv.parts.attention import attend_spaced
from qkv.parts.attention_kinds import BigBird, Linformer, Window
from qkv.parts.linformer import LinformerAttention
from qkv.parts.masks import Alone
from qkv.parts.relative import Sight, Spaced, Turned
from qkv.parts.residual import Residual

DRAWN = 1 << 16  # places that BigBird's random blocks are drawn for in the file, where a model sets no limit


def transformer_graphs(model: Transformer) -> Graphs:
    """What the graphs of a Transformer take and give."""
    c = model.config
    memory = {"memory": Value(FLOAT, "B L 2 H S K", "keys and values of the source for each decoder layer")}
    state = {"past": Value(FLOAT, "B L 2 H T K", "keys and values of the words so far, of which there are none at first")}
    attention = Value(FLOAT, "B L S", "how much each layer looked at each source token, mean over its heads")
    sizes = {"L": c.decoder_layers, "H": c.heads, "K": c.width // c.heads, "V": model.target_embedding.num_embeddings}
    encoder = EncoderGraph(model)
    return Graphs(encoder, DecoderGraph(model), sizes, memory, state, attention, encoder.longest)


class EncoderGraph(nn.Module):
    """ids, keep -> memory and an empty past."""

    draws: Tensor | None

    def __init__(self, model: Transformer):
        super().__init__()
        self.model: Any = model
        self.longest = model.longest
        attention = model.config.attention
        self.pattern = attention.pattern if isinstance(attention, Window | BigBird) else None
        random = self.pattern is not None and self.pattern.random > 0
        if random and self.longest is None:
            self.longest = DRAWN
        self.register_buffer("draws", self.pattern.draws(self.longest, torch.device("cpu")) if random else None)

    def forward(self, ids: Tensor, keep: Tensor) -> dict[str, Tensor]:
        m = self.model
        place = torch.arange(ids.size(1)).expand_as(ids)
        x = _embed(m, m.source_embedding, m.source_positions, ids, place, keep.long())
        sight = m.source_relation(self._looking(keep, place), place, place, x)
        for layer in m.encoder:
            x = _around(layer.around_attention, x, partial(_read, layer.attention, sight=sight))
            x = _around(layer.around_feed, x, layer.feed)
        x = m.encoder_norm(x)
        kept = [_heads(layer.cross.kv(x), 2, layer.cross.heads) for layer in m.decoder]  # each (2, B, H, S, K)
        memory = torch.stack(kept).permute(2, 0, 1, 3, 4, 5)
        return {"memory": memory, "past": memory[:, :, :, :, :0]}

    def _looking(self, keep: Tensor, place: Tensor) -> Tensor | Alone:
        """Who looks at whom, where each row is one text; of a pattern all pairs of places are asked. keep and place (B, S)."""
        if isinstance(self.model.config.attention, Linformer):
            return Alone(keep, self.model.looking.shortening)
        if self.pattern is None:
            return keep[:, None, None]
        rule = self.pattern.within(place, keep.sum(1, keepdim=True).expand_as(place), self.draws)
        return keep[:, None, None] & rule.dense(*keep.shape, keep.size(1))


class DecoderGraph(nn.Module):
    """words, memory, keep, past -> logits, the past with these words, attention."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model: Any = model

    def forward(self, words: Tensor, memory: Tensor, keep: Tensor, past: Tensor) -> dict[str, Tensor]:
        m = self.model
        present: list[Tensor] = []
        looked: list[Tensor] = []
        place = torch.full_like(words, 1)[:, None] * past.size(4)
        places = torch.arange(past.size(4) + 1)[None]
        x = _embed(m, m.target_embedding, m.target_positions, words[:, None], place)  # (B, 1, D)
        sight = m.relation(None, place, places, x)
        for number, layer in enumerate(m.decoder):
            own, source = past[:, number], memory[:, number]  # (B, 2, H, T, K) and (B, 2, H, S, K)
            x = _around(layer.around_attention, x, partial(_recall, layer.attention, sight=sight, past=own, present=present))
            x = _around(layer.around_cross, x, partial(_look, layer.cross, source=source, keep=keep, looked=looked))
            x = _around(layer.around_feed, x, layer.feed)
        logits = m.output(m.decoder_norm(x)[:, 0])
        return {"logits": logits, f"{NEXT}past": torch.stack(present, 1), "attention": torch.stack(looked, 1)}


def _embed(
    model: Transformer, embedding: nn.Module, positions: nn.Module, ids: Tensor, place: Tensor, text: Tensor | None = None
) -> Tensor:
    return embedding(ids) * model.config.width**0.5 + placed_at(positions, place, text)


def _around(residual: Residual, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    change = sublayer(residual.norm(x) if residual.first else x)
    return x + change if residual.first else residual.norm(x + change)


def _heads(x: Tensor, parts: int, heads: int) -> Tensor:
    """Stacked projections by part and head. (B, T, parts * D) -> (parts, B, H, T, K)."""
    return x.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4)


def _read(attention: Any, x: Tensor, sight: Sight) -> Tensor:
    """Every place of the source looks at the real ones that it may see, or at mixtures of them."""
    if isinstance(attention, LinformerAttention):
        return attention(x, sight)
    q, k, v = _projected(attention, x, sight)
    return _joined(attention, _attended(attention, q, k, v, sight))


def _recall(attention: Any, x: Tensor, sight: Sight, past: Tensor, present: list[Tensor]) -> Tensor:
    """The newest place looks at all so far; its keys and values are added to them."""
    q, k, v = _projected(attention, x, sight)
    present.append(torch.cat([past, torch.stack([k, v], 1)], 3))  # (B, 2, H, T + 1, K)
    keys, values = present[-1].unbind(1)
    return _joined(attention, _attended(attention, q, keys, values, sight))


def _projected(attention: Any, x: Tensor, sight: Sight) -> Tensor:
    qkv = attention.qkv(x)
    return _heads(sight.turn(qkv, attention.heads) if isinstance(sight, Turned) else qkv, 3, attention.heads)


def _attended(attention: Any, q: Tensor, k: Tensor, v: Tensor, sight: Any) -> Tensor:
    if isinstance(sight, Spaced):
        return attend_spaced(q, k, v, sight, attention.distances)
    may: Any = sight.may if isinstance(sight, Turned) else sight
    return _weights(q, k, may) @ v


def _look(attention: Any, x: Tensor, source: Tensor, keep: Tensor, looked: list[Tensor]) -> Tensor:
    """The newest place looks at the source."""
    (q,) = _heads(attention.q(x), 1, attention.heads)
    keys, values = source.unbind(1)
    weights = _weights(q, keys, keep[:, None, None])
    looked.append(weights[:, :, 0].mean(1))
    return _joined(attention, weights @ values)


def _weights(q: Tensor, k: Tensor, may: Tensor | None) -> Tensor:
    """softmax(q k' / sqrt(K)) over what may be seen, or with something added to scores. -> (B, H, T, S)."""
    scores = (q * q.size(-1) ** -0.5) @ k.mT
    if may is not None:
        # Not minus infinity: where nothing may be seen, that would not be a number.
        scores = torch.where(may, scores, torch.finfo(scores.dtype).min) if may.dtype == torch.bool else scores + may
    return scores.softmax(-1)


def _joined(attention: Any, x: Tensor) -> Tensor:
    return attention.out(x.transpose(1, 2).flatten(-2))
