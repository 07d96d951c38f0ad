"""Translators as ONNX graphs: each kind of model says in a file of its own what its graphs are, and all are written here."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qkv.interop.onnx_convolution import convolution_graphs
from qkv.interop.onnx_graphs import DECODER, ENCODER, LENGTHS, Graph, Graphs
from qkv.interop.onnx_rnn import rnn_graphs
from qkv.interop.onnx_transformer import transformer_graphs
from qkv.interop.packages import needed
from qkv.models.convolution import Convolution
from qkv.models.rnn import Rnn
from qkv.models.transformer import Transformer


def graphs_of(model: Transformer | Rnn | Convolution) -> Graphs:
    """What a model's graphs are, by its kind."""
    if isinstance(model, Rnn):
        return rnn_graphs(model)
    return convolution_graphs(model) if isinstance(model, Convolution) else transformer_graphs(model)


@torch.no_grad()
def write_onnx(graphs: Graphs, folder: Path) -> None:
    """Write encoder.onnx and decoder.onnx into a folder."""
    for package in ("onnx", "onnxscript"):
        needed(package)
    most = {"S": graphs.longest}  # which a model may count on
    names = zip(LENGTHS, ("batch", "source", "past"), strict=True)
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
    """A graph's module with inputs and outputs in the order in which they are told, as the exporter wants them."""

    def __init__(self, graph: Graph):
        super().__init__()
        self.module, self.inputs, self.outputs = graph.module, tuple(graph.inputs), tuple(graph.outputs)

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        found: dict[str, Any] = self.module(**dict(zip(self.inputs, values, strict=True)))
        return tuple(found[name] for name in self.outputs)


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
