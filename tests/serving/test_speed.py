"""How large a batch may be for its time."""

import pytest

from qkv.serving.speed import FIRST, BatchTime


def settled(fixed: float, per_token: float, turn: float, item: float) -> float:
    """Return the time of the batches that follow when small and large ones are computed in turn."""
    times, seconds = BatchTime(), 0.0
    for _ in range(60):
        for cost in (item, max(item, min(2048.0, times.cost_of(turn)))):
            seconds = fixed + per_token * cost
            times.add(cost, seconds)
    return seconds


@pytest.mark.parametrize(("fixed", "per_token"), [(0.005, 0.0002), (0.005, 0.00002), (0.040, 0.0002)])
def test_batches_take_their_turn_although_others_are_small(fixed: float, per_token: float) -> None:
    assert settled(fixed, per_token, 0.010, 18) == pytest.approx(0.010 + 2 * fixed, rel=0.05)


def test_a_linear_time_has_no_fixed_part() -> None:
    assert settled(0.0, 0.0002, 0.010, 18) == pytest.approx(0.010, rel=0.1)


def test_batches_of_one_size_do_not_stay_so() -> None:
    times = BatchTime()
    assert times.cost_of(0.010) == FIRST
    for _ in range(10):
        times.add(18, 0.040)
    assert times.cost_of(0.010) > 2 * 18  # a second text fits
