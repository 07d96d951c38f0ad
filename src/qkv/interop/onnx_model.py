"""The graphs that `write_onnx` wrote, run by onnxruntime: a model to decode from, as `decoding.protocol` wants one.

R hypotheses, B inputs, S source length, L decoder layers, V vocabulary; shapes of the rest are in `onnx.GRAPHS`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qkv.base.errors import CheckpointError
from qkv.base.hardware import cores
from qkv.interop.onnx import DECODER, ENCODER
from qkv.interop.packages import needed


@dataclass
class OnnxState:
    """What decoding carries from step to step, one row for each hypothesis."""

    memory: np.ndarray
    keep: np.ndarray
    past: np.ndarray
    owner: np.ndarray  # (R,): the input each row belongs to
    layers: Tensor | None = None  # (R, L, S): how each layer looked at the source in the last step

    @property
    def attention(self) -> Tensor | None:
        """Of the last layer, as our own models tell it. -> (R, S)."""
        return None if self.layers is None else self.layers[:, -1]

    def select(self, rows: Tensor) -> None:
        """Row i becomes the old row rows[i]; the number of rows may change."""
        chosen = rows.numpy()
        self.past = self.past[chosen]
        self.layers = None if self.layers is None else self.layers[rows]
        owner = self.owner[chosen]
        # Hypotheses mostly change places within their own input, whose memory is the same for all of them.
        if not np.array_equal(owner, self.owner):
            self.memory, self.keep, self.owner = self.memory[chosen], self.keep[chosen], owner


class OnnxModel:
    """An exported model; on the CPU."""

    def __init__(self, folder: Path, longest: int | None):
        self.longest = longest
        self.encoder, self.decoder = (_open(folder / name) for name in (ENCODER, DECODER))
        *_, layers, two, heads, _, width = next(i for i in self.decoder.get_inputs() if i.name == "past").shape
        self.empty_past = (layers, two, heads, 0, width)

    def start(self, ids: Tensor, keep: Tensor, longest: int, attention: bool = False) -> OnnxState:
        """Encode padded sources (B, S)."""
        (memory,) = self.encoder.run(["memory"], {"ids": ids.numpy(), "keep": keep.numpy()})
        past = np.zeros((len(ids), *self.empty_past), dtype=memory.dtype)
        return OnnxState(memory, keep.numpy(), past, np.arange(len(ids)))

    def step(self, words: Tensor, state: OnnxState) -> Tensor:
        """The last word of each hypothesis (R,) in, scores of the next one (R, V) out."""
        inputs = {"words": words.numpy(), "memory": state.memory, "keep": state.keep, "past": state.past}
        logits, state.past, layers = self.decoder.run(["logits", "present", "attention"], inputs)
        state.layers = torch.from_numpy(layers)
        return torch.from_numpy(logits)


def _open(path: Path) -> Any:
    library = needed("onnxruntime")
    options = library.SessionOptions()
    options.intra_op_num_threads = cores()
    try:
        return library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library has a dozen kinds and no common one
        why = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{path}: onnxruntime cannot use it ({why}); export the run again") from None
