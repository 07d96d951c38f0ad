"""The settings that a sweep tries: lists of values and ranges, all their combinations, or draws from them."""

import hashlib
import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from qkv.base.config import setting_value
from qkv.base.errors import ConfigError

NUMBER = r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
LOG_RATIO = 10  # of the ends of a range, from which it is drawn on a log scale
Settings = dict[str, Any]


@dataclass(frozen=True)
class Dimension:
    """The values to try of one key: some, or all between two numbers."""

    key: str
    values: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0

    @property
    def is_range(self) -> bool:
        """Whether values lie between two numbers."""
        return not self.values

    @property
    def whole(self) -> bool:
        """Whether a range has whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def log(self) -> bool:
        """Whether a range is drawn on a log scale."""
        return self.low > 0 and self.high >= LOG_RATIO * self.low

    def all_values(self) -> Sequence[Any]:
        """Return every value; refuse a range of real numbers, which has too many."""
        if not self.is_range:
            return self.values
        if not self.whole:
            raise ConfigError(
                f"--try {self.key}={self.low}..{self.high}: a range of real numbers has no list of values; give values, such as "
                f"{self.key}={self.low},{self.high}, or --random N"
            )
        return range(int(self.low), int(self.high) + 1)

    def draw(self, rng: random.Random) -> Any:
        """Draw a value: evenly, or evenly on a log scale."""
        if not self.is_range:
            return rng.choice(self.values)
        low, high = self.low, self.high + self.whole
        value = math.exp(rng.uniform(math.log(low), math.log(high))) if self.log else rng.uniform(low, high)
        return min(int(value), int(self.high)) if self.whole else float(f"{value:.3g}")


def read_dimensions(tries: Mapping[str, Any] | Sequence[str]) -> tuple[Dimension, ...]:
    """Return the dimensions that `--try key=...` or a dict describes: lists of values, or ranges such as "2..6"."""
    if isinstance(tries, Mapping):
        found = [_read_text(key, given) if isinstance(given, str) else _of_values(key, given) for key, given in tries.items()]
    else:
        found = []
        for one in tries:
            key, equals, text = one.partition("=")
            if not equals or not key or not text:
                raise ConfigError(
                    f"--try {one}: expected key=values, such as training.learning_rate=1e-4,3e-4 or model.heads=2..6"
                )
            found.append(_read_text(key, text))
    keys = [one.key for one in found]
    if not keys or len(set(keys)) < len(keys) or "seed" in keys:
        twice = next((key for key in keys if keys.count(key) > 1), None)
        problem = (
            f"{twice} is given twice" if twice else "seeds have an option of their own" if keys else "nothing is to be tried"
        )
        raise ConfigError(f"{problem}; give --try once for each key, and --seeds for several seeds")
    return tuple(found)


def _of_values(key: str, values: Any) -> Dimension:
    if not isinstance(values, Sequence) or not values:
        raise ConfigError(f"values to try of {key}: expected a list, or a range such as '2..6', got {values!r}")
    return Dimension(key, tuple(values))


def _read_text(key: str, text: str) -> Dimension:
    ends = re.fullmatch(rf"({NUMBER})\.\.({NUMBER})", text.strip())
    if ends:
        low, high = (int(end) if re.fullmatch(r"[+-]?\d+", end) else float(end) for end in ends.groups())
        if not low < high:
            raise ConfigError(f"--try {key}={text}: a range goes from a smaller to a larger number")
        return Dimension(key, low=low, high=high)
    try:
        values = yaml.safe_load(f"[{text}]")
    except yaml.YAMLError:
        values = text.split(",")
    return _of_values(key, [setting_value(one) if isinstance(one, str) else one for one in values])


def grid(dimensions: Sequence[Dimension]) -> list[Settings]:
    """Return all combinations; the last key changes fastest."""
    keys = [one.key for one in dimensions]
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*(one.all_values() for one in dimensions))]


def draws(dimensions: Sequence[Dimension], count: int, seed: int) -> list[Settings]:
    """Return so many different draws, fewer where there are not as many; more of them begin with the same ones."""

    def endless() -> Iterator[Settings]:
        for number in itertools.count():
            name = hashlib.blake2b(f"{seed} {number}".encode()).hexdigest()
            yield {one.key: one.draw(random.Random(f"{name} {one.key}")) for one in dimensions}

    found: list[Settings] = []
    for drawn in itertools.islice(endless(), 100 * count):
        if drawn not in found:
            found.append(drawn)
        if len(found) == count:
            break
    return found
