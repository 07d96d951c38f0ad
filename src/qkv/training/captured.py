"""An update as a CUDA graph: recorded once and then replayed, so that the host starts its hundreds of kernels with one call.

What differs from update to update lies in tensors that the graph reads: the batch, its number of answers, the learning rate and
the state of torch's random numbers. Batches of packed rows are all laid out alike; where rows hold one text each, they come in
some widths, and there is a graph for each.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from qkv.base.rows import on_each, tensors
from qkv.data.batches import Batch

WARM = 3  # of the updates with batches of a layout that which is recorded: libraries have made their choices in those before
MOST = 64  # graphs: each takes a moment to record, and layouts that are rarer than these hardly matter

Layout = tuple[torch.Size, ...]
Compute = Callable[[tuple[Any, ...], Tensor], Tensor]  # inputs of a batch and the number of its answers -> its loss


def recordable(model: nn.Module) -> bool:
    """Whether all kernels of an update are known without asking the device."""
    return all(getattr(module, "recordable", True) for module in model.modules())


def layout_of(batch: Batch) -> Layout:
    return tuple(values.shape for rows in batch.inputs for values in tensors(rows))


class Recorder:
    """Records an update for each layout of batches, once there have been some of it."""

    def __init__(self, compute: Compute, device: torch.device, after: int = WARM):
        self.compute, self.device, self.after = compute, device, after
        self.graphs: dict[Layout, Captured] = {}
        self.seen: Counter[Layout] = Counter()
        # One memory for all: an update leaves nothing behind in it that the next one, whichever it is, could overwrite.
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def graph_for(self, batch: Batch) -> "Captured | None":
        """The update as a graph, if there is one for such batches."""
        layout = layout_of(batch)
        self.seen[layout] += 1
        if self.seen[layout] == self.after and len(self.graphs) < MOST:
            self.graphs[layout] = Captured(self.compute, batch, self.device, self.pool)
        return self.graphs.get(layout)


class Captured:
    """An update of batches that are all laid out like the first."""

    def __init__(self, compute: Compute, like: Batch, device: torch.device, pool: Any):
        self.inputs = tuple(on_each(rows, lambda t: t.to(device, copy=True)) for rows in like.inputs)
        self.answers = torch.full((), float(like.answers), device=device)
        self.graph = torch.cuda.CUDAGraph()
        # Only this thread's calls must suit the recording: another one gets batches ready meanwhile.
        stream = torch.cuda.current_stream()
        with torch.cuda.graph(self.graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            self.loss = compute(self.inputs, self.answers)

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
