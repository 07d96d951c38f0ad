"""A model as two ONNX graphs: the encoder, run once for each text, and one step of the decoder.

A step needs only plain tensors with the batch first, so that one gather reorders hypotheses. Outputs of the encoder are either
the same in every step (`memory`) or go from step to step (`state`): a state NAME goes into a step, and next_NAME comes out of it.
So the names alone tell a program that runs the graphs which is which.
B batch, S source length, T tokens so far, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qkv.parts.positions import LearnedPositions, SinusoidalPositions

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
NEXT = "next_"  # prefix of the states that a step passes on
DYNAMIC_AXES = {"B": 2, "S": 3, "T": 4}  # axes of any length, with their lengths in the example that is traced
FLOAT, WHOLE, BOOL = torch.float32, torch.int64, torch.bool


class Value(NamedTuple):
    """An input or output of a graph."""

    dtype: torch.dtype
    axes: str  # names or sizes of its axes, separated by spaces
    meaning: str

    def describe(self, sizes: dict[str, int]) -> str:
        """Return the type, the axes with their sizes, and the meaning, for people."""
        axes = (f"{axis}={sizes[axis]}" if axis in sizes else axis for axis in self.axes.split())
        return f"{str(self.dtype).removeprefix('torch.')} ({', '.join(axes)}): {self.meaning}"

    def example(self, sizes: dict[str, int]) -> Tensor:
        """Return a tensor of this type and shape to trace with; a mask lets everything through."""
        known = {**sizes, **DYNAMIC_AXES}
        shape = [known[axis] if axis in known else int(axis) for axis in self.axes.split()]
        return torch.full(shape, self.dtype == BOOL, dtype=self.dtype)


class Graph(NamedTuple):
    """A module that maps named tensors to named tensors."""

    module: nn.Module
    inputs: dict[str, Value]
    outputs: dict[str, Value]


ENCODER_INPUTS = {
    "ids": Value(WHOLE, "B S", "source token ids, padded at the end"),
    "keep": Value(BOOL, "B S", "true at real tokens"),
}
HEAD = Value(WHOLE, "B S", "where the head of each token's word begins, coded as README.md says")
LAST_TOKEN = {"words": Value(WHOLE, "B", "the last token of each output, bos first")}


@dataclass(frozen=True)
class Graphs:
    """The two graphs of a model, with their inputs and outputs."""

    encoder_module: nn.Module  # ids, keep, and head where there are trees -> memory, and the state before the first step
    step_module: nn.Module  # words, memory, state, and keep where there is attention -> logits, next state, attention
    sizes: dict[str, int]  # of axes that have one
    memory: dict[str, Value]
    state: dict[str, Value]
    attention: Value | None  # attention to the source; None where the model has none
    longest: int | None  # tokens that a text may have; None where there is no limit
    trees: bool = False  # whether sources come with dependency trees

    @property
    def encoder(self) -> Graph:
        return Graph(
            self.encoder_module, {**ENCODER_INPUTS, "head": HEAD} if self.trees else ENCODER_INPUTS, {**self.memory, **self.state}
        )

    @property
    def decoder(self) -> Graph:
        mask = {} if self.attention is None else {"keep": Value(BOOL, "B S", "as given to the encoder")}
        found = {} if self.attention is None else {"attention": self.attention}
        logits = {"logits": Value(FLOAT, "B V", "logits of the next token")}
        after = {
            NEXT + name: Value(value.dtype, value.axes.replace("T", "T+1"), f"`{name}` of the next step")
            for name, value in self.state.items()
        }
        return Graph(self.step_module, {**LAST_TOKEN, **self.memory, **mask, **self.state}, {**logits, **after, **found})

    def describe(self) -> dict[str, Any]:
        """Return names, types and shapes of inputs and outputs, for programs that run the graphs without qkv."""
        return {
            file: {
                side: {name: value.describe(self.sizes) for name, value in values.items()}
                for side, values in (("inputs", graph.inputs), ("outputs", graph.outputs))
            }
            for file, graph in ((ENCODER, self.encoder), (DECODER, self.decoder))
        }


def position_encoding_at(positions: nn.Module, position: Tensor, text: Tensor | None = None) -> Tensor:
    """Compute the encodings of given positions, without fixing the length of the graph.

    position and text (B, T) -> (B, T, D), or (B, T, 1).
    """
    if isinstance(positions, LearnedPositions):  # its check of the length would fix the length of the graph
        return positions.table(position)
    if isinstance(positions, SinusoidalPositions):  # without its table, which has a length
        width = positions.width
        angles = position[..., None].float() * 10000.0 ** (-torch.arange(0, width, 2).float() / width)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]
    return positions(position, text)
