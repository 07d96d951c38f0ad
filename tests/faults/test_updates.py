"""Updates that run out of memory, accumulate gradients, or are not finite."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from qkv.base.errors import TrainingError
from qkv.base.rows import Rows
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.training import checkpoints
from qkv.training.log import read_metrics
from toy_training import BOS, largest_difference, toy_trainer, weights_of, without_key_biases

Loss = Callable[..., Tensor]
plain = Translation(TranslationConfig(), BOS).loss


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(run) if "loss" in line]


def room_for(rows: int, error: type[Exception] = torch.OutOfMemoryError, message: str = "out of memory") -> Loss:
    """Return a loss that runs out of memory above a number of rows."""

    def loss(model: torch.nn.Module, source: Rows, target: Rows) -> Tensor:
        if source.ids.size(0) > rows:
            raise error(message)
        return plain(model, source, target)

    return loss


def spoilt(steps: set[int], value: float) -> Loss:
    """Return a loss that is NaN or infinite at certain updates."""
    count = 0

    def loss(model: torch.nn.Module, source: Rows, target: Rows) -> Tensor:
        nonlocal count
        count += 1
        right = plain(model, source, target)
        return right * value if count in steps else right

    return loss


@pytest.mark.parametrize("parts", [2, 3, 4, 100])
def test_a_batch_in_parts_is_the_same_batch(tmp_path: Path, parts: int) -> None:
    whole, split = toy_trainer(tmp_path / "whole"), toy_trainer(tmp_path / "split", accumulate=parts)
    whole.train(), split.train()
    assert largest_difference(without_key_biases(weights_of(whole)), without_key_biases(weights_of(split))) < 1e-5
    assert losses(tmp_path / "whole") == pytest.approx(losses(tmp_path / "split"), abs=1e-5)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError, RuntimeError])
def test_a_batch_that_does_not_fit_is_split_and_training_goes_on(tmp_path: Path, error: type[Exception]) -> None:
    whole, split = toy_trainer(tmp_path / "whole"), toy_trainer(tmp_path / "split", loss=room_for(1, error))
    whole.train(), split.train()
    assert [warning.split(": ")[1] for warning in split.progress.warnings] == [
        "from here on it is computed in 2 parts, same result",
        "from here on it is computed in 4 parts, same result",
    ]
    assert largest_difference(without_key_biases(weights_of(whole)), without_key_biases(weights_of(split))) < 1e-5


def test_memory_that_runs_out_during_the_gradient_leaves_none_of_it_behind(tmp_path: Path) -> None:
    calls = 0

    def loss(model: torch.nn.Module, source: Rows, target: Rows) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 8:  # the second part of an update: the first part's gradient is there already
            raise torch.OutOfMemoryError("out of memory")
        return plain(model, source, target)

    whole, split = toy_trainer(tmp_path / "whole"), toy_trainer(tmp_path / "split", loss=loss, accumulate=2)
    whole.train(), split.train()
    assert largest_difference(without_key_biases(weights_of(whole)), without_key_biases(weights_of(split))) < 1e-5
    assert len(split.progress.warnings) == 1


def test_not_even_one_row_fits(tmp_path: Path) -> None:
    toy_trainer(tmp_path, steps=4).train()
    trainer = toy_trainer(tmp_path, loss=room_for(0))
    with pytest.raises(TrainingError, match="even one row at a time does not fit in memory; use a smaller model or"):
        trainer.train()
    assert checkpoints.newest(tmp_path)[1]["step"] == 4


def test_any_other_error_is_not_taken_for_a_lack_of_memory(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="shapes do not match"):
        toy_trainer(tmp_path, loss=room_for(0, RuntimeError, "shapes do not match")).train()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_skips_its_update(tmp_path: Path, value: float) -> None:
    trainer = toy_trainer(tmp_path, loss=spoilt({3, 4, 9}, value))
    before: list[dict[str, Tensor]] = []
    update = trainer.update
    trainer.update = lambda batch: before.append(weights_of(trainer)) or update(batch)  # type: ignore
    trainer.train()
    after = [*before[1:], weights_of(trainer)]
    unchanged = [step for step, (a, b) in enumerate(zip(before, after, strict=True), 1) if largest_difference(a, b) == 0]
    assert unchanged == [3, 4, 9]
    assert all(bool(tensor.isfinite().all()) for tensor in after[-1].values())
    assert [line["skipped"] for line in read_metrics(tmp_path) if "loss" in line] == [0, 0, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3]


def test_an_infinite_loss_with_a_finite_gradient_skips_its_update_too(tmp_path: Path) -> None:
    def loss(model: torch.nn.Module, source: Rows, target: Rows) -> Tensor:
        return plain(model, source, target) + float("inf")

    trainer = toy_trainer(tmp_path, loss=loss, steps=3)
    before = weights_of(trainer)
    trainer.train()
    assert largest_difference(before, weights_of(trainer)) == 0


@pytest.mark.parametrize("log_every", [1, 5])
def test_many_in_a_row_end_training_with_advice(tmp_path: Path, log_every: int) -> None:
    trainer = toy_trainer(tmp_path, loss=spoilt(set(range(6, 100)), float("nan")), steps=100, log_every=log_every)
    with pytest.raises(TrainingError, match=r"not finite 1\d times in a row at step 1\d; lower training\.learning_rate") as error:
        trainer.train()
    assert "\n" not in str(error.value)
    folder, state, problems = checkpoints.newest(tmp_path)
    assert folder is not None and state["step"] >= 4 and not problems
    saved = checkpoints.load_weights(folder / checkpoints.MODEL)
    assert all(bool(tensor.isfinite().all()) for tensor in saved.values())
