"""The learning rate against the paper's formula, and the shapes of the other schedules."""

import itertools
import math

import pytest

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
    paper, own = TrainingConfig(steps=10, warmup=100), TrainingConfig(steps=10, warmup=100, learning_rate=0.5)
    ratios = {round(learning_rate(s, 10, 64, own) / learning_rate(s, 10, 64, paper), 9) for s in (1, 50, 100, 101, 5000)}
    assert learning_rate(100, 10, 64, own) == 0.5
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
