"""Exported graphs run by onnxruntime, as a model for `decoding.protocol`.

The names of inputs and outputs tell what a step passes on (see graphs.py), so that all kinds of models run alike.
R hypotheses, B inputs, S source length, L layers that return attention, V vocabulary.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import CheckpointError
from qkv.base.hardware import cpu_cores
from qkv.interop.onnx.graphs import DECODER, ENCODER, NEXT
from qkv.interop.packages import import_optional

Values = dict[str, np.ndarray]  # by the graphs' names, one row for each hypothesis


@dataclass
class OnnxState:
    """The state of decoding between two steps."""

    source: Values  # the same in every step
    carried: Values  # passed from step to step
    owner: np.ndarray  # (R,): the input each row belongs to
    layers: Tensor | None = None  # (R, L, S): attention to the source in the last step

    @property
    def attention(self) -> Tensor | None:
        """Return the attention of the last layer, as our own models do. -> (R, S)."""
        return None if self.layers is None else self.layers[:, -1]

    def select(self, rows: Tensor) -> None:
        """Make row i the old row rows[i]; the number of rows may change."""
        chosen = rows.numpy()
        self.carried = {name: value[chosen] for name, value in self.carried.items()}
        self.layers = None if self.layers is None else self.layers[rows]
        owner = self.owner[chosen]
        # Hypotheses mostly move within their own input, and those of one input share the same source.
        if not np.array_equal(owner, self.owner):
            self.source, self.owner = {name: value[chosen] for name, value in self.source.items()}, owner


class OnnxModel:
    """An exported model on the CPU."""

    def __init__(self, folder: Path, longest: int | None):
        self.longest = longest
        self.encoder, self.decoder = (_open(folder / name) for name in (ENCODER, DECODER))
        self.encoder_outputs = [value.name for value in self.encoder.get_outputs()]
        self.decoder_outputs = [value.name for value in self.decoder.get_outputs()]
        inputs = [value.name for value in self.decoder.get_inputs() if value.name != "words"]
        self.carried = [name for name in inputs if NEXT + name in self.decoder_outputs]
        self.source = [name for name in inputs if name not in self.carried]

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False, head: Tensor | None = None) -> OnnxState:
        """Encode padded sources (B, S), with heads where they have dependency trees."""
        read = {"ids": ids.numpy(), "keep": keep.numpy(), **({} if head is None else {"head": head.numpy()})}
        known = {**read, **dict(zip(self.encoder_outputs, self.encoder.run(self.encoder_outputs, read), strict=True))}
        source, carried = ({name: known[name] for name in names} for names in (self.source, self.carried))
        return OnnxState(source, carried, np.arange(len(ids)))

    def step(self, words: Tensor, state: OnnxState) -> Tensor:
        """Return the logits of the next token of each hypothesis, given its last one. (R,) -> (R, V)."""
        inputs = {"words": words.numpy(), **state.source, **state.carried}
        found = dict(zip(self.decoder_outputs, self.decoder.run(self.decoder_outputs, inputs), strict=True))
        state.carried = {name: found[NEXT + name] for name in self.carried}
        state.layers = torch.from_numpy(found["attention"]) if "attention" in found else None
        return torch.from_numpy(found["logits"])


def _open(path: Path) -> Any:
    library = import_optional("onnxruntime")
    options = library.SessionOptions()
    options.intra_op_num_threads = cpu_cores()
    try:
        return library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library has a dozen kinds and no common one
        why = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{path}: onnxruntime cannot use it ({why}); export the run again") from None
