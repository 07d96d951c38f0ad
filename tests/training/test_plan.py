"""Minutes become updates: the plan, what follows from it, and a run that is resumed in the middle of it."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.training.config import TrainingConfig
from qkv.training.log import read_metrics
from qkv.training.loop import Validation
from qkv.training.optimiser import learning_rate
from qkv.training.plan import longest_interval, steps_within, warn_of_few_updates
from toy_training import FakeClock, ToyTrainer, largest_difference, steps_of, toy_trainer, weights_of

SELDOM = {"log_every": 100, "save_every": 100, "validate_every": 100}


def test_minutes_become_steps_when_some_have_been_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(monkeypatch, 1.0)
    trainer = clock.on(toy_trainer(tmp_path, steps=None, minutes=1.5, **SELDOM))
    state = trainer.train()
    assert (state.step, state.steps) == (90, 90)
    assert state.seconds == pytest.approx(90)
    assert said_by(trainer) == [
        "90 steps on this machine: about 80 s to go",
        "fitted to 90 updates: training.validate_every 20 (not 100), save_every 20 (not 100), log_every 20 (not 100)",
    ]


@pytest.mark.parametrize(
    ("steps", "validated"), [(30, [10, 20, 30]), (60, [20, 40, 60]), (90, [20, 40, 60, 80, 90]), (200, [20, 40, 60, 80, 90])]
)
def test_of_steps_and_minutes_the_lesser_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, validated: list[int]
) -> None:
    clock, seen = FakeClock(monkeypatch, 1.0), []
    trainer = clock.on(toy_trainer(tmp_path, steps=steps, minutes=1.5, **SELDOM))
    trainer.validate = lambda step: seen.append(step) or Validation({}, 0.0)  # type: ignore[func-returns-value]
    assert trainer.train().step == min(steps, 90)
    assert steps_of(tmp_path) == seen == validated  # the end is validated and saved, wherever it comes


@pytest.mark.parametrize("stopped_at", [5, 25, 39, 40])
def test_minutes_hold_for_a_run_that_was_stopped_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_at: int
) -> None:
    clock = FakeClock(monkeypatch, 1.0)
    settings = {"steps": None, "minutes": 1.5, **SELDOM}
    first = clock.on(toy_trainer(tmp_path, **settings))
    first.stop_requested = lambda: first.state.step == stopped_at  # type: ignore[method-assign]
    assert first.train().step == stopped_at
    second = clock.on(toy_trainer(tmp_path, **settings))
    second.finished = lambda: second.state.step >= 200 or ToyTrainer.finished(second)  # type: ignore[method-assign]
    assert second.train().step == 90


def test_minutes_are_not_cut_short_by_a_slow_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(monkeypatch, 1.0)
    trainer = clock.on(toy_trainer(tmp_path, steps=None, minutes=1.5, **{**SELDOM, "validate_every": 5}))

    def slowly(step: int) -> Validation:
        clock.now += 1000
        return Validation({}, 0.0)

    trainer.validate = slowly
    assert trainer.train().step == 90


@pytest.mark.parametrize("cost", [1.0, 1.9, 4.0])
def test_a_second_stage_has_its_share_of_the_updates_and_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost: float
) -> None:
    """The estimate is 1.9, and the second stage is timed once it has begun."""
    clock, second = FakeClock(monkeypatch, 1.0), list[bool]()
    trainer = clock.on(toy_trainer(tmp_path, steps=None, minutes=10, **{**SELDOM, "log_every": 10}))
    trainer.objective.stages = lambda: ((0.5, 1.0), (0.5, 1.9))  # type: ignore[method-assign]

    def begin_update(done: float, device: torch.device) -> bool:
        second.append(done >= 0.5)
        clock.seconds = cost if second[-1] else 1.0
        return second[-1]

    trainer.objective.begin_update = begin_update  # type: ignore[method-assign]
    state = trainer.train()
    assert second == sorted(second), "a stage that has begun goes on"
    assert state.seconds == pytest.approx(600, rel=0.02)
    assert second.count(False) == pytest.approx(600 / 2.9, abs=2), "by the estimate"
    if cost == 1.9:
        assert second.count(True) == pytest.approx(second.count(False), abs=2)
        for row in [row for row in read_metrics(tmp_path) if "learning_rate" in row][1:]:
            wanted = learning_rate(row["step"], state.steps, trainer.width, trainer.config)
            assert row["learning_rate"] == pytest.approx(wanted, rel=0.03), "the plan was right from the start"


def test_time_that_is_over_leaves_no_updates_in_the_last_stage() -> None:
    stages = ((0.35, 1.0), (0.65 - 1e-12, 1.9))  # shares that rounding keeps below 1
    assert [steps_within(0.0, step, 0.1, stages, 1) - step for step in range(1, 400)] == [0] * 399


# The plan and what follows from it


def said_by(trainer: ToyTrainer) -> list[str]:
    """Return what a trainer printed, without the lines that show its progress."""
    return [line for line in trainer.progress.said if not line.startswith("step ")]


class Rehearsal:
    """A run without a model's work: its clock, learning rates, plans and validations."""

    def __init__(self, trainer: ToyTrainer, clock: FakeClock):
        self.trainer, self.rates, self.plans, self.validated = trainer, [], [], []
        (batch,) = itertools.islice(trainer.batches.starting(trainer.state.position), 1)
        trainer.batches.starting = lambda at: itertools.repeat(batch)  # type: ignore[method-assign]
        trainer.update, trainer.validate = self.update, self.validate  # type: ignore[method-assign]
        self.clock = clock
        clock.on(trainer)

    def update(self, batch: Any) -> None:
        trainer = self.trainer
        step = trainer.state.step + 1
        self.plans.append(trainer.planned_steps())
        self.rates.append(learning_rate(step, self.plans[-1], trainer.width, trainer.config))
        trainer.window.append((torch.zeros(()), 1, 1, 1))
        trainer.state = replace(trainer.state, step=step, position=batch.after)

    def validate(self, step: int) -> Validation:
        self.validated.append(step)
        return Validation({}, 0.0)


