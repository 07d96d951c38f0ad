"""A recorded update equals the usual one; where it cannot be recorded, training continues without."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from qkv.data.batches import START, Batch
from qkv.training import captured
from qkv.training.captured import own_stream
from toy_training import BASE, SMALL, ToyTrainer, largest_difference, toy_batches, toy_model, toy_trainer, weights_of

DROPPING = SMALL.model_copy(update={"dropout": 0.3})


class Replayed:
    """Stands in for a CUDA graph: the same computation again, for each batch."""

    made: ClassVar[list["Replayed"]] = []

    def __init__(self, compute: Callable[..., Tensor], like: Batch, *_: object):
        self.compute, self.like, self.batches = compute, captured.layout_of(like), 0
        Replayed.made.append(self)

    def __call__(self, batch: Batch) -> Tensor:
        assert captured.layout_of(batch) == self.like
        self.batches += 1
        return self.compute(batch.inputs, torch.tensor(float(batch.tokens)), batch.numbers)


def trained(run: Path, recorded: bool, **config: Any) -> ToyTrainer:
    trainer = toy_trainer(run, model=toy_model(DROPPING), **config)
    trainer.recorder = trainer.make_recorder() if recorded else None
    trainer.train()
    return trainer


@pytest.fixture
def replaying(monkeypatch: pytest.MonkeyPatch) -> list[Replayed]:
    monkeypatch.setattr(captured, "CapturedUpdate", Replayed)
    monkeypatch.setattr(Replayed, "made", [])
    return Replayed.made


def test_replayed_updates_are_the_usual_ones(tmp_path: Path, replaying: list[Replayed]) -> None:
    usual, other = trained(tmp_path / "a", False), trained(tmp_path / "b", True)
    assert [graph.batches > 5 for graph in replaying] == [True]
    assert largest_difference(weights_of(usual), weights_of(other)) < 1e-6


def test_a_replayed_update_has_the_penalty_towards_the_start(tmp_path: Path, replaying: list[Replayed]) -> None:
    start = {name: p.detach().clone() for name, p in toy_model(DROPPING).named_parameters()}
    held = {"start_weights": start, "start_penalty": 1.0}
    usual, other = trained(tmp_path / "a", False, **held), trained(tmp_path / "b", True, **held)
    assert [graph.batches > 5 for graph in replaying] == [True]
    assert largest_difference(weights_of(usual), weights_of(other)) < 1e-6
    assert largest_difference(weights_of(usual), weights_of(trained(tmp_path / "c", False))) > 1e-3


def test_each_layout_that_comes_often_is_recorded(tmp_path: Path, replaying: list[Replayed]) -> None:
    usual, other = toy_trainer(tmp_path / "a", model=toy_model(DROPPING)), toy_trainer(tmp_path / "b", model=toy_model(DROPPING))
    other.recorder = other.make_recorder()
    batches = [batch for _, batch in zip(range(5), toy_batches().starting(START), strict=False)]
    narrower = [batch.part(slice(0, 2)) for batch in batches]
    for trainer in (usual, other):
        for batch in (*batches[:4], narrower[0], *batches[4:], *narrower[1:4], batches[0].part(slice(0, 1))):
            trainer.update(batch)
    assert [graph.batches for graph in replaying] == [3, 2], "from the third of each layout on"
    assert largest_difference(weights_of(usual), weights_of(other)) < 1e-6


def test_each_stage_of_an_objective_is_recorded_apart(tmp_path: Path, replaying: list[Replayed]) -> None:
    trainer = toy_trainer(tmp_path, model=toy_model(DROPPING), steps=10)
    trainer.recorder = trainer.make_recorder()
    trainer.objective.begin_update = lambda done, device: done < 0.5  # type: ignore[method-assign]
    trainer.train()
    assert [graph.batches for graph in replaying] == [3, 3], "from the third update of each stage on"


def test_a_batch_in_parts_is_not_recorded(tmp_path: Path, replaying: list[Replayed]) -> None:
    trained(tmp_path, True, accumulate=2)
    assert not replaying


@pytest.mark.parametrize("joined", [False, True])
def test_what_cannot_be_recorded_is_said_and_done_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined: bool) -> None:
    """Memory runs out in the backward pass, when an exchange of gradients has begun, in a group of one process."""

    def fail(compute: Callable[..., Tensor], like: Batch, *_: object) -> None:
        exchange = other.gradients.exchange
        assert (exchange is not None) == joined
        if exchange:
            exchange.start(torch.zeros(()))
        raise torch.OutOfMemoryError("CUDA out of memory")

    usual = trained(tmp_path / "a", False)
    monkeypatch.setattr(captured, "CapturedUpdate", fail)
    if joined:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        other = toy_trainer(tmp_path / "b", model=toy_model(DROPPING))
        other.recorder = other.make_recorder()
        other.train()
    finally:
        if joined:
            dist.destroy_process_group()
    assert any("could not be recorded as a CUDA graph" in line for line in other.progress.warnings)
    assert largest_difference(weights_of(usual), weights_of(other)) == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_graph_makes_the_usual_updates(tmp_path: Path) -> None:
    def losses(run: Path, recorded: bool) -> list[float]:
        trainer = toy_trainer(run, model=toy_model(DROPPING).cuda(), **{**BASE, "device": "cuda", "log_every": 100})
        batches = toy_batches()
        batches.fixed = True
        recorder = trainer.recorder
        trainer.recorder = recorder if recorded else None
        with own_stream(trainer.device):
            for number, batch in zip(range(16), batches.starting(START), strict=False):
                part = batch if number % 2 else batch.part(slice(0, 2))  # two layouts, which share the graphs' memory
                trainer.update(trainer.local_rows(part))
        assert recorder is not None and len(recorder.recorder.recordings) == (2 if recorded else 0)
        return [float(loss) for loss, *_ in trainer.window]

    assert losses(tmp_path / "a", True) == pytest.approx(losses(tmp_path / "b", False), rel=1e-4)
