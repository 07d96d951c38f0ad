"""A convolutional sequence to sequence model as ONNX graphs; its normalised weights are written as plain matrices.

B batch, S source length, K kernel width, W = K - 1, D width, E embedding width, L decoder layers, V vocabulary.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from qkv.base.rows import padded_rows
from qkv.interop.onnx.graphs import FLOAT, NEXT, WHOLE, Graphs, Value, position_encoding_at
from qkv.models.convolution import Convolution
from qkv.parts.convolution import SourceMemory, WeightNormLinear
from qkv.parts.dot_product import additive, recording
from qkv.parts.positions import PositionalEncoding


def convolution_graphs(model: Convolution) -> Graphs:
    """Describe the graphs of a convolutional model."""
    c, plain = model.config, _plain(model)
    memory = {
        "keys": Value(FLOAT, "B S E", "hidden state of the encoder at each source token"),
        "values": Value(FLOAT, "B S E", "the same, plus the token's embedding"),
    }
    state = {
        "history": Value(FLOAT, "B L W D", "inputs of each layer that its next kernel will cover, zeros at first"),
        "position": Value(WHOLE, "B", "position of the next token, from 0"),
    }
    attention = Value(FLOAT, "B 1 S", "attention to each source token, mean over the layers")
    sizes = {
        "L": c.decoder_layers,
        "W": c.kernel_width - 1,
        "D": c.width,
        "E": c.embedding_width,
        "V": model.target_embedding.num_embeddings,
    }
    return Graphs(ConvolutionEncoderGraph(plain), ConvolutionDecoderGraph(plain), sizes, memory, state, attention, model.longest)


def _plain(model: Convolution) -> Convolution:
    """Copy a model with plain matrices and positions that fix no length."""
    made = copy.deepcopy(model.eval())
    for parent in list(made.modules()):
        for name, child in parent.named_children():
            if isinstance(child, WeightNormLinear):
                setattr(parent, name, _linear(child))
    made.source_positions, made.target_positions = _Placed(made.source_positions), _Placed(made.target_positions)
    return made


def _linear(layer: WeightNormLinear) -> nn.Linear:
    outputs, inputs = layer.direction.shape
    linear = nn.Linear(inputs, outputs, bias=False, device="meta")
    linear.weight = nn.Parameter(layer.weight.detach())
    linear.register_parameter("bias", layer.bias)
    return linear


class _Placed(PositionalEncoding):
    """Positions that fix no length."""

    def __init__(self, positions: nn.Module):
        super().__init__()
        self.positions = positions

    def forward(self, position: Tensor, text: Tensor | None = None) -> Tensor:
        return position_encoding_at(self.positions, position, text)


class ConvolutionEncoderGraph(nn.Module):
    """ids, keep -> memory and state as `convolution_graphs` describes them."""

    def __init__(self, model: Convolution):
        super().__init__()
        self.model: Any = model

    def forward(self, ids: Tensor, keep: Tensor) -> dict[str, Tensor]:
        c = self.model.config
        keys, values = self.model.encode(padded_rows(ids, keep))
        history = keys.new_zeros(ids.size(0), c.decoder_layers, c.kernel_width - 1, c.width)
        return {"keys": keys, "values": values, "history": history, "position": torch.zeros_like(ids[:, 0])}


class ConvolutionDecoderGraph(nn.Module):
    """words, memory and state as `convolution_graphs` describes them -> logits, next state, attention."""

    def __init__(self, model: Convolution):
        super().__init__()
        self.model: Any = model

    def forward(
        self, words: Tensor, keys: Tensor, values: Tensor, keep: Tensor, history: Tensor, position: Tensor
    ) -> dict[str, Tensor]:
        m = self.model
        scale = keep.sum(-1).to(keys.dtype).sqrt()[:, None, None]
        source = SourceMemory(keys[:, None], values[:, None], additive(keep[:, None, None], keys.dtype), scale)
        read = m.target_embedding(words[:, None]) + m.target_positions(position[:, None]) * m.position_scale  # (B, 1, E)
        x, windows = m.decoder_input(read), [_Window(one) for one in history.unbind(1)]
        with recording() as weights:
            for block, window in zip(m.decoder, windows, strict=True):
                x = block(x, window, read, source)
        return {
            "logits": m.output(m.decoder_output(x))[:, 0],
            f"{NEXT}history": torch.stack([window.after for window in windows], 1),
            f"{NEXT}position": position + 1,
            "attention": torch.stack(weights).mean(0)[:, 0],
        }


class _Window:
    """Lays out the inputs that the kernel covers at the newest position, and keeps those for the next one."""

    def __init__(self, history: Tensor):
        self.history = self.after = history  # (B, K - 1, D)

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, 1, D) -> (B, 1, K D)."""
        seen = torch.cat([self.history, x], 1)
        self.after = seen[:, 1:]
        return seen.flatten(1)[:, None]
