"""Means that are summed in place, and reset when they are read."""

import pytest
import torch

from qkv.objectives.tally import Tally


def test_means_of_all_that_was_added() -> None:
    tally = Tally()
    tally.add("loss", torch.tensor(6.0), torch.tensor(2))
    tally.add("loss", torch.tensor(1.5), torch.tensor(3))
    tally.add("right", torch.tensor(3), torch.tensor(4))
    assert tally.read() == {"loss": 1.5, "right": 0.75}


def test_reading_begins_anew() -> None:
    tally = Tally()
    assert tally.read() == {}
    for value in (1.0, 5.0, -2.0):
        tally.add("loss", torch.tensor(value), torch.tensor(1))
        assert tally.read() == {"loss": value}
        assert tally.read() == {}


def test_the_mean_of_nothing_is_left_out() -> None:
    tally = Tally()
    tally.add("recall", torch.tensor(0.0), torch.tensor(0))
    tally.add("loss", torch.tensor(1.0), torch.tensor(1))
    assert tally.read() == {"loss": 1.0}


def test_a_sum_stays_where_it_is_in_memory() -> None:
    tally = Tally()
    tally.add("loss", torch.tensor(1.0), torch.tensor(1))
    kept = tally._sums["loss"]
    for _ in range(3):
        tally.read()
        tally.add("loss", torch.tensor(4.0), torch.tensor(2))
    assert tally._sums["loss"] is kept
    assert tally.read() == {"loss": 2.0}


def test_what_is_added_may_change_later() -> None:
    tally, total, count = Tally(), torch.tensor(1.0), torch.tensor(1)
    tally.add("loss", total, count)
    total.fill_(9)
    count.zero_()
    assert tally.read() == {"loss": 1.0}


def test_it_holds_no_gradient_and_loses_no_count() -> None:
    tally, weight = Tally(), torch.ones((), requires_grad=True)
    for _ in range(5):
        tally.add("loss", weight * 16777217, torch.tensor(16777217))  # 2^24 + 1, which float32 does not have
    assert not tally._sums["loss"].requires_grad
    assert float(tally._sums["loss"][1]) == 5 * 16777217
    assert tally.read()["loss"] == pytest.approx(1, rel=1e-6)
