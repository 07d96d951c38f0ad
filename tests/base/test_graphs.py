"""Repeated calls run as usual at first and then as a recording, never for other shapes or another key."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base import graphs
from qkv.base.errors import QkvWarning


class Recording:
    """Stands in for a CUDA graph."""

    def __init__(self, function: Callable[..., Any], *inputs: Tensor):
        self.function, self.inputs = function, inputs

    def __call__(self, *inputs: Tensor) -> Any:
        return "graph", self.function(*inputs)


def both(large: Tensor, small: Tensor) -> float:
    return float(large.sum() + small.sum())


def test_on_a_cpu_a_function_is_just_called() -> None:
    repeated = graphs.FunctionRecorder("a function")
    assert [repeated(both, torch.ones(2), torch.ones(1), key="a") for _ in range(5)] == [3.0] * 5


def test_only_the_same_again_becomes_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "usable", lambda x: True)
    monkeypatch.setattr(graphs, "GraphedFunction", Recording)
    repeated, large, other = graphs.FunctionRecorder("a function"), torch.ones(2), torch.ones(2)

    def kinds(*calls: tuple[Tensor, int, str | None]) -> list[bool]:
        return [isinstance(repeated(both, tensor, torch.ones(size), key=key), tuple) for tensor, size, key in calls]

    assert kinds(*[(large, 1, "a")] * 4) == [False, False, True, True]
    assert kinds(*[(large, 3, "a")] * 3) == [False, False, True]  # another shape
    assert kinds(*[(large, 3, "b")] * 3) == [False, False, True]  # another key
    assert kinds(*[(other, 3, "b")] * 3) == [False, False, True]  # another place
    assert kinds(*[(other, 3, None)] * 3) == [False] * 3


def test_without_memory_for_a_graph_calls_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def refuse(*_: object) -> None:
        tried.append(1)
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(graphs, "usable", lambda x: True)
    monkeypatch.setattr(graphs, "GraphedFunction", refuse)
    repeated = graphs.FunctionRecorder("a function")
    assert [repeated(both, torch.ones(2), small, key="a") for small in [torch.ones(1)] * 2] == [3.0] * 2
    large = torch.ones(2)
    with pytest.warns(QkvWarning, match="a function could not be recorded as a CUDA graph .*: CUDA out of memory"):
        assert [repeated(both, large, torch.ones(1), key="b") for _ in range(6)] == [3.0] * 6
    assert len(tried) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_graph_gives_what_the_function_gives() -> None:
    repeated, large = graphs.FunctionRecorder("a function"), torch.zeros(3, device="cuda")
    for step in range(6):
        large.fill_(step)
        small = torch.full((3,), 10.0 * step, device="cuda")
        assert repeated(torch.add, large, small, key="a").tolist() == [11.0 * step] * 3


def test_on_a_cpu_what_is_learned_is_just_called() -> None:
    taught, weight = graphs.LayerRecorder("a layer"), torch.ones(3, requires_grad=True)
    for _ in range(4):
        taught(lambda x: x * weight, torch.ones(3, requires_grad=True), [weight]).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [4.0] * 3 and not taught.calls


def learned(taught: Callable[..., Tensor], weight: Tensor, seed: int) -> list[Tensor]:
    """Gradients of a call with a weight that has changed since the last one."""
    torch.manual_seed(seed)
    weight.data.normal_()
    weight.grad = None
    x = torch.randn(2, 3, device="cuda", requires_grad=True)
    (taught(lambda x: (x @ weight).tanh(), x, [weight]) * torch.arange(4.0, device="cuda")).sum().backward()
    assert x.grad is not None and weight.grad is not None
    return [x.grad, weight.grad]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_two_graphs_give_the_gradients() -> None:
    taught, weight = graphs.LayerRecorder("a layer"), torch.zeros(3, 4, requires_grad=True, device="cuda")
    for seed in range(6):
        right = learned(lambda function, x, weights: function(x), weight, seed)
        for mine, wanted in zip(learned(taught, weight, seed), right, strict=True):
            torch.testing.assert_close(mine, wanted)
    (recording,) = taught.recordings.values()
    assert recording.calls == 6 - graphs.WARM_UP
    assert not copy.deepcopy(taught).recordings


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gradients_of_a_call_before_the_last_are_refused() -> None:
    taught, weight = graphs.LayerRecorder("a layer"), torch.ones(3, requires_grad=True, device="cuda")

    def call() -> Tensor:
        return taught(lambda x: x * weight, torch.ones(3, requires_grad=True, device="cuda"), [weight]).sum()

    for _ in range(graphs.WARM_UP):
        call().backward()
    before, last = call(), call()
    with pytest.raises(RuntimeError, match="called again"):
        before.backward()
    last.backward()
