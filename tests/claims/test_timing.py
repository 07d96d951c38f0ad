"""Time for claims: the shortest of several runs, the first of which does not count."""

from collections.abc import Iterator

import pytest

from qkv.claims import timing


def test_the_shortest_run_after_the_first_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0

    def work(costs: Iterator[float]) -> None:
        nonlocal clock
        clock += next(costs)

    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock)
    costs = iter([0.001, 5.0, 3.0, 4.0, 9.0])
    assert timing.seconds(lambda: work(costs), times=3) == pytest.approx(3.0)
    assert next(costs) == 9.0, "enough time was measured"
    costs = iter([0.01] * 8)
    assert timing.seconds(lambda: work(costs), times=2, enough=0.055) == pytest.approx(0.01)
    assert len([*costs]) == 1, "short work is repeated until there is enough"
