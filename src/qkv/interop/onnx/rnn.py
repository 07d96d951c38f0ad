"""A recurrent encoder-decoder as ONNX graphs.

Tracing would unroll a layer of the encoder for one length; so ONNX's own LSTM and GRU replace it, which read texts of different
lengths, in both directions, and return the last state of each.
B batch, S source length, C vectors in a cell's state, 1 or 2, D width, E embedding width, L layers, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn

from qkv.interop.onnx.graphs import FLOAT, NEXT, Graphs, Value
from qkv.models.rnn import Rnn
from qkv.parts.recurrent import HiddenState, RecurrentEncoderLayer, RecurrentState, source_mask

GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}  # torch's gates in ONNX's order


def rnn_graphs(model: Rnn) -> Graphs:
    """Describe the graphs of a recurrent model."""
    c = model.config
    state = {"layers": Value(FLOAT, "B L C D", "state of each layer: h, and the cell of an LSTM")}
    if c.input_feeding:
        state["fed"] = Value(FLOAT, "B E", "output of the step before, zeros at first")
    attention = None if model.cross is None else Value(FLOAT, "B 1 S", "attention to each source token")
    parts, words = 2 if c.cell == "lstm" else 1, model.target_embedding.num_embeddings
    sizes = {"L": c.layers, "C": parts, "D": c.width, "E": c.embedding_width, "V": words}
    return Graphs(RnnEncoderGraph(model), RnnDecoderGraph(model), sizes, _memory(model), state, attention, model.longest)


def _memory(model: Rnn) -> dict[str, Value]:
    if model.config.context == "every":
        return {"context": Value(FLOAT, "B D", "the source in one vector, read by every step")}
    if model.cross is None:
        return {}
    values = {"values": Value(FLOAT, "B S D", "hidden state of the encoder at each source token")}
    if model.config.attention == "dot":  # keys and values are the same tensor
        return values
    return {"keys": Value(FLOAT, "B S D", "the same, projected to keys"), **values}


class RnnEncoderGraph(nn.Module):
    """ids, keep -> memory and state as `rnn_graphs` describes them."""

    def __init__(self, model: Rnn):
        super().__init__()
        self.model: Any = model
        self.layers = nn.ModuleList(_OnnxLayer(layer, model.config.cell) for layer in model.encoder.layers)  # type: ignore[arg-type]

    def forward(self, ids: Tensor, keep: Tensor) -> dict[str, Tensor]:
        m, ends = self.model, []
        x, length = m.embed(m.source_embedding, ids), keep.sum(1)
        for layer in self.layers:
            x, end = layer(x, length)
            ends.append(torch.stack(end, 1))
        keys, values = (x, x) if m.cross is None else m.cross.project_memory(x)
        fed = x.new_zeros(ids.size(0), m.config.embedding_width)
        return {"layers": torch.stack(ends, 1), "fed": fed, "context": end[0], "keys": keys, "values": values}


class _OnnxLayer(nn.Module):
    """A layer of the encoder, in one direction or both, as one operator of ONNX; it can be exported, but not run."""

    def __init__(self, layer: RecurrentEncoderLayer, cell: str):
        super().__init__()
        ways: list[Any] = [way.cells for way in (layer.left_to_right, layer.right_to_left) if way is not None]
        self.cell, self.width, self.ways = cell, ways[0].hidden_size, len(ways)
        self.direction = "bidirectional" if len(ways) == 2 else "forward" if layer.right_to_left is None else "reverse"
        for name in ("weight_ih", "weight_hh"):
            self.register_buffer(name, torch.stack([self._ordered(getattr(way, f"{name}_l0")) for way in ways]))
        biases = [torch.cat([self._ordered(bias) for bias in (way.bias_ih_l0, way.bias_hh_l0)]) for way in ways]
        self.register_buffer("bias", torch.stack(biases))

    def _ordered(self, weight: Tensor) -> Tensor:
        """Put the gates of a weight or bias in ONNX's order."""
        gates = weight.detach().chunk(len(GATES[self.cell]))
        return torch.cat([gates[number] for number in GATES[self.cell]])

    def forward(self, x: Tensor, length: Tensor) -> tuple[Tensor, HiddenState]:
        """x (B, S, E or D), length (B,) -> h, zeros at padding, (B, S, D), and the last state of each text."""
        some = length.clamp(min=1)  # runtimes refuse texts without tokens
        attributes: dict[str, Any] = {"hidden_size": self.width, "direction": self.direction}
        if self.cell == "gru":
            attributes["linear_before_reset"] = 1  # as torch computes it
        batch, length_of_rows = x.size(0), x.size(1)
        weights: Any = self.weight_ih, self.weight_hh, self.bias
        carried = [(self.ways, batch, self.width)] * (2 if self.cell == "lstm" else 1)
        h, *ends = torch.onnx.ops.symbolic_multi_out(
            self.cell.upper(),
            [x.transpose(0, 1), *weights, some.int()],
            attributes,
            dtypes=[FLOAT] * (1 + len(carried)),
            shapes=[(length_of_rows, self.ways, batch, self.width), *carried],
        )
        real = (length > 0).float()[:, None]
        side_by_side = h.permute(2, 0, 1, 3).flatten(2) * real[..., None]  # (S, ways, B, D / ways) -> (B, S, D)
        return side_by_side, tuple(end.transpose(0, 1).flatten(1) * real for end in ends)


class RnnDecoderGraph(nn.Module):
    """words, memory and state as `rnn_graphs` describes them -> logits, next state, attention."""

    def __init__(self, model: Rnn):
        super().__init__()
        self.model: Any = model

    def forward(self, words: Tensor, layers: Tensor, **known: Tensor) -> dict[str, Tensor]:
        values = known.get("values")
        state = RecurrentState(
            run=self.model._decode_step,
            layers=[layer.unbind(1) for layer in layers.unbind(1)],
            input_feed=known.get("fed"),
            context=known.get("context"),
            memory=None if values is None else (known.get("keys", values), values),
            mask=None if values is None else source_mask(known["keep"], values),
            sources=words.size(0),
            steps_left=1,
            want_attention=values is not None,
        )
        found = {"logits": self.model._decode_step(words, state)}
        found[f"{NEXT}layers"] = torch.stack([torch.stack(layer, 1) for layer in state.layers], 1)
        if state.input_feed is not None:
            found[f"{NEXT}fed"] = state.input_feed
        if state.attention is not None:
            found["attention"] = state.attention[:, None]
        return found
