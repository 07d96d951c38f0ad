"""CUDA graphs: work that a GPU repeats is recorded once and then launched with one call instead of kernel by kernel.

`GraphRecorder` decides when something is recorded. Decoding steps, recurrent layers and training updates all go through it.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from qkv.base.errors import QkvWarning

WARM_UP = 2  # plain calls before a recording: they load kernels, and let libraries choose algorithms and allocate memory

T = TypeVar("T")


def usable(x: Tensor) -> bool:
    """Return whether work on x can be recorded: it is on a GPU, where launching kernels may take longer than running them."""
    return x.is_cuda


class GraphedFunction:
    """A function of tensors recorded as a CUDA graph. It reads and writes the same memory in every call."""

    def __init__(
        self,
        function: Callable[..., Any],
        *inputs: Tensor,
        stream: torch.cuda.Stream | None = None,
        pool: Any = None,
        release_cache: bool = False,
    ):
        """Record function(*inputs) on a stream of its own, or on the one given.

        `pool` is memory shared with other graphs. `release_cache` first returns cached memory to the GPU: a large graph needs
        it, but for a small one this takes longer than the recording.
        """
        self.inputs = inputs
        self.graph = torch.cuda.CUDAGraph()
        # Other threads, such as one that prepares batches, may call CUDA during the recording.
        mode = "thread_local"
        current = torch.cuda.current_stream(inputs[0].device)
        stream = stream or torch.cuda.Stream(inputs[0].device)
        stream.wait_stream(current)
        if release_cache:
            with torch.cuda.graph(self.graph, pool=pool, stream=stream, capture_error_mode=mode):
                self.result = function(*inputs)
        else:
            with torch.cuda.stream(stream):
                self.graph.capture_begin(pool=pool, capture_error_mode=mode)
                try:
                    self.result = function(*inputs)
                finally:
                    self.graph.capture_end()
        current.wait_stream(stream)

    def __call__(self, *inputs: Tensor) -> Any:
        """Return the result for these inputs, which the next call overwrites. Inputs at other addresses are copied."""
        for own, given in zip(self.inputs, inputs, strict=True):
            if own.data_ptr() != given.data_ptr():
                own.copy_(given, non_blocking=True)
        self.graph.replay()
        return self.result


class GraphRecorder(Generic[T]):
    """Records repeated calls as CUDA graphs, by one rule for everything that is recorded.

    The first `warm_up` calls with a key run as usual, the next one is recorded, and the recording serves all later calls with
    that key. If a recording fails, most likely because memory runs out, `on_failure` reports it, all recordings are dropped,
    and every call runs as usual from then on.
    """

    def __init__(
        self,
        what: str,
        *,
        warm_up: int = WARM_UP,
        limit: int | None = None,
        on_failure: Callable[[str], object] | None = None,
        any_failed: Callable[[bool], bool] = bool,
    ):
        """Record `what`, a name for messages. `limit` is the number of keys with recordings; the first keys get them.

        Without a limit, a call with a new key drops the recording of the key before it: for keys that do not come back, such
        as those with addresses of memory. `any_failed` tells processes that record together whether one of them failed.
        """
        self.any_failed = any_failed
        self.what, self.warm_up, self.limit, self.on_failure = what, warm_up, limit, on_failure or _warn
        self.calls: Counter[Hashable] = Counter()
        self.recordings: dict[Hashable, T] = {}
        self.failed = False

    def recording(self, key: Hashable, record: Callable[[], T], worthwhile: bool = True) -> T | None:
        """Count a call with this key and return its recording, or None if the call must run as usual.

        `record` makes the recording. `worthwhile` is False if too few calls are left to pay for it.
        """
        if self.failed:
            return None
        if self.limit is None and key not in self.calls:
            self.forget()
        self.calls[key] += 1
        due = self.calls[key] > self.warm_up and key not in self.recordings
        if due and worthwhile and len(self.recordings) < (self.limit or 1):
            why = ""
            try:
                self.recordings[key] = record()
            except RuntimeError as error:
                why = str(error).partition("\n")[0][:200]
            if self.any_failed(bool(why)):
                self.failed = True
                self.forget()
                why = why or "processes do not agree"
                self.on_failure(f"{self.what} could not be recorded as a CUDA graph and will run slower: {why}")
        return self.recordings.get(key)

    def forget(self) -> None:
        """Drop all recordings and counts."""
        self.calls.clear()
        self.recordings.clear()

    def __deepcopy__(self, memo: dict[int, Any]) -> "GraphRecorder[T]":
        """Return a recorder without recordings: graphs work on the memory of what they were recorded for."""
        return type(self)(
            self.what, warm_up=self.warm_up, limit=self.limit, on_failure=self.on_failure, any_failed=self.any_failed
        )


def _warn(message: str) -> None:
    warnings.warn(message, QkvWarning, stacklevel=4)


class FunctionRecorder(GraphRecorder[GraphedFunction]):
    """Calls a function without gradients, as a graph once its calls repeat."""

    def __call__(self, function: Callable[..., Any], large: Tensor, small: Tensor, key: Hashable) -> Any:
        """Return function(large, small), valid until the next call.

        The key covers everything else that the function depends on; None if that always changes. `large` should keep its
        address from call to call; `small` is copied.
        """
        if key is None or not usable(large):
            return function(large, small)
        key = (key, large.data_ptr(), large.shape, large.dtype, small.shape, small.dtype)
        graph = self.recording(key, lambda: GraphedFunction(function, large, small.clone()))
        return function(large, small) if graph is None else graph(large, small)


class LayerGraphs:
    """A layer's forward and backward pass, each recorded as a graph."""

    def __init__(self, function: Callable[[Tensor], Tensor], x: Tensor, weights: Sequence[Tensor]):
        self.calls = 0
        stream = torch.cuda.Stream(x.device)  # one for both, or the backward graph would wait for the forward graph's
        own = x.detach().clone().requires_grad_()
        self.forward = GraphedFunction(function, own, stream=stream)
        output = self.forward.result
        self.backward = GraphedFunction(
            lambda grad: torch.autograd.grad(output, (own, *weights), grad), torch.empty_like(output), stream=stream
        )
        self.forward.result = output.detach()  # frees autograd's graph, which is recorded now


class LayerRecorder(GraphRecorder[LayerGraphs]):
    """Calls a layer that is being trained, as a pair of graphs once its calls repeat."""

    def __call__(self, function: Callable[[Tensor], Tensor], x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Return function(x), which depends on these weights alone. Call `backward` before the next `forward`."""
        if not (usable(x) and torch.is_grad_enabled() and x.requires_grad) or torch.cuda.is_current_stream_capturing():
            return function(x)
        key = (x.shape, x.dtype, torch.backends.cudnn.enabled, *(weight.data_ptr() for weight in weights))
        graphs = self.recording(key, lambda: LayerGraphs(function, x, weights))
        return function(x) if graphs is None else _ReplayedLayer.apply(graphs, x, *weights)


class _ReplayedLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graphs: LayerGraphs, x: Tensor, *weights: Tensor) -> Tensor:
        graphs.calls += 1
        ctx.graphs, ctx.call = graphs, graphs.calls
        return graphs.forward(x).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.call != ctx.graphs.calls:
            raise RuntimeError("a layer was called again before its backward pass, and its activations are overwritten")
        return None, *(grad.clone() for grad in ctx.graphs.backward(*grads))
