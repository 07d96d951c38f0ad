"""A Transformer as two ONNX graphs: the encoder, run once for each text, and one step of the decoder, with its past in and out.

All that a step needs to remember is in plain tensors with the batch first, so that hypotheses are moved by one gather.
B batch, S source length, T words so far, D width, H heads, K head width, L decoder layers, V vocabulary.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qkv.interop.packages import needed
from qkv.models.transformer import Transformer
from qkv.parts.attention import attend_spaced
from qkv.parts.positions import Learned, Sinusoidal
from qkv.parts.relative import Sight, Spaced, Turned
from qkv.parts.residual import Residual

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
# Names, types and shapes of inputs and outputs, for those who use the graphs without qkv.
GRAPHS = {
    ENCODER: {
        "inputs": {
            "ids": "int64 (B, S): source token ids, padded at the end",
            "keep": "bool (B, S): true at real tokens",
        },
        "outputs": {"memory": "float32 (B, L, 2, H, S, K): keys and values of the source for each decoder layer"},
    },
    DECODER: {
        "inputs": {
            "words": "int64 (B): the last word of each output, bos first",
            "memory": "float32 (B, L, 2, H, S, K): from the encoder",
            "keep": "bool (B, S): as given to the encoder",
            "past": "float32 (B, L, 2, H, T, K): `present` of the step before; T is 0 in the first step",
        },
        "outputs": {
            "logits": "float32 (B, V): scores of the next word, before the softmax",
            "present": "float32 (B, L, 2, H, T + 1, K): `past` of the next step",
            "attention": "float32 (B, L, S): how much each layer looked at each source token, mean over its heads",
        },
    },
}


class EncoderGraph(nn.Module):
    """ids, keep -> memory, as GRAPHS tells."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model: Any = model

    def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
        m = self.model
        place = torch.arange(ids.size(1)).expand_as(ids)
        x = _embed(m, m.source_embedding, m.source_positions, ids, place, keep.long())
        sight = m.source_relation(keep[:, None, None], place, place, x)
        for layer in m.encoder:
            x = _around(layer.around_attention, x, partial(_read, layer.attention, sight=sight))
            x = _around(layer.around_feed, x, layer.feed)
        x = m.encoder_norm(x)
        kept = [_heads(layer.cross.kv(x), 2, layer.cross.heads) for layer in m.decoder]  # each (2, B, H, S, K)
        return torch.stack(kept).permute(2, 0, 1, 3, 4, 5)


class DecoderGraph(nn.Module):
    """words, memory, keep, past -> logits, present, attention, as GRAPHS tells."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model: Any = model

    def forward(self, words: Tensor, memory: Tensor, keep: Tensor, past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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
        return logits, torch.stack(present, 1), torch.stack(looked, 1)


def _embed(
    model: Transformer, embedding: nn.Module, positions: nn.Module, ids: Tensor, place: Tensor, text: Tensor | None = None
) -> Tensor:
    # Looked up directly: a check of the length would fix the length of the graph.
    if isinstance(positions, Learned):
        where = positions.table(place)
    else:
        where = _sinusoids(place, model.config.width) if isinstance(positions, Sinusoidal) else positions(place, text)
    return embedding(ids) * model.config.width**0.5 + where


def _sinusoids(place: Tensor, width: int) -> Tensor:
    """As `positions.Sinusoidal`, for a place by itself. (B, T) -> (B, T, D)."""
    angles = place[..., None].float() * 10000.0 ** (-torch.arange(0, width, 2).float() / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]


def _around(residual: Residual, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    change = sublayer(residual.norm(x) if residual.first else x)
    return x + change if residual.first else residual.norm(x + change)


def _heads(x: Tensor, parts: int, heads: int) -> Tensor:
    """Stacked projections by part and head. (B, T, parts * D) -> (parts, B, H, T, K)."""
    return x.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4)


def _read(attention: Any, x: Tensor, sight: Sight) -> Tensor:
    """Every place of the source looks at every real one."""
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


@torch.no_grad()
def write_onnx(model: Transformer, folder: Path) -> None:
    """Write encoder.onnx and decoder.onnx into a folder."""
    for package in ("onnx", "onnxscript"):
        needed(package)
    c = model.config
    b, s, t = (torch.export.Dim(name) for name in ("batch", "source", "past"))
    ids, keep = torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.bool)
    memory = torch.zeros(2, c.decoder_layers, 2, c.heads, 3, c.width // c.heads)
    past = torch.zeros(2, c.decoder_layers, 2, c.heads, 4, c.width // c.heads)
    graphs = {
        ENCODER: (EncoderGraph(model), (ids, keep), ({0: b, 1: s}, {0: b, 1: s})),
        DECODER: (DecoderGraph(model), (ids[:, 0], memory, keep, past), ({0: b}, {0: b, 4: s}, {0: b, 1: s}, {0: b, 4: t})),
    }
    for name, (graph, inputs, shapes) in graphs.items():
        with _quiet():
            torch.onnx.export(
                graph.eval(), inputs, folder / name,
                input_names=list(GRAPHS[name]["inputs"]), output_names=list(GRAPHS[name]["outputs"]),
                dynamic_shapes=shapes, dynamo=True, external_data=False, verbose=False,
            )  # fmt: skip


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of its own affairs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        level = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)