def rehearse(
    run: Path, monkeypatch: pytest.MonkeyPatch, updates: float, minutes: float = 2.0, first: float | None = None, **config: Any
) -> Rehearsal:
    """Rehearse a run whose minutes allow so many updates, with the settings of recipes of pretraining."""
    usual = {"steps": 1_000_000, "schedule": "linear", "learning_rate": 0.01, "warmup": 0.05, "averaging": "none"}
    seldom = {"validate_every": 1000, "save_every": 1000, "log_every": 50}
    trainer = toy_trainer(run, **{**usual, **seldom, "minutes": minutes, **config})
    rehearsal = Rehearsal(trainer, FakeClock(monkeypatch, minutes * 60 / updates, first))
    trainer.train()
    return rehearsal


@pytest.mark.parametrize(("schedule", "warmup"), [("linear", 0.05), ("cosine", 0.02), ("inverse-sqrt", 4000), ("linear", 0.3)])
@pytest.mark.parametrize("updates", [12, 41, 300, 5000])
def test_the_schedule_fits_the_updates_that_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, updates: int, schedule: str, warmup: float
) -> None:
    run = rehearse(tmp_path, monkeypatch, updates + 0.5, schedule=schedule, warmup=warmup)
    wanted = [learning_rate(step, updates, run.trainer.width, run.trainer.config) for step in range(1, updates + 1)]
    assert run.trainer.state.step == updates
    assert run.rates[3:] == wanted[3:]  # from the fourth update on
    assert max(run.rates) > 0.0072  # the peak is 0.01, and the shortest run misses it by less than its first four updates
    assert len(run.validated) >= (3 if updates > 20 else 2) and run.validated[-1] == updates
    assert steps_of(tmp_path)[-1] == updates
    assert len([line for line in read_metrics(tmp_path) if "loss" in line]) >= len(run.validated)


