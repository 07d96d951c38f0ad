"""A training update as a CUDA graph: the host launches its hundreds of kernels with one call.

Everything that differs from update to update lies in tensors that the graph reads: the batch, its number of labels, the learning
rate and the seed of random draws. The exchange of gradients between processes is recorded too. Batches of packed rows all have
one layout. Rows of one text each come in several widths, and each width has its own graph.

Processes agree after each recording, not after each recorded update: while one records, nothing is sent, so that none waits for
one whose memory runs out; a graph allocates nothing when it is launched, and has gradients of the same parameters each time.
"""

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from qkv.base.graphs import GraphedFunction, GraphRecorder
from qkv.base.rows import map_tensors, tensors
from qkv.data.batches import Batch

MOST = 64  # layouts that are recorded: each recording takes a moment, and rarer layouts hardly matter

Layout = tuple[Any, ...]
# Inputs of a batch, the number of its labels and the numbers of these rows in it -> its loss.
Compute = Callable[[tuple[Any, ...], Tensor, range], Tensor]


def recordable(model: nn.Module) -> bool:
    """Return whether the kernels of an update are known without asking the device."""
    return all(getattr(module, "recordable", True) for module in model.modules())


def layout_of(batch: Batch) -> Layout:
    """Return what a graph of an update has recorded of a batch: which rows these are, and the shapes of the tensors.

    All processes find the same layouts again in the same updates, because the number of rows of the whole batch is part of them.
    """
    return batch.whole_rows, batch.numbers, *(values.shape for values in _flat(batch))


class UpdateRecorder:
    """Records an update for each layout of batches, once some batches have had that layout."""

    def __init__(
        self,
        compute: Compute,
        device: torch.device,
        on_failure: Callable[[str], object],
        any_failed: Callable[[bool], bool] = bool,
    ):
        """`any_failed` tells processes that record together whether one of them failed."""
        self.compute, self.device = compute, device
        # All processes exchange gradients in a recorded update, or none does: they record the same layouts at the same time.
        self.recorder: GraphRecorder[CapturedUpdate] = GraphRecorder(
            "an update", limit=MOST, on_failure=on_failure, any_failed=any_failed
        )
        # All graphs share one memory pool: an update leaves nothing in it that a later one could overwrite.
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def graph_for(self, batch: Batch, stage: Hashable = None) -> "CapturedUpdate | None":
        """Return the update as a graph if there is one for the batch's layout in this stage of the objective."""
        key = stage, layout_of(batch)
        return self.recorder.recording(key, lambda: CapturedUpdate(self.compute, batch, self.device, self.pool))


class CapturedUpdate:
    """The update for all batches of one layout, recorded as a CUDA graph."""

    def __init__(self, compute: Compute, like: Batch, device: torch.device, pool: Any):
        inputs = tuple(map_tensors(rows, lambda t: t.to(device, copy=True)) for rows in like.inputs)
        self.labels = torch.full((), float(like.labels), device=device)
        self.graph = GraphedFunction(
            lambda *_: compute(inputs, self.labels, like.numbers),
            *(values for rows in inputs for values in tensors(rows)),
            stream=torch.cuda.current_stream(),
            pool=pool,
            release_cache=True,
        )

    def __call__(self, batch: Batch) -> Tensor:
        """Update the weights with another batch and return its loss."""
        self.labels.fill_(batch.labels)
        return self.graph(*_flat(batch)).clone()


def _flat(batch: Batch) -> list[Tensor]:
    return [values for rows in batch.inputs for values in tensors(rows)]


@contextlib.contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Send work for a GPU to a stream of its own: the default stream cannot be recorded."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)
