"""The loop validates, saves and stops when it should; EMA weights."""

import itertools
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from qkv.base.errors import ConfigError
from qkv.data.batches import Position
from qkv.training.log import read_metrics
from qkv.training.loop import Validation
from toy_training import (
    FakeClock,
    RecordedProgress,
    largest_difference,
    steps_of,
    toy_batches,
    toy_model,
    toy_trainer,
    weights_of,
)


def test_a_trained_model_is_better_than_an_untrained_one(tmp_path: Path) -> None:
    toy_trainer(tmp_path, steps=60).train()
    losses = [line["loss"] for line in read_metrics(tmp_path) if "loss" in line]
    assert len(losses) == 60 and losses[-1] < losses[0] - 0.3


def test_the_average_over_training_is_the_one_of_the_formula(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, averaging="ema", ema_decay=0.5, steps=8)
    wanted, seen = weights_of(trainer), []

    def follow(step: int) -> Validation:
        seen.append(largest_difference(wanted, weights_of(trainer)))  # the average is what is validated
        return Validation({}, 0.0)

    update = trainer.update

    def watched(batch: object) -> None:
        update(batch)  # type: ignore[arg-type]
        step = trainer.state.step
        decay = min(0.5, (1 + step) / (10 + step))
        for name, now in weights_of(trainer).items():
            wanted[name] = decay * wanted[name] + (1 - decay) * now

    trainer.update, trainer.validate = watched, follow  # type: ignore[method-assign]
    trainer.train()
    assert len(seen) == 2 and max(seen) < 1e-6
    assert largest_difference(wanted, trainer.average) < 1e-6
    assert largest_difference(wanted, weights_of(trainer)) > 1e-3  # training itself goes on with its own weights


def test_a_validation_leaves_weights_and_mode_as_they_were(tmp_path: Path) -> None:
    modes = []
    trainer = toy_trainer(tmp_path, averaging="ema", steps=4)
    trainer.validate = lambda step: modes.append(trainer.model.training) or Validation({}, 0.0)  # type: ignore[func-returns-value]
    trainer.train()
    plain = toy_trainer(tmp_path / "plain", averaging="none", steps=4)
    plain.train()
    assert modes == [False] and trainer.model.training
    assert largest_difference(weights_of(trainer), weights_of(plain)) == 0


def test_validation_and_saving_come_when_they_are_due(tmp_path: Path) -> None:
    seen: list[int] = []
    trainer = toy_trainer(tmp_path, steps=11, validate_every=4, save_every=3, keep=9)
    trainer.validate = lambda step: seen.append(step) or Validation({}, float(step))  # type: ignore[func-returns-value]
    trainer.train()
    assert seen == [4, 8, 11]
    assert steps_of(tmp_path) == [3, 4, 6, 8, 9, 11]
    assert (trainer.state.best, trainer.state.best_step) == (11, 11)


def test_an_objective_is_told_the_progress_of_the_training(tmp_path: Path) -> None:
    seen: list[float] = []
    for steps in (3, 5):  # the second training resumes the first
        trainer = toy_trainer(tmp_path, steps=steps)
        trainer.objective.begin_update = lambda done, device: seen.append(done)  # type: ignore[method-assign]
        trainer.train()
    assert seen == pytest.approx([0, 1 / 3, 2 / 3, 3 / 5, 4 / 5])


def test_patience_ends_training_after_validations_without_a_better_score(tmp_path: Path) -> None:
    scores = {2: 1.0, 4: 3.0, 6: 2.0, 8: 3.0, 10: 9.0}
    trainer = toy_trainer(tmp_path, steps=100, validate_every=2, patience=2)
    trainer.validate = lambda step: Validation({}, scores[step])
    state = trainer.train()
    assert (state.step, state.best, state.best_step, state.validations_since_best) == (8, 3.0, 4, 2)
    assert 4 in steps_of(tmp_path)  # the best weights are still there


