"""An update as a CUDA graph: recorded once and then replayed, so that the host starts its hundreds of kernels with one call.

What differs from update to update lies in tensors that the graph reads: the batch, its number of answers, the learning rate and
the state of torch's random numbers.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from qkv.base.rows import on_each, tensors
from qkv.data.batches import Batch

WARM = 3  # the update that is recorded: after the two before it libraries have made their choices

Compute = Callable[[tuple[Any, ...], Tensor], Tensor]  # inputs of a batch and the number of its answers -> its loss


class Captured:
    """An update of batches that are all laid out like the first."""

    def __init__(self, compute: Compute, like: Batch, device: torch.device):
        self.inputs = tuple(on_each(rows, lambda t: t.to(device, copy=True)) for rows in like.inputs)
        self.answers = torch.full((), float(like.answers), device=device)
        self.graph = torch.cuda.CUDAGraph()
        # Only this thread's calls must suit the recording: another one gets batches ready meanwhile.
        with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            self.loss = compute(self.inputs, self.answers)

    def fits(self, batch: Batch) -> bool:
        return all(ours[0].shape == theirs[0].shape for ours, theirs in zip(self.inputs, batch.inputs, strict=True))

    def __call__(self, batch: Batch) -> Tensor:
        """Make the update for another batch. -> its loss."""
        for ours, theirs in zip(self.inputs, batch.inputs, strict=True):
            for mine, given in zip(tensors(ours), tensors(theirs), strict=True):
                mine.copy_(given, non_blocking=True)
        self.answers.fill_(batch.answers)
        self.graph.replay()
        return self.loss.clone()


@contextlib.contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Inside, work for a GPU goes to a stream of its own: the default one cannot be recorded."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)
