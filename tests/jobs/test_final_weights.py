"""A run keeps the weights that score best on dev: the last ones, the best checkpoint, or the mean of the last few."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.jobs.final_weights import choose_weights, last_weights
from qkv.training import checkpoints
from qkv.training.loop import Validation
from toy_training import RecordedProgress, ToyTrainer, toy_trainer

BEST, LAST = 4, 12


def trained(run: Path, **config: Any) -> ToyTrainer:
    """Train a run whose best validation is the first of three."""
    trainer = toy_trainer(run, keep=3, validate=lambda step: Validation({}, -float(step)), **config)
    trainer.train()
    return trainer


def weights_at(run: Path, step: int) -> dict[str, Tensor]:
    return checkpoints.load_weights(checkpoints.scored_weights(run / "checkpoints" / f"step-{step:08d}"))


def chosen(run: Path, trainer: ToyTrainer, liked: dict[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """Return the name and the weights that are kept when `liked` scores best on dev."""

    def final() -> float:
        assert not trainer.model.training
        return -sum(float((p - liked[name]).detach().abs().sum()) for name, p in trainer.model.named_parameters())

    validator: Any = SimpleNamespace(model=trainer.model, progress=RecordedProgress(), final=final)
    name = choose_weights(run, trainer, validator)
    assert validator.progress.said == [f"weights kept: {name}"]
    return name, checkpoints.load_weights(run / "model.safetensors")


def mean(run: Path) -> dict[str, Tensor]:
    found = [weights_at(run, step) for step in (4, 8, 12)]
    return {name: torch.stack([w[name].double() for w in found]).mean(0).float() for name in found[0]}


@pytest.mark.parametrize(
    ("name", "liked"),
    [
        ("checkpoint at step 4", lambda run: weights_at(run, BEST)),
        ("checkpoint at step 12", lambda run: weights_at(run, LAST)),
        ("mean of the last 3 checkpoints", mean),
    ],
)
def test_the_best_on_dev_is_kept(tmp_path: Path, name: str, liked: Callable[[Path], dict[str, Tensor]]) -> None:
    trainer = trained(tmp_path)
    wanted = liked(tmp_path)
    found, kept = chosen(tmp_path, trainer, wanted)
    assert found == name
    assert all(torch.equal(kept[key], wanted[key]) for key in wanted)


def test_an_average_over_training_is_what_is_kept(tmp_path: Path) -> None:
    trainer = trained(tmp_path, averaging="ema", ema_decay=0.5)
    found, kept = chosen(tmp_path, trainer, trainer.average)
    assert found == "average over training at step 12"
    assert all(torch.equal(kept[key], tensor) for key, tensor in trainer.average.items())


def test_without_averaging_no_mean_is_tried(tmp_path: Path) -> None:
    trainer = trained(tmp_path, averaging="none")
    found, _ = chosen(tmp_path, trainer, mean(tmp_path))
    assert found in ("checkpoint at step 4", "checkpoint at step 12")


def test_one_checkpoint_is_taken_as_it_is(tmp_path: Path) -> None:
    trainer = trained(tmp_path, steps=4)
    assert chosen(tmp_path, trainer, weights_at(tmp_path, 4))[0] == "checkpoint at step 4"


def test_an_irregular_checkpoint_is_not_averaged(tmp_path: Path) -> None:
    """A checkpoint that a signal caused would make the mean depend on the interruption."""
    first = toy_trainer(tmp_path, keep=3)
    first.stop_requested = lambda: first.state.step == 6  # type: ignore[method-assign]
    first.train()
    second = toy_trainer(tmp_path, keep=3)
    second.train()
    assert second.steps_to_average() == [4, 8, 12]


@pytest.mark.parametrize(("averaging", "wanted"), [("none", lambda run: weights_at(run, LAST)), ("checkpoints", mean)])
def test_the_last_are_kept_whatever_dev_says(tmp_path: Path, averaging: str, wanted: Callable[[Path], dict[str, Tensor]]) -> None:
    trainer = trained(tmp_path, averaging=averaging)
    validator: Any = SimpleNamespace(model=trainer.model, progress=RecordedProgress())
    name = last_weights(tmp_path, trainer, validator)
    assert validator.progress.said == [f"weights kept: {name}"]
    kept = checkpoints.load_weights(tmp_path / "model.safetensors")
    assert all(torch.equal(kept[key], tensor) for key, tensor in wanted(tmp_path).items())


def test_averaging_over_training_can_begin_late(tmp_path: Path) -> None:
    toy_trainer(tmp_path, steps=4).train()
    trainer = toy_trainer(tmp_path, steps=8, averaging="ema")
    trainer.train()
    assert (tmp_path / "checkpoints" / "step-00000008" / checkpoints.AVERAGE).exists()
