"""Verdicts on made-up figures: no effect does not hold, few noisy figures are undecided, and rules are exclusive."""

import math

import numpy as np
import pytest

from qkv.base.errors import ConfigError
from qkv.claims.verdict import (
    FAILS,
    HOLDS,
    PARTLY,
    UNDECIDED,
    Always,
    AtMost,
    Higher,
    Lower,
    Same,
    VerdictRule,
    decide,
    interval_of_mean,
    t_probability,
    t_quantile,
)


def figures(seeds: int, effect: float, noise: float, seed: int = 0) -> dict[str, dict[str, list[float]]]:
    """Two variants whose figures differ by an effect, over a common part that differs much more between seeds."""
    rng = np.random.default_rng(seed)
    common = rng.normal(0, 10, seeds)
    return {
        "a": {"x": (100 + common + effect + rng.normal(0, noise, seeds)).tolist()},
        "b": {"x": (100 + common).tolist()},
    }


HIGHER = Higher("a is higher", "x", "a", than="b", by=1.0)


@pytest.mark.parametrize(
    ("rule", "seeds", "effect", "noise", "outcome"),
    [
        (HIGHER, 5, 2.0, 0.1, HOLDS),
        (HIGHER, 5, 0.0, 0.0, FAILS),  # the effect is switched off: both are the same
        (HIGHER, 40, 0.0, 1.0, FAILS),  # no effect, and much data
        (HIGHER, 5, 0.5, 0.01, FAILS),  # a real effect that is too small to matter
        (HIGHER, 5, -2.0, 0.1, FAILS),  # the other direction
        (HIGHER, 5, 0.0, 20.0, UNDECIDED),  # few noisy data
        (HIGHER, 2, 2.0, 0.1, UNDECIDED),  # too few seeds, however clear
        (Lower("a is lower", "x", "a", than="b", by=1.0), 5, -2.0, 0.1, HOLDS),
        (Lower("a is lower", "x", "a", than="b", by=1.0), 5, 2.0, 0.1, FAILS),
        (Higher("by a factor", "x", "a", than="b", times=1.5), 5, 100.0, 0.1, HOLDS),
        (Higher("by a factor", "x", "a", than="b", times=1.5), 5, 1.0, 0.1, FAILS),
        (Same("no difference", "x", "a", than="b", within=1.0), 5, 0.0, 0.1, HOLDS),
        (Same("no difference", "x", "a", than="b", within=1.0), 5, 0.0, 20.0, UNDECIDED),  # not shown is not equal
        (Same("no difference", "x", "a", than="b", within=1.0), 5, 2.0, 0.1, FAILS),
        (AtMost("a small cost", "x", ("a", "b"), at_most=1.0), 5, 0.5, 0.1, HOLDS),
        (AtMost("a small cost", "x", ("a", "b"), at_most=1.0), 5, 2.0, 0.1, FAILS),
        (AtMost("a small cost", "x", ("a", "b"), at_most=1.0), 5, 1.0, 1.0, UNDECIDED),
        (AtMost("a small cost", "x", ("a", "b"), at_most=1.0), 2, 0.5, 0.0, UNDECIDED),  # too few seeds
        (Higher("than a number", "x", "a", than=50.0, by=1.0), 8, 0.0, 0.1, HOLDS),
        (Higher("an interaction", "x", ("a", "b"), than=0.0, by=1.0), 5, 2.0, 0.1, HOLDS),
    ],
)
def test_outcomes(rule: VerdictRule, seeds: int, effect: float, noise: float, outcome: str) -> None:
    finding = rule.judge(figures(seeds, effect, noise))
    assert finding.outcome == outcome, finding


def test_without_an_effect_hardly_any_of_many_experiments_holds() -> None:
    rng = np.random.default_rng(1)
    outcomes = [Higher("a", "x", "a", than=0.0, by=0.01).judge({"a": {"x": rng.normal(0, 1, 5).tolist()}}) for _ in range(2000)]
    share = np.mean([finding.outcome == HOLDS for finding in outcomes])
    assert 0.01 < share < 0.04  # half of 5 %: the other half is significant in the other direction
    assert np.mean([finding.outcome == FAILS for finding in outcomes]) < 0.05


def test_a_property_holds_in_every_seed_or_not_at_all() -> None:
    found = {"a": {"x": [1e-7, 2e-7, 1e-3]}}
    assert Always("exact", "x", "a", at_most=1e-2).judge(found).outcome == HOLDS
    assert Always("exact", "x", "a", at_most=1e-5).judge(found).outcome == FAILS
    assert Always("seen", "x", "a", at_least=1e-8).judge(found).outcome == HOLDS
    few = Always("exact", "x", "a", at_most=1e-2).judge({"a": {"x": [0.0]}})
    assert (few.outcome, few.reason) == (UNDECIDED, "1 seed; at least 3 are needed")


