"""The learning rate against the paper's formula, the shapes of the other schedules, and every recipe at any length."""

import itertools
import math

import pytest

from qkv.base.errors import ConfigError
from qkv.recipes import load_recipe, recipe_names
from qkv.training.config import TrainingConfig
from qkv.training.optimiser import learning_rate


@pytest.mark.parametrize("width", [512, 1024])
@pytest.mark.parametrize("warmup", [1, 400, 4000])
def test_inverse_sqrt_is_equation_3_of_the_paper(width: int, warmup: int) -> None:
    config = TrainingConfig(steps=100_000, warmup=warmup)
    for step in (1, 2, warmup - 1 or 1, warmup, warmup + 1, 10 * warmup, 100_000):
        wanted = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert learning_rate(step, 100_000, width, config) == pytest.approx(wanted, rel=1e-12)


def test_a_peak_of_ones_own_keeps_the_shape() -> None:
    paper, own = TrainingConfig(steps=5000, warmup=100), TrainingConfig(steps=5000, warmup=100, learning_rate=0.5)
    ratios = {round(learning_rate(s, 5000, 64, own) / learning_rate(s, 5000, 64, paper), 9) for s in (1, 50, 100, 101, 5000)}
    assert learning_rate(100, 5000, 64, own) == 0.5
    assert len(ratios) == 1


def test_cosine_rises_to_the_peak_and_falls_to_nothing() -> None:
    config = TrainingConfig(steps=1100, warmup=100, schedule="cosine", learning_rate=0.2)
    rates = [learning_rate(step, 1100, 64, config) for step in range(1, 1101)]
    assert rates[99] == max(rates) == 0.2
    assert rates[49] == pytest.approx(0.1)  # half of the way up
    assert rates[599] == pytest.approx(0.1)  # half of the way down
    assert rates[349] == pytest.approx(0.1 * (1 + math.cos(math.pi / 4)))
    assert rates[-1] == pytest.approx(0, abs=1e-12)
    assert all(a > b for a, b in itertools.pairwise(rates[99:]))


def test_cosine_does_not_rise_again_past_the_end() -> None:
    config = TrainingConfig(steps=100, warmup=10, schedule="cosine", learning_rate=0.2)
    assert learning_rate(150, 100, 64, config) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("schedule", ["inverse-sqrt", "cosine"])
def test_without_warmup_the_first_step_is_near_the_peak(schedule: str) -> None:
    config = TrainingConfig(steps=1000, warmup=0, schedule=schedule, learning_rate=0.2)
    assert learning_rate(1, 1000, 64, config) == pytest.approx(0.2, rel=1e-4)


def test_linear_falls_by_the_same_at_each_step() -> None:
    config = TrainingConfig(steps=1100, warmup=100, schedule="linear", learning_rate=0.2)
    rates = [learning_rate(step, 1100, 64, config) for step in (50, 100, 350, 600, 1100)]
    assert rates == pytest.approx([0.1, 0.2, 0.15, 0.1, 0])


def test_a_warmup_below_1_is_a_share_of_the_steps() -> None:
    share, steps = (TrainingConfig(steps=1000, warmup=w, schedule="linear", learning_rate=0.2) for w in (0.1, 100))
    assert all(learning_rate(s, 1000, 64, share) == learning_rate(s, 1000, 64, steps) for s in (1, 99, 100, 101, 900))


@pytest.mark.parametrize(("steps", "warmup"), [(10, 3), (41, 12), (1000, 300), (13_333, 3999), (13_334, 4000), (10**6, 4000)])
def test_a_warmup_in_updates_is_at_most_three_tenths_of_all(steps: int, warmup: int) -> None:
    config = TrainingConfig(steps=steps)
    rates = [learning_rate(step, steps, 512, config) for step in range(1, min(steps, 5000) + 1)]
    assert config.warmup_steps(steps) == warmup
    assert rates.index(max(rates)) == warmup - 1
    assert max(rates) == pytest.approx((512 * 4000) ** -0.5)  # the paper's peak, however short the warm-up is


def test_a_warmup_given_as_a_share_is_kept() -> None:
    assert TrainingConfig(steps=1000, warmup=0.5).warmup_steps(1000) == 500


SETTINGS = {"translation": ["data.train=a.tsv", "data.dev=b.tsv"], "pretraining": ["data.text=a.txt"]}


def training_of(name: str) -> TrainingConfig:
    """Return the training section of a recipe that comes with qkv."""
    for settings in (SETTINGS["pretraining"], SETTINGS["translation"], [*SETTINGS["translation"], "start=runs/x"]):
        try:
            return load_recipe(name, settings).training
        except ConfigError:
            continue
    raise AssertionError(f"no settings are known that complete the recipe {name}")


@pytest.mark.parametrize("steps", [10, 41, 100, 300, 2000, 50_000, 1_000_000])
@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_has_a_sound_schedule_at_any_length(name: str, steps: int) -> None:
    """The rate rises to its peak within the first third, is above a hundredth of it most of the time, and ends as it should."""
    config = training_of(name)
    at = [1 + (steps - 1) * i // min(steps - 1, 2000) for i in range(min(steps - 1, 2000) + 1)]
    at = sorted({*at, max(1, config.warmup_steps(steps))})
    rates = [learning_rate(step, steps, 256, config) for step in at]
    peak = config.learning_rate or (256 * config.configured_warmup(steps)) ** -0.5
    top = rates.index(max(rates))
    assert rates[top] == pytest.approx(peak, rel=1e-9)
    assert at[top] <= max(1, 0.3 * steps)
    assert all(a < b for a, b in itertools.pairwise(rates[: top + 1])) and all(a > b for a, b in itertools.pairwise(rates[top:]))
    assert sum(rate > peak / 100 for rate in rates) >= 0.9 * len(rates)
    end = {"inverse-sqrt": math.sqrt(max(1, config.warmup_steps(steps)) / steps), "cosine": 0.0, "linear": 0.0}
    assert rates[-1] == pytest.approx(peak * end[config.schedule], abs=1e-12)
