"""Record the calls of a model's modules in one pass: what each was given and what it returned."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from qkv.parts.dot_product import RecordedAttention, recording


@dataclass
class ModuleCall:
    """One call of a module."""

    name: str
    module: Any
    inputs: tuple[Any, ...]
    output: Any = None
    end: int = 0  # how many calls had begun when it returned
    weights: Tensor | None = None  # (B, H, T, S) of an attention


class Trace(list[ModuleCall]):
    """The calls of one pass, in the order in which they began."""

    def inside(self, call: ModuleCall) -> list[ModuleCall]:
        """Return the calls that began while this one ran."""
        return self[self.index_of(call) + 1 : call.end]

    def index_of(self, call: ModuleCall) -> int:
        """Return when this very call began, as an index."""
        return next(n for n, other in enumerate(self) if other is call)

    def called(self, name: str) -> ModuleCall:
        """Return the last call of the module of that name."""
        return next(call for call in reversed(self) if call.name == name)

    def attentions(self) -> list[ModuleCall]:
        """Return the calls of attention modules."""
        return [call for call in self if isinstance(call.module, RecordedAttention)]


@contextlib.contextmanager
def traced(model: nn.Module) -> Iterator[Trace]:
    """Record the calls inside that this thread makes, without gradients; attention has its weights on leaving."""
    trace, thread, running = Trace(), get_ident(), list[ModuleCall]()
    names = {module: name for name, module in model.named_modules()}

    def begin(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if get_ident() == thread:  # other threads that use the model run its hooks too
            running.append(ModuleCall(names[module], module, inputs))
            trace.append(running[-1])

    def finish(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if get_ident() == thread:
            call = running.pop()
            call.output, call.end = output, len(trace)

    handles: list[Any] = []
    try:
        for module in names:
            handles += [module.register_forward_pre_hook(begin), module.register_forward_hook(finish)]
        with torch.no_grad(), recording() as weights:
            yield trace
        for call, found in zip(trace.attentions(), weights, strict=True):
            call.weights = found
    finally:
        for handle in handles:
            handle.remove()