def test_twenty_thousand_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The long run keeps the recipe's settings, and nothing is said about fitting it."""
    run = rehearse(tmp_path, monkeypatch, 20_000.5, minutes=12, validate_every=2000, save_every=2000, log_every=1000)
    assert run.trainer.state.step == 20_000
    assert run.rates.index(max(run.rates)) == 999 and max(run.rates) == pytest.approx(0.01)
    assert run.rates[-1] == pytest.approx(0, abs=1e-12)
    assert run.validated == list(range(2000, 20_001, 2000))
    assert said_by(run.trainer) == ["20,000 steps on this machine: about 12 min to go"]
    assert run.trainer.progress.warnings == []


def test_a_slow_first_update_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = rehearse(tmp_path, monkeypatch, 120.5, first=30.0)  # about a second each; the first one compiles kernels
    assert run.trainer.state.step == 91
    assert run.plans[3:] == [91] * 88


def test_an_update_that_takes_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = rehearse(tmp_path, monkeypatch, 0.5)
    assert run.trainer.state.step == 1 and run.validated == steps_of(tmp_path) == [1]
    (warning,) = run.trainer.progress.warnings
    assert "training.minutes=2 allows about 1 updates" in warning


def test_slow_updates_are_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 100 updates the machine has other work too."""
    trainer = toy_trainer(tmp_path, steps=None, minutes=10.0, log_every=10, validate_every=1000, save_every=1000)
    run = Rehearsal(trainer, FakeClock(monkeypatch, 1.0))
    update = trainer.update

    def slower(batch: Any) -> None:
        run.clock.seconds = 1.0 if trainer.state.step < 100 else 2.0
        update(batch)

    trainer.update = slower  # type: ignore[method-assign]
    state = trainer.train()
    assert 600 <= state.seconds < 700 and state.step < 400


def test_a_second_stage_may_be_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the half of the updates on each takes twice as long; the learning rate still ends at the end of the time."""
    settings = {"steps": None, "minutes": 10.0, "schedule": "linear", "log_every": 10}
    trainer = toy_trainer(tmp_path, **settings, validate_every=1000, save_every=1000)
    run = Rehearsal(trainer, FakeClock(monkeypatch, 1.0))
    update = trainer.update

    def in_stages(batch: Any) -> None:
        run.clock.seconds = 1.0 if trainer.state.step < trainer.planned_steps() / 2 else 2.0
        update(batch)

    trainer.update = in_stages  # type: ignore[method-assign]
    state = trainer.train()
    assert state.seconds == pytest.approx(600, abs=10)


def test_a_run_may_be_given_more_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(monkeypatch, 1.0)
    assert clock.on(toy_trainer(tmp_path, steps=None, minutes=1.0)).train().step == 60
    assert clock.on(toy_trainer(tmp_path, steps=None, minutes=1.0)).train().step == 60  # it is finished
    assert clock.on(toy_trainer(tmp_path, steps=None, minutes=1.5)).train().step == 90
    assert clock.on(toy_trainer(tmp_path, steps=100)).train().step == 100


# The intervals


@pytest.mark.parametrize(
    ("steps", "interval"),
    [(1, 1), (2, 1), (5, 1), (6, 2), (41, 10), (59, 10), (60, 20), (149, 20), (150, 50), (300, 100), (10**5, 20_000)],
)
def test_intervals_are_round_and_at_most_a_third(steps: int, interval: int) -> None:
    assert longest_interval(steps) == interval


def test_steps_alone_keep_the_intervals(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, steps=12, warmup=3, **SELDOM)
    trainer.train()
    assert steps_of(tmp_path) == [12] and not any("fitted" in line for line in said_by(trainer))


def test_a_shortened_warmup_is_said_once_at_the_start(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, steps=12, warmup=4000)
    trainer.train()
    assert [line for line in said_by(trainer) if "fitted" in line] == ["fitted to 12 updates: training.warmup 3 (not 4,000)"]


# Too few


