"""Write translators as ONNX graphs; the graphs of each kind of model are in a file of its own."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qkv.interop.onnx.convolution import convolution_graphs
from qkv.interop.onnx.graphs import DECODER, DYNAMIC_AXES, ENCODER, Graph, Graphs
from qkv.interop.onnx.rnn import rnn_graphs
from qkv.interop.onnx.transformer import transformer_graphs
from qkv.interop.packages import import_optional

GRAPHS: dict[str, Callable[[Any], Graphs]] = {
    "transformer": transformer_graphs,
    "rnn": rnn_graphs,
    "convolution": convolution_graphs,
}


def graphs_of(model: Any) -> Graphs:
    """Return the two graphs of a model."""
    return GRAPHS[model.config.kind](model)


def problem(c: Any) -> str | None:
    """Return why a model with this config cannot be written as ONNX graphs; None where it can."""
    return None if c.kind in GRAPHS else f"onnx has no mapping for models of kind {c.kind}"


def export_onnx(model: Any, folder: Path, max_tokens: int, precision: str) -> tuple[int | None, dict[str, Any]]:
    """Write a model into a folder. -> its longest text, and the inputs and outputs of the graphs."""
    graphs = graphs_of(model)
    write_onnx(graphs, folder)
    return graphs.longest, graphs.describe()


@torch.no_grad()
def write_onnx(graphs: Graphs, folder: Path) -> None:
    """Write encoder.onnx and decoder.onnx into a folder."""
    for package in ("onnx", "onnxscript"):
        import_optional(package)
    most = {"S": graphs.longest}  # the exporter uses it where a model relies on it
    names = zip(DYNAMIC_AXES, ("batch", "source", "past"), strict=True)
    lengths = {axis: torch.export.Dim(name, max=most.get(axis)) for axis, name in names}
    for name, graph in ((ENCODER, graphs.encoder), (DECODER, graphs.decoder)):
        axes = [value.axes.split() for value in graph.inputs.values()]
        shapes = tuple({number: lengths[axis] for number, axis in enumerate(each) if axis in lengths} for each in axes)
        with _quiet():
            torch.onnx.export(
                _Ordered(graph).eval(), tuple(value.example(graphs.sizes) for value in graph.inputs.values()), folder / name,
                input_names=list(graph.inputs), output_names=list(graph.outputs),
                dynamic_shapes=(shapes,), dynamo=True, external_data=False, verbose=False,
            )  # fmt: skip


class _Ordered(nn.Module):
    """A graph's module with positional inputs and outputs, as the exporter wants them."""

    def __init__(self, graph: Graph):
        super().__init__()
        self.module, self.inputs, self.outputs = graph.module, tuple(graph.inputs), tuple(graph.outputs)

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        found: dict[str, Any] = self.module(**dict(zip(self.inputs, values, strict=True)))
        return tuple(found[name] for name in self.outputs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings about itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        level = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)
