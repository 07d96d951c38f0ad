"""What a model must say to be written as two ONNX graphs: the encoder, run once for each text, and one step of the decoder.

All that a step needs to remember is in plain tensors with the batch first, so that hypotheses are moved by one gather. What the
encoder tells is either the same in every step (`memory`) or goes from step to step (`state`); of the latter, NAME goes into a
step and next_NAME comes out of it. So whoever runs the graphs can tell one from the other by the names alone.
B batch, S source length, T words so far, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qkv.parts.positions import Learned, Sinusoidal

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
NEXT = "next_"  # before the names of what a step hands on
LENGTHS = {"B": 2, "S": 3, "T": 4}  # axes that are of any length, and their lengths in the example that is traced
FLOAT, WHOLE, BOOL = torch.float32, torch.int64, torch.bool


class Value(NamedTuple):
    """An input or output of a graph."""

    dtype: torch.dtype
    axes: str  # the names of its axes, or their sizes, apart by spaces
    meaning: str

    def describe(self, sizes: dict[str, int]) -> str:
        """For people, with the sizes of axes that have one."""
        axes = (f"{axis}={sizes[axis]}" if axis in sizes else axis for axis in self.axes.split())
        return f"{str(self.dtype).removeprefix('torch.')} ({', '.join(axes)}): {self.meaning}"

    def example(self, sizes: dict[str, int]) -> Tensor:
        """Something of this type and shape; a mask lets everything through."""
        known = {**sizes, **LENGTHS}
        shape = [known[axis] if axis in known else int(axis) for axis in self.axes.split()]
        return torch.full(shape, self.dtype == BOOL, dtype=self.dtype)


class Graph(NamedTuple):
    """A module from named tensors to named tensors."""

    module: nn.Module
    inputs: dict[str, Value]
    outputs: dict[str, Value]


READ = {
    "ids": Value(WHOLE, "B S", "source token ids, padded at the end"),
    "keep": Value(BOOL, "B S", "true at real tokens"),
}
HEAD = Value(WHOLE, "B S", "where the word above each token's begins, coded as README.md says")
SAID = {"words": Value(WHOLE, "B", "the last word of each output, bos first")}


@dataclass(frozen=True)
class Graphs:
    """A model as two graphs, and all that they take and give."""

    reading: nn.Module  # ids, keep, and head where there are trees -> memory, and the state before the first step
    stepping: nn.Module  # words, memory, state, and keep where there is attention -> logits, next state, attention
    sizes: dict[str, int]  # of axes that have one
    memory: dict[str, Value]
    state: dict[str, Value]
    attention: Value | None  # how the source was looked at, by layers that tell; None where it is not
    longest: int | None  # places a text may have; None where there is no limit
    trees: bool = False  # whether sources have trees

    @property
    def encoder(self) -> Graph:
        return Graph(self.reading, {**READ, "head": HEAD} if self.trees else READ, {**self.memory, **self.state})

    @property
    def decoder(self) -> Graph:
        mask = {} if self.attention is None else {"keep": Value(BOOL, "B S", "as given to the encoder")}
        found = {} if self.attention is None else {"attention": self.attention}
        logits = {"logits": Value(FLOAT, "B V", "scores of the next word, before the softmax")}
        after = {NEXT + name: _after(name, value) for name, value in self.state.items()}
        return Graph(self.stepping, {**SAID, **self.memory, **mask, **self.state}, {**logits, **after, **found})

    def describe(self) -> dict[str, Any]:
        """Names, types and shapes of inputs and outputs, for those who use the graphs without qkv."""
        return {
            file: {
                side: {name: value.describe(self.sizes) for name, value in values.items()}
                for side, values in (("inputs", graph.inputs), ("outputs", graph.outputs))
            }
            for file, graph in ((ENCODER, self.encoder), (DECODER, self.decoder))
        }


def _after(name: str, value: Value) -> Value:
    """What a step makes of a part of the state; words so far are one more."""
    return Value(value.dtype, value.axes.replace("T", "T+1"), f"`{name}` of the next step")


def placed_at(positions: nn.Module, position: Tensor, text: Tensor | None = None) -> Tensor:
    """As the scheme of positions itself, but for a place by itself. place, text (B, T) -> (B, T, D), or (B, T, 1)."""
    if isinstance(positions, Learned):  # its check of the length would fix the length of the graph
        return positions.table(position)
    return _sinusoids(position, positions.width) if isinstance(positions, Sinusoidal) else positions(position, text)


def _sinusoids(position: Tensor, width: int) -> Tensor:
    """As `positions.Sinusoidal`. (B, T) -> (B, T, D)."""
    angles = position[..., None].float() * 10000.0 ** (-torch.arange(0, width, 2).float() / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]