@pytest.mark.parametrize(("updates", "warned"), [(41, True), (299, True), (300, False), (5000, False)])
def test_few_updates_are_warned_of_once_and_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, updates: int, warned: bool
) -> None:
    soon: list[int] = []
    monkeypatch.setattr(
        "toy_training.RecordedProgress.warn", lambda self, what: soon.append(run.state.step) or self.warnings.append(what)
    )
    seldom = {"log_every": 10, "save_every": 1000, "validate_every": 1000}
    run = toy_trainer(tmp_path, steps=None, minutes=2.0, schedule="linear", warmup=0.05, **seldom)
    Rehearsal(run, FakeClock(monkeypatch, 120 / (updates + 0.5), first=10.0 if warned else None))
    run.train()
    assert len(run.progress.warnings) == len(soon) == warned and all(step == 10 for step in soon)
    # The result and the end of the run repeat it, and the log keeps it for a run that is resumed.
    assert run.health.summary() == run.progress.warnings
    logged = [line["warnings"]["few-updates"] for line in read_metrics(tmp_path) if "few-updates" in line.get("warnings", {})]
    assert logged == run.progress.warnings
    again = toy_trainer(tmp_path, steps=None, minutes=2.0)
    again.resume()
    assert again.health.summary() == run.progress.warnings


def test_few_updates_that_become_enough_are_said_to_have_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 40 updates the machine has less other work, which the plan sees after a quarter of the time."""
    trainer = toy_trainer(tmp_path, steps=None, minutes=10.0, log_every=10, validate_every=1000, save_every=1000)
    run = Rehearsal(trainer, FakeClock(monkeypatch, 3.0))
    update = trainer.update

    def faster(batch: Any) -> None:
        run.clock.seconds = 3.0 if trainer.state.step < 40 else 0.5
        update(batch)

    trainer.update = faster  # type: ignore[method-assign]
    assert trainer.train().step > 300
    (warning,) = trainer.progress.warnings
    assert "training.minutes=10 allows about 200 updates" in warning
    assert trainer.health.summary() == [f"{warning} (not at the end any more)"]


def test_the_warning_says_what_would_help() -> None:
    config = TrainingConfig(minutes=1, batch_tokens=4096)
    assert warn_of_few_updates(config, 41, 60 / 41) == (
        "training.minutes=1 allows about 41 updates on this machine, and a model hardly learns in fewer than 300; for about 500 "
        "updates set training.minutes=13, or choose a smaller model"
    ), "a batch of 320 tokens would take hardly less time than such a share of the time of 4096"
    assert "set training.minutes=4 or training.batch_tokens=1216 (now 4096), or" in warn_of_few_updates(config, 149, 60 / 149)
    assert "set training.minutes=250, or choose a smaller model" in warn_of_few_updates(config, 2, 30)


def test_few_updates_by_choice_are_not_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = rehearse(tmp_path, monkeypatch, 1000, steps=50)
    assert run.trainer.state.step == 50 and run.trainer.progress.warnings == []


# Resuming


PLANNED = {"steps": None, "minutes": 1.5, "schedule": "linear", "warmup": 0.2, "averaging": "checkpoints", "keep": 9, **SELDOM}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyTrainer]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        trainer = FakeClock(monkeypatch, 1.0).on(toy_trainer(tmp_path_factory.mktemp("whole"), **PLANNED))
        trainer.train()
    yield trainer


@pytest.mark.parametrize("stopped_at", [4, 9, 10, 25, 41, 70])
def test_resumed_in_the_middle_of_a_plan_is_never_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: ToyTrainer, stopped_at: int
) -> None:
    clock = FakeClock(monkeypatch, 1.0)
    first = clock.on(toy_trainer(tmp_path, **PLANNED))
    first.stop_requested = lambda: first.state.step == stopped_at  # type: ignore[method-assign]
    assert first.train().step == stopped_at
    second = clock.on(toy_trainer(tmp_path, **PLANNED))
    second.train()
    assert largest_difference(weights_of(whole), weights_of(second)) == 0
    assert second.steps_to_average() == whole.steps_to_average() == [20, 40, 60, 80, 90]
    assert replace(second.state, timed=0, replanned=0) == replace(whole.state, timed=0, replanned=0)
