"""A stand-in for CUDA graphs."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


class Recorded:
    """A stand-in for a CUDA graph, which runs again on the same memory at each call, and writes its results into the
    same memory.
    """

    made = 0

    def __init__(self, function: Callable[..., Any], *inputs: Tensor, **_: Any):
        self.function, self.inputs, self.result = function, inputs, None
        Recorded.made += 1

    def __call__(self, *inputs: Tensor) -> Any:
        for own, given in zip(self.inputs, inputs, strict=True):
            assert own.shape == given.shape
            own.copy_(given)
        found = self.function(*self.inputs)
        if self.result is None:
            self.result = found
        for old, new in zip(tensors(self.result), tensors(found), strict=True):
            old.copy_(new)
        return self.result


def tensors(value: Any) -> list[Tensor]:
    """Return all tensors of a result."""
    if isinstance(value, Tensor):
        return [value]
    parts = value if isinstance(value, tuple) else vars(value).values()
    return [tensor for part in parts for tensor in tensors(part)]
