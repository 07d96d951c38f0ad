"""How large a batch may be for its time."""

import math

import pytest

from qkv.serving.speed import BatchTime


def settled(fixed: float, per_token: float, turn: float, item: float) -> float:
    """Return the time of the batches that follow when small and large ones are computed in turn."""
    times, seconds = BatchTime(), 0.0
    for _ in range(60):
        for cost in (item, max(item, min(2048.0, times.cost_of(turn)))):
            seconds = fixed + per_token * cost
            times.add(cost, seconds)
    return seconds


@pytest.mark.parametrize("per_token", [0.0002, 0.00002])
def test_batches_take_their_turn_although_others_are_small(per_token: float) -> None:
    assert settled(0.005, per_token, 0.025, 18) == pytest.approx(0.025, rel=0.01)


def test_batches_do_not_stay_small_where_the_smallest_takes_longer_than_a_turn() -> None:
    assert settled(0.040, 0.0002, 0.025, 18) == pytest.approx(0.080, rel=0.01)


def test_batches_of_one_size_tell_only_their_rate() -> None:
    times = BatchTime()
    assert times.cost_of(0.025) == math.inf
    for _ in range(10):
        times.add(100, 0.010)
    assert times.cost_of(0.025) == pytest.approx(250)
