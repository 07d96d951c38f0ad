"""Verdicts, computed from figures alone.

A claim has parts. The rule of a part compares figures of variants, seed by seed: same data, same random draws, one thing changed.
It looks at the 95 % interval of the mean difference (Student's t over seeds):

- holds: the interval excludes 0 in the predicted direction, and the mean is at least as large as the effect that matters;
- does not hold here: the interval lies below the effect that matters (there is none, a smaller one, or the opposite);
- undecided: neither; more seeds may tell.

A rule about a number (chance, the least that must be reached, the most that something may cost) holds if the whole interval lies
on the predicted side of it, and does not hold if the whole interval lies on the other. A rule of equality holds if the whole
interval lies within its bounds, and does not hold if the interval excludes 0 and the mean lies beyond a bound. So a verdict of
either kind needs data, and few noisy figures give "undecided".

A claim holds if all of its parts do, and does not hold if none does. If it is false, at least one of its parts is, and holds by
chance in at most 5 % of all cases: so many parts make no false alarm more likely. Further predictions (reasons, limits, uses)
are judged and shown, and do not count. Controls are rules too: if one fails, the experiment could not have shown the effect, and
the verdict is "undecided" whatever the parts say.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar

from qkv.base.errors import ConfigError

HOLDS, PARTLY, FAILS, UNDECIDED = "holds", "holds partly", "does not hold here", "undecided"
VERDICTS = (HOLDS, PARTLY, FAILS, UNDECIDED)
LEVEL = 0.05  # chance that an interval misses the true mean
MIN_SEEDS = 3  # fewer have no usable spread

Figures = Mapping[str, Mapping[str, Sequence[Any]]]  # variant -> figure -> one value for each seed
Side = str | float | tuple[str, str]  # a variant, a constant, or the difference between two variants (first - second)


@dataclass(frozen=True)
class Finding:
    """The outcome of a rule; the numbers are None for a rule without statistics."""

    says: str
    outcome: str
    reason: str
    figure: str
    mean: float | None = None  # of the difference, in the predicted direction
    low: float | None = None  # of its interval
    high: float | None = None
    p: float | None = None  # two-sided, that there is no difference; None where that is not asked
    wanted: float | None = None  # the effect that matters, or the bound
    ratio: bool = False  # whether the numbers are factors, not differences
    bound: str = ""  # "at least" or "at most", of a rule about a number: the mean is that of the figure itself


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, with the findings behind it."""

    verdict: str
    reason: str
    parts: list[Finding]
    further: list[Finding]
    controls: list[Finding]

    def json(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return asdict(self)


def in_words(side: Side) -> str:
    """Return a side of a comparison in words."""
    if isinstance(side, tuple):
        return f"{side[0]} minus {side[1]}"
    return side if isinstance(side, str) else f"{side:g}"


@dataclass(frozen=True)
class VerdictRule(ABC):
    """One part of a claim, or a control: what it says in words, and the figure that it is about."""

    says: str
    figure: str
    of: Side

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides of the comparison."""
        return (self.of,)

    def variants(self) -> set[str]:
        """Return the variants that the rule reads."""
        found: set[str] = set()
        for side in self.sides:
            found |= {side} if isinstance(side, str) else set(side) if isinstance(side, tuple) else set()
        return found

    @property
    @abstractmethod
    def asks(self) -> str:
        """What must be so of the figure, in words: "one head: at least 0.05 above 4 heads"."""

    @abstractmethod
    def compare(self, figures: Figures) -> Finding:
        """Compare the figures of enough seeds."""

    def judge(self, figures: Figures) -> Finding:
        """Compare the figures; undecided where there are too few seeds."""
        count = len(self.values(self.of, figures))
        if count < MIN_SEEDS:
            return Finding(self.says, UNDECIDED, f"{count} seed{'s' * (count > 1)}; at least {MIN_SEEDS} are needed", self.figure)
        return self.compare(figures)

    def values(self, side: Side, figures: Figures) -> list[float]:
        """Return one value for each seed."""
        if isinstance(side, tuple):
            return [a - b for a, b in zip(*(self.values(name, figures) for name in side), strict=True)]
        if not isinstance(side, str):
            seeds = next(iter(next(iter(figures.values())).values()))
            return [float(side)] * len(seeds)
        return [float(value) for value in figures[side][self.figure]]

    def judge_bound(self, figures: Figures, bound: float, above: bool) -> Finding:
        """Say whether the whole interval of the mean of `of` lies above a bound, or below it."""
        found = interval_of_mean(self.values(self.of, figures))
        if found.low <= bound <= found.high:
            outcome, reason = UNDECIDED, "the bound lies within the interval"
        else:
            outcome = HOLDS if (found.low > bound) == above else FAILS
            reason = f"the whole interval lies {'above' if found.low > bound else 'below'} the bound"
        name = "at least" if above else "at most"
        return Finding(self.says, outcome, reason, self.figure, found.mean, found.low, found.high, wanted=bound, bound=name)


@dataclass(frozen=True)
class Compared(VerdictRule):
    """A comparison of two sides over seeds."""

    than: Side

    @property
    def sides(self) -> tuple[Side, ...]:
        return self.of, self.than

    def interval(self, figures: Figures, ratio: bool = False) -> "Interval":
        """Return the interval of the mean difference, of logarithms for a ratio."""
        of, than = (self.values(side, figures) for side in (self.of, self.than))
        if ratio and min(*of, *than) <= 0:
            raise ConfigError(f"{self.says}: a ratio of {self.figure} needs positive values, got {min(*of, *than):g}; use by=")
        return interval_of_mean([math.log(a / b) if ratio else a - b for a, b in zip(of, than, strict=True)])


@dataclass(frozen=True)
class Higher(Compared):
    """`of` is higher than `than`, by a difference of at least `by` or a factor of at least `times`.

    Where `than` is a number, such as chance, the whole interval must lie above what these make of it.
    """

    direction: ClassVar[int] = 1
    by: float | None = None
    times: float | None = None

    def __post_init__(self) -> None:
        large_enough = self.by > 0 if self.by is not None else self.times is not None and self.times > 1
        if not large_enough or (self.by is not None and self.times is not None):
            raise ConfigError(f"{self.says}: give the effect that matters: by= above 0, or times= above 1")

    @property
    def bound(self) -> float | None:
        """The number that `of` must be beyond; None where it is compared with a variant."""
        if isinstance(self.than, str | tuple):
            return None
        return self.than * self.times**self.direction if self.times else self.than + self.direction * (self.by or 0.0)

    @property
    def asks(self) -> str:
        if self.bound is not None:
            return f"{in_words(self.of)}: at {'least' if self.direction > 0 else 'most'} {self.bound:g}"
        size = f"by a factor of at least {self.times:g}" if self.times else f"by at least {self.by:g}"
        return f"{in_words(self.of)}: {'higher' if self.direction > 0 else 'lower'} than {in_words(self.than)} {size}"

    def compare(self, figures: Figures) -> Finding:
        if self.bound is not None:
            return self.judge_bound(figures, self.bound, self.direction > 0)
        ratio = self.times is not None
        wanted = math.log(self.times) if self.times is not None else self.by
        assert wanted is not None
        found = self.interval(figures, ratio)
        mean = self.direction * found.mean
        low, high = sorted((self.direction * found.low, self.direction * found.high))
        if low > 0 and mean >= wanted:
            outcome, reason = HOLDS, "the effect is there, and as large as it must be"
        elif high < wanted:
            other = "the effect goes the other way" if high < 0 else "the effect is smaller than it must be" if low > 0 else None
            outcome, reason = FAILS, other or "there is no effect of that size"
        else:
            outcome, reason = UNDECIDED, "the interval allows an effect that matters and one that does not"
        if ratio:
            mean, low, high, wanted = (math.exp(value) for value in (mean, low, high, wanted))
        return Finding(self.says, outcome, reason, self.figure, mean, low, high, found.p, wanted, ratio)


@dataclass(frozen=True)
class Lower(Higher):
    """`of` is lower than `than`, by a difference of at least `by` or a factor of at least `times`."""

    direction: ClassVar[int] = -1


@dataclass(frozen=True)
class Same(Compared):
    """`of` and `than` differ by less than `within`: the whole interval lies inside, not just the mean."""

    within: float

    def __post_init__(self) -> None:
        if self.within <= 0:
            raise ConfigError(f"{self.says}: within= must be above 0, got {self.within:g}")

    @property
    def asks(self) -> str:
        return f"{in_words(self.of)}: within {self.within:g} of {in_words(self.than)}"

    def compare(self, figures: Figures) -> Finding:
        found = self.interval(figures)
        if -self.within < found.low and found.high < self.within:
            outcome, reason = HOLDS, "any difference is smaller than matters"
        elif (found.low > 0 or found.high < 0) and abs(found.mean) >= self.within:
            outcome, reason = FAILS, "there is a difference, and it is large enough to matter"
        else:
            outcome, reason = UNDECIDED, "the interval allows an effect that matters and one that does not"
        return Finding(self.says, outcome, reason, self.figure, found.mean, found.low, found.high, found.p, self.within)


@dataclass(frozen=True)
class AtMost(VerdictRule):
    """The mean of `of`, such as a cost, is at most a bound: the whole interval lies below."""

    at_most: float

    @property
    def asks(self) -> str:
        return f"{in_words(self.of)}: at most {self.at_most:g}"

    def compare(self, figures: Figures) -> Finding:
        return self.judge_bound(figures, self.at_most, above=False)


@dataclass(frozen=True)
class Always(VerdictRule):
    """A property without statistics: in every seed the figure is at most, or at least, a bound."""

    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        if (self.at_most is None) == (self.at_least is None):
            raise ConfigError(f"{self.says}: give either at_most= or at_least=")

    @property
    def limit(self) -> str:
        """The bound in words."""
        return f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.at_least:g}"

    @property
    def asks(self) -> str:
        return f"{in_words(self.of)}: {self.limit} in every seed"

    def compare(self, figures: Figures) -> Finding:
        values = self.values(self.of, figures)
        if self.at_most is not None:
            worst, good = max(values), max(values) <= self.at_most
        else:
            worst, good = min(values), min(values) >= (self.at_least or 0.0)
        reason = f"{worst:.3g} in the worst of {len(values)} seeds; wanted {self.limit}"
        return Finding(self.says, HOLDS if good else FAILS, reason, self.figure)


def decide(
    figures: Figures, parts: Sequence[VerdictRule], controls: Sequence[VerdictRule] = (), further: Sequence[VerdictRule] = ()
) -> Verdict:
    """Return the verdict on a claim with these parts; `further` predictions are judged, and do not count."""
    found, beside, checked = ([rule.judge(figures) for rule in rules] for rules in (parts, further, controls))
    failed = [finding.says for finding in checked if finding.outcome != HOLDS]
    outcomes = {finding.outcome for finding in found}
    if failed:
        return Verdict(UNDECIDED, f"a control failed, so the experiment cannot tell: {'; '.join(failed)}", found, beside, checked)
    if outcomes == {HOLDS}:
        return Verdict(HOLDS, "all parts hold" if len(found) > 1 else found[0].reason, found, beside, checked)
    if outcomes == {FAILS}:
        return Verdict(FAILS, "no part holds" if len(found) > 1 else found[0].reason, found, beside, checked)
    counts = [f"{name}: {sum(one.outcome == name for one in found)}" for name in (HOLDS, FAILS, UNDECIDED) if name in outcomes]
    mixed = {HOLDS, FAILS} <= outcomes
    reason = found[0].reason if len(found) == 1 else f"of {len(found)} parts, {', '.join(counts)}"
    return Verdict(PARTLY if mixed else UNDECIDED, reason, found, beside, checked)


# Student's t


@dataclass(frozen=True)
class Interval:
    """The mean of some values, the interval in which the true mean lies, and the p-value of a true mean of 0."""

    mean: float
    low: float
    high: float
    p: float


def interval_of_mean(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the interval that misses the true mean with probability `level`; one value has no interval."""
    count, mean = len(values), math.fsum(values) / len(values)
    if count < 2:
        return Interval(mean, -math.inf, math.inf, 1.0)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)
    if spread <= 1e-12 * abs(mean) or spread == 0:  # the same value every time, but for rounding
        return Interval(mean, mean, mean, 0.0 if mean else 1.0)
    half = t_quantile(1 - level / 2, count - 1) * spread
    return Interval(mean, mean - half, mean + half, 2 * (1 - t_probability(abs(mean) / spread, count - 1)))


def t_probability(t: float, freedom: int) -> float:
    """Return the probability that Student's t with some degrees of freedom is at most `t`."""
    tail = 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return 1 - tail if t > 0 else tail


@cache
def t_quantile(probability: float, freedom: int) -> float:
    """Return the value that Student's t stays below with a probability above 0.5, by bisection."""
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by Lentz's continued fraction (Numerical Recipes, 6.4)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny, c, d = 1e-300, 1.0, 1 / max(1 - (a + b) * x / (a + 1), 1e-300)
    fraction = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * fraction