def test_a_better_score_in_time_renews_the_patience(tmp_path: Path) -> None:
    scores = itertools.cycle([3.0, 2.0, 4.0, 3.5, 5.0, 4.0])
    trainer = toy_trainer(tmp_path, steps=12, validate_every=2, patience=2)
    trainer.validate = lambda step: Validation({}, next(scores))
    assert trainer.train().step == 12


def test_a_run_out_of_patience_stays_stopped_when_started_again(tmp_path: Path) -> None:
    for _ in range(2):
        trainer = toy_trainer(tmp_path, steps=100, validate_every=2, patience=1)
        trainer.validate = lambda step: Validation({}, -float(step))
        assert trainer.train().step == 4


def test_resumed_in_the_middle_of_an_epoch_is_never_interrupted(tmp_path: Path) -> None:
    settings = {"averaging": "ema", "schedule": "inverse-sqrt", "warmup": 1}  # rates that do not depend on the last step
    whole = toy_trainer(tmp_path / "whole", **settings)
    whole.train()
    for steps in (4, 8, 12):
        part = toy_trainer(tmp_path / "parts", steps=steps, **settings)
        part.train()
    assert largest_difference(weights_of(whole), weights_of(part)) == 0
    assert largest_difference(whole.average, part.average) == 0
    assert part.state.position == whole.state.position and part.progress.warnings == []


def test_time_for_validation_is_not_time_for_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(monkeypatch, 1.0)
    trainer = clock.on(toy_trainer(tmp_path, steps=8, validate_every=2))

    def slowly(step: int) -> Validation:
        clock.now += 1000
        return Validation({}, 0.0)

    trainer.validate = slowly
    assert trainer.train().seconds == pytest.approx(8)


def test_a_signal_between_two_looks_for_one_still_saves(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, save_every=100, validate_every=100)
    answers = iter([False, False, False, True, True, True])  # the signal comes while step 2 is being finished
    trainer.stop_requested = lambda: next(answers)  # type: ignore[method-assign]
    step = trainer.train().step
    assert steps_of(tmp_path) == [step]


def test_progress_says_where_it_goes_on_from(tmp_path: Path) -> None:
    toy_trainer(tmp_path, steps=4).train()
    trainer = toy_trainer(tmp_path, steps=8)
    trainer.train()
    assert isinstance(trainer.progress, RecordedProgress) and trainer.progress.said[0] == "resuming from step 4 of 8"


def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    first, second = toy_trainer(tmp_path / "1"), toy_trainer(tmp_path / "2")
    third = toy_trainer(tmp_path / "3", model=toy_model(toy_model().config.model_copy(update={"dropout": 0.3})))
    fourth = toy_trainer(tmp_path / "4", model=toy_model(toy_model().config.model_copy(update={"dropout": 0.3})))
    for trainer in (first, second, third, fourth):
        torch.rand(3)  # whatever else draws random numbers does not matter
        trainer.train()
    assert largest_difference(weights_of(first), weights_of(second)) == 0
    assert largest_difference(weights_of(third), weights_of(fourth)) == 0
    assert largest_difference(weights_of(first), weights_of(third)) > 1e-4


def test_after_training_the_memory_of_updates_is_free(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path)
    trainer.train()
    assert trainer.optimiser.state
    trainer.release()
    assert not trainer.optimiser.state and all(parameter.grad is None for parameter in trainer.parameters)


def test_a_batch_of_what_is_left_over_is_no_reason_to_refuse_processes(tmp_path: Path) -> None:
    """Only batches that always have fewer rows than processes are one."""
    for processes in (4, 5):
        trainer = toy_trainer(tmp_path / str(processes), steps=1)
        trainer.batches, trainer.world_size = toy_batches(pairs=61, tokens=96), processes
        starting = trainer.batches.starting
        assert [batch.rows for batch in itertools.islice(starting(Position()), 7)] == [4, 4, 4, 4, 1, 4, 4]
        trainer.batches.starting = lambda at, starting=starting: starting(Position(batch=4))  # type: ignore[method-assign, misc]
        with pytest.raises(ConfigError, match="5 processes share batches of 4 rows") if processes == 5 else nullcontext():
            trainer.train()
        assert trainer.state.step == (processes == 4)