@pytest.mark.parametrize(
    ("rule", "asks"),
    [
        (HIGHER, "a: higher than b by at least 1"),
        (Lower("lower", "x", "a", than="b", times=2.0), "a: lower than b by a factor of at least 2"),
        (Higher("than a number", "x", "a", than=0.5, by=0.1), "a: at least 0.6"),
        (Lower("than a number", "x", "a", than=2.5, by=1.0), "a: at most 1.5"),
        (Same("no difference", "x", "a", than="b", within=0.1), "a: within 0.1 of b"),
        (AtMost("a small cost", "x", ("a", "b"), at_most=0.1), "a minus b: at most 0.1"),
        (Always("exact", "x", "a", at_most=1e-5), "a: at most 1e-05 in every seed"),
    ],
)
def test_rules_say_what_they_ask_for(rule: VerdictRule, asks: str) -> None:
    assert rule.asks == asks


def test_parts_make_a_verdict_and_a_failed_control_undoes_it() -> None:
    clear = figures(6, 2.0, 0.1)
    good, bad = HIGHER, Higher("far higher", "x", "a", than="b", by=9.0)
    open_question = Higher("than itself in noise", "y", "a", than=0.0, by=1.0)
    clear["a"]["y"] = np.random.default_rng(3).normal(0.5, 3, 6).tolist()
    assert decide(clear, [good]).verdict == HOLDS
    assert decide(clear, [bad]).verdict == FAILS
    assert decide(clear, [good, bad]).verdict == PARTLY
    assert decide(clear, [good, open_question]).verdict == UNDECIDED
    failed = decide(clear, [good], controls=[bad])
    assert failed.verdict == UNDECIDED
    assert "far higher" in failed.reason


def test_further_predictions_are_judged_and_do_not_count() -> None:
    clear = figures(6, 2.0, 0.1)
    bad = Higher("far higher", "x", "a", than="b", by=9.0)
    found = decide(clear, [HIGHER], further=[bad])
    assert found.verdict == HOLDS and [one.outcome for one in found.further] == [FAILS]
    assert decide(clear, [bad], further=[HIGHER]).verdict == FAILS, "a use of what failed does not make it hold partly"


@pytest.mark.parametrize(
    ("values", "outcome"), [([0.2, 0.8, 0.35, 0.7, 0.5], UNDECIDED), ([0.6, 0.7, 0.65], HOLDS), ([0.3, 0.35, 0.32], FAILS)]
)
def test_a_number_is_exceeded_by_the_whole_interval(values: list[float], outcome: str) -> None:
    """The mean of the first is 0.51, and its interval reaches from 0.2 to 0.8."""
    found = Higher("more than half", "x", "a", than=0.0, by=0.5).judge({"a": {"x": values}})
    assert (found.outcome, found.bound, found.wanted) == (outcome, "at least", 0.5)
    less = Lower("less than half", "x", "a", than=1.0, times=2.0).judge({"a": {"x": values}})
    assert less.outcome == {HOLDS: FAILS, FAILS: HOLDS}.get(outcome, UNDECIDED) and (less.bound, less.wanted) == ("at most", 0.5)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (9, 2.26216), (30, 2.04227)])
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=1e-5)
    assert t_probability(quantile, freedom) == pytest.approx(0.975, abs=1e-6)
    assert t_probability(-quantile, freedom) == pytest.approx(0.025, abs=1e-6)


def test_the_interval_is_that_of_a_known_example() -> None:
    found = interval_of_mean([5.1, 4.9, 5.6, 5.8, 4.7])  # mean 5.22, s = 0.4658, t(4) = 2.7764
    assert (found.mean, found.low, found.high) == pytest.approx((5.22, 4.6416, 5.7984), abs=1e-3)
    assert interval_of_mean([2.0, 2.0, 2.0]).p == 0
    assert interval_of_mean([0.0, 0.0, 0.0]).p == 1
    assert math.isinf(interval_of_mean([1.0]).high)


@pytest.mark.parametrize("size", [{}, {"by": 0.0}, {"by": -1.0}, {"times": 1.0}, {"by": 1.0, "times": 2.0}])
def test_a_rule_without_an_effect_that_matters_is_refused(size: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="effect that matters"):
        Higher("a is higher", "x", "a", than="b", **size)
