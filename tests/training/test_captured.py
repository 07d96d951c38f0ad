"""An update that is recorded and replayed is the update as usual; where it cannot be, training goes on without."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from qkv.data.batches import START, Batch
from qkv.training import loop
from qkv.training.captured import Captured, own_stream
from toy_training import BASE, SMALL, ToyTrainer, farthest, toy_batches, toy_model, toy_trainer, weights_of

DROPPING = SMALL.model_copy(update={"dropout": 0.3})


class Replayed:
    """Stands in for a CUDA graph: the same computation again, for each batch."""

    made: ClassVar[list["Replayed"]] = []

    def __init__(self, compute: Callable[..., Tensor], like: Batch, device: torch.device):
        self.compute, self.like, self.batches = compute, like, 0
        Replayed.made.append(self)

    def fits(self, batch: Batch) -> bool:
        return batch.rows == self.like.rows

    def __call__(self, batch: Batch) -> Tensor:
        self.batches += 1
        return self.compute(batch.inputs, torch.tensor(float(batch.tokens)))


def trained(run: Path, until_captured: int, **config: Any) -> ToyTrainer:
    trainer = toy_trainer(run, model=toy_model(DROPPING), **config)
    trainer.until_captured = until_captured
    trainer.train()
    return trainer


@pytest.fixture
def replaying(monkeypatch: pytest.MonkeyPatch) -> list[Replayed]:
    monkeypatch.setattr(loop, "Captured", Replayed)
    monkeypatch.setattr(Replayed, "made", [])
    return Replayed.made


def test_replayed_updates_are_the_usual_ones(tmp_path: Path, replaying: list[Replayed]) -> None:
    usual, other = trained(tmp_path / "a", 10**9), trained(tmp_path / "b", 3)
    assert [graph.batches > 5 for graph in replaying] == [True]
    assert farthest(weights_of(usual), weights_of(other)) < 1e-6


def test_a_batch_of_another_shape_goes_the_usual_way(tmp_path: Path, replaying: list[Replayed]) -> None:
    usual, other = trained(tmp_path / "a", 10**9), toy_trainer(tmp_path / "b", model=toy_model(DROPPING))
    other.until_captured = 1
    replaying_fits = Replayed.fits
    try:
        Replayed.fits = lambda self, batch: False  # type: ignore[method-assign]
        other.train()
    finally:
        Replayed.fits = replaying_fits  # type: ignore[method-assign]
    assert replaying[0].batches == 0
    assert farthest(weights_of(usual), weights_of(other)) == 0


def test_a_batch_in_parts_is_not_recorded(tmp_path: Path, replaying: list[Replayed]) -> None:
    trained(tmp_path, 3, accumulate=2)
    assert not replaying


def test_what_cannot_be_recorded_is_said_and_done_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(loop, "Captured", refuse)
    usual, other = trained(tmp_path / "a", 10**9), trained(tmp_path / "b", 3)
    assert any("could not be recorded as a CUDA graph" in line for line in other.progress.warnings)
    assert farthest(weights_of(usual), weights_of(other)) == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_graph_makes_the_usual_updates(tmp_path: Path) -> None:
    def losses(run: Path, until_captured: int) -> list[float]:
        trainer = toy_trainer(run, model=toy_model(DROPPING).cuda(), **{**BASE, "device": "cuda", "log_every": 100})
        batches = toy_batches()
        batches.fixed = True
        trainer.until_captured = until_captured
        with own_stream(trainer.device):
            for _, batch in zip(range(8), batches.starting(START), strict=False):
                trainer.update(trainer.my_rows(batch))
        assert isinstance(trainer.captured, Captured) == (until_captured == 3)
        return [float(loss) for loss, *_ in trainer.window]

    assert losses(tmp_path / "a", 3) == pytest.approx(losses(tmp_path / "b", 10**9), rel=1e-4)
