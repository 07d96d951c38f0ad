"""CUDA graphs: what a GPU does again and again, started at once instead of kernel by kernel."""

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from qkv.base.errors import QkvWarning

WARM = 2  # times that something runs as usual before it is recorded: kernels are loaded then, and memory is found

T = TypeVar("T")


def pay(x: Tensor) -> bool:
    """Whether starting kernels may take longer than running them, as it does on a GPU."""
    return x.is_cuda


class Graph:
    """A function of tensors as it was recorded: it works on the same memory every time."""

    def __init__(self, function: Callable[..., Any], *inputs: Tensor, stream: torch.cuda.Stream | None = None):
        self.inputs = inputs
        self.graph = torch.cuda.CUDAGraph()
        now = torch.cuda.current_stream(inputs[0].device)
        stream = stream or torch.cuda.Stream(inputs[0].device)
        stream.wait_stream(now)
        # Not torch.cuda.graph(): it hands all cached memory back first, which takes longer than the rest.
        with torch.cuda.stream(stream):
            self.graph.capture_begin(capture_error_mode="thread_local")
            try:
                self.result = function(*inputs)
            finally:
                self.graph.capture_end()
        now.wait_stream(stream)

    def __call__(self, *inputs: Tensor) -> Any:
        """The result for these inputs, which lasts until the next call; an input that lies elsewhere is copied to its place."""
        for own, given in zip(self.inputs, inputs, strict=True):
            if own.data_ptr() != given.data_ptr():
                own.copy_(given)
        self.graph.replay()
        return self.result


class Habit(Generic[T]):
    """Calls that come to look the same, and what was recorded of them then."""

    def __init__(self) -> None:
        self.key: object = None
        self.times = 0
        self.made: T | None = None

    def recorded(self, key: object, make: Callable[[], T]) -> T | None:
        """What stands for calls with this key; None at first, and where it cannot be made, until calls look different."""
        if key != self.key:
            self.key, self.times, self.made = key, 0, None
        self.times += 1
        if self.times > WARM and self.made is None:
            try:
                self.made = make()
            except RuntimeError as error:  # for want of memory most likely
                self.times = -sys.maxsize
                self.fail(error)
        return self.made

    def fail(self, error: RuntimeError) -> None:
        """What is to be said of it; nothing, unless it is slower by much."""


class Repeated(Habit[Graph]):
    """Calls of a function that go over to a graph as soon as they come to look the same."""

    def __call__(self, function: Callable[..., Any], large: Tensor, small: Tensor, key: object) -> Any:
        """function(large, small). The key says all else that it depends on, None if that is never the same.

        What it gives lasts until the next call. The large input should lie in the same place each time.
        """
        if key is None or not pay(large):
            return function(large, small)
        key = (key, large.data_ptr(), large.shape, large.dtype, small.shape, small.dtype)
        graph = self.recorded(key, lambda: Graph(function, large, small.clone()))
        return function(large, small) if graph is None else graph(large, small)


class Taught(Habit["Pair"]):
    """Calls of a function whose weights are being learned: as soon as they come to look the same, two graphs, there and back."""

    def __call__(self, function: Callable[[Tensor], Tensor], x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """function(x), which depends on these weights and nothing else. It must have been gone back before the next call."""
        if not (pay(x) and torch.is_grad_enabled() and x.requires_grad) or torch.cuda.is_current_stream_capturing():
            return function(x)
        key = (x.shape, x.dtype, torch.backends.cudnn.enabled, *(weight.data_ptr() for weight in weights))
        pair = self.recorded(key, lambda: Pair(function, x, weights))
        return function(x) if pair is None else _Replayed.apply(pair, x, *weights)

    def fail(self, error: RuntimeError) -> None:
        """Training is slower then."""
        why = str(error).partition("\n")[0]
        told = f"a layer could not be recorded as a CUDA graph, so that training is slower: {why}"
        warnings.warn(told, QkvWarning, stacklevel=2)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Taught":
        """Another, that was never called: what was recorded works on the weights of the one it belongs to."""
        return Taught()


class Pair:
    """A function as it was recorded, and its gradients as they were."""

    def __init__(self, function: Callable[[Tensor], Tensor], x: Tensor, weights: Sequence[Tensor]):
        self.calls = 0
        stream = torch.cuda.Stream(x.device)  # the same for both, or what goes back would wait for what went there
        own = x.detach().clone().requires_grad_()
        self.there = Graph(function, own, stream=stream)
        found = self.there.result
        self.back = Graph(lambda grad: torch.autograd.grad(found, (own, *weights), grad), torch.empty_like(found), stream=stream)
        self.there.result = found.detach()  # the way back is recorded: torch need not know it any longer


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pair: Pair, x: Tensor, *weights: Tensor) -> Tensor:
        pair.calls += 1
        ctx.pair, ctx.call = pair, pair.calls
        return pair.there(x).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.call != ctx.pair.calls:
            raise RuntimeError("a layer was called again before its gradients were asked for, and has forgotten what they need")
        return None, *(grad.clone() for grad in ctx.pair.back(*grads))
