"""The exchange of gradients in buckets, in a group of one process."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from qkv.training import exchange
from qkv.training.exchange import GradientExchange


@pytest.fixture(autouse=True)
def _group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def forward(layers: nn.ModuleList, x: Tensor) -> Tensor:
    return layers[1](layers[0](x)).sum()  # the last layer is not used


@pytest.fixture
def layers() -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(3, 3) for _ in range(3))


def test_gradients_lie_in_the_buckets_alone(layers: nn.ModuleList, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after the first of two micro-batches, and in the second update, whose buckets have another order."""
    monkeypatch.setattr(exchange, "BUCKET_BYTES", 50)  # bytes: several buckets
    parameters = list(layers.parameters())
    made = GradientExchange(parameters)
    for _ in range(2):
        x = torch.randn(4, 3)
        wanted = torch.autograd.grad(forward(layers, x), parameters[:4])
        forward(layers, x[:1]).backward()
        held = {bucket.flat.untyped_storage().data_ptr() for bucket in made.buckets}
        assert len(held) > 1 and {p.grad.untyped_storage().data_ptr() for p in parameters[:4] if p.grad is not None} <= held
        made.start(torch.zeros(()))
        forward(layers, x[1:]).backward()
        made.finish()
        assert made.agree(0) == 0
        for parameter, gradient in zip(parameters, wanted, strict=False):
            torch.testing.assert_close(parameter.grad, gradient)
        assert [p.grad for p in parameters[4:]] == [None, None]
        made.clear()


def test_an_exchange_that_was_not_finished_is_forgotten(layers: nn.ModuleList) -> None:
    """As when memory runs out while an update is recorded."""
    made = GradientExchange(list(layers.parameters()))
    made.start(torch.zeros(()))
    forward(layers, torch.randn(4, 3)).backward()
    made.clear()
    assert not made.messages and not made.started
    assert all(p.grad is not None and not p.grad.any() for p in layers.parameters())


def test_updates_are_recorded_only_if_all_processes_have_the_same_gradients(
    layers: nn.ModuleList, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded updates cannot take over gradients that only other processes have."""

    def finished(loss: Tensor) -> GradientExchange:
        made = GradientExchange(list(layers.parameters()))
        made.start(torch.zeros(()))
        loss.backward()
        made.finish()
        return made

    sent: list[list[int]] = []
    monkeypatch.setattr(exchange.distributed, "all_reduce_max", lambda values: sent.append(values) or values)
    own, other = finished(forward(layers, torch.randn(4, 3))), finished(layers[0](torch.randn(4, 3)).sum())
    assert [made.any_recording_failed(failed) for made in (own, other) for failed in (False, True)] == [False, True] * 2
    of_other = sent[2]
    monkeypatch.setattr(exchange.distributed, "all_reduce_max", lambda values: [*map(max, values, of_other)])
    assert own.any_recording_failed(False) and not other.any_recording_failed(False)
