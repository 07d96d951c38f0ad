"""Reading of short prompts as CUDA graphs: one for each size that prompts are padded to.

A pass over a few short prompts is hundreds of small kernels, and launching them takes several times as long as running them,
above all where other threads run Python.
R prompts, T tokens of each, D width, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.base import graphs

MIN_TOKENS = 16  # tokens that prompts are padded to, at least
MAX_TOKENS = 2048  # tokens of all prompts together; more keep a GPU busy while the host launches kernels
MAX_GRAPHS = 48  # one for each size of padded prompts
Read = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class PromptRecorder:
    """Reads prompts of a model whose weights stay where they are."""

    def __init__(self, longest: int | None) -> None:
        """`longest` is the most tokens that the model reads: more padding would make it look whether a text is too long."""
        self.longest = longest
        self.recorder = graphs.GraphRecorder[graphs.GraphedFunction]("the reading of prompts", warm_up=1, limit=MAX_GRAPHS)
        self.memory: dict[str, Any] = {}  # that all graphs share: results are copied before another graph runs

    def read(self, read: Read, ids: Tensor, shift: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Return logits (R, V), and the keys and values of each layer (layers, T x R, 2 D); None if the prompts are too long, or
        recording has failed: padding and copies would gain nothing.

        ids (R, T) are padded at the beginning, by shift (R,). `read` is called with more padding and more rows.
        """
        if self.recorder.failed:
            return None
        (rows, length), device = ids.shape, ids.device
        size = (_power_of_two(rows), min(max(MIN_TOKENS, _power_of_two(length)), self.longest or MAX_TOKENS))
        if size[0] * size[1] > MAX_TOKENS or length > size[1]:
            return None
        more, absent = size[1] - length, size[0] - rows
        shift = torch.zeros(rows, dtype=torch.long, device=device) if shift is None else shift
        padded = F.pad(ids, (more, 0, 0, absent)), F.pad(shift + more, (0, absent), value=size[1] - 1)
        graph = self.recorder.recording(size, lambda: self._record(read, *padded))
        logits, kv = (read if graph is None else graph)(*padded)
        kept = kv.view(len(kv), size[1], size[0], -1)[:, more:, :rows]
        return logits[:rows].clone(), kept.clone(memory_format=torch.contiguous_format).flatten(1, 2)

    def _record(self, read: Read, ids: Tensor, shift: Tensor) -> graphs.GraphedFunction:
        if ids.is_cuda and not self.memory:
            self.memory = {"stream": torch.cuda.Stream(ids.device), "pool": torch.cuda.graph_pool_handle()}
        return graphs.GraphedFunction(read, ids, shift, **self.memory)


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
