"""Networks whose initial weights are not drawn, because others take their place or only their shapes are asked for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

SKIPPED = {nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_}


class undrawn_weights(TorchFunctionMode):
    """Leave most weights of networks that are built in this context as memory has them."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        values = kwargs or {}
        if function in SKIPPED:
            return args[0] if args else values["tensor"]
        if function is Tensor.normal_:  # nn.init.trunc_normal_ draws until all values lie in its range, as the mean does
            return _normal_mean(*args, **values)
        if function is Tensor.uniform_ and args[0].is_meta:
            return args[0]
        return function(*args, **values)


def _normal_mean(tensor: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: torch.Generator | None = None) -> Tensor:
    return tensor if tensor.is_meta else tensor.fill_(mean)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Build networks on the meta device: their weights have shapes and no memory.

    Drawing weights there would make torch import its compiler, which takes more than a second.
    """
    with torch.device("meta"), undrawn_weights():
        yield
