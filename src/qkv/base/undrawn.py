"""Networks whose initial weights are not drawn, because others take their place or only their shapes are asked for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

DRAWS = {"normal_", "uniform_", "trunc_normal_", "xavier_uniform_", "kaiming_uniform_"}


class undrawn_weights(TorchFunctionMode):
    """Leave the weights of networks that are built in this context as memory has them."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        values = kwargs or {}
        if function.__name__ in DRAWS:
            return args[0] if args else values["tensor"]
        return function(*args, **values)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Build networks on the meta device: their weights have shapes and no memory.

    Drawing weights there would make torch import its compiler, which takes more than a second.
    """
    with torch.device("meta"), undrawn_weights():
        yield
