"""Checks of the arguments of loaded runs: a wrong type is one line that says what to give."""

from collections.abc import Iterable, Mapping, Set
from typing import Any

from qkv.base.errors import ConfigError


def require_text(value: Any, method: str, name: str = "text") -> None:
    """Raise ConfigError unless a value is a text."""
    if not isinstance(value, str):
        raise ConfigError(f"{method} takes a {name}, got {type(value).__name__}; give a str")


def require_count(value: Any, method: str, name: str) -> None:
    """Raise ConfigError unless a value is an integer above 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{method} takes an integer above 0 for {name}, got {value!r}")


def require_texts(values: Any, method: str, name: str = "text") -> list[str]:
    """Return a list of texts; raise ConfigError for a single text, for anything else, and for an element that is no text."""
    found = require_list(values, method, name)
    for number, value in enumerate(found, 1):
        if not isinstance(value, str):
            raise ConfigError(f"{method} takes a list of {name}s, and {name} {number} is {type(value).__name__}; give a str")
    return found


def require_list(values: Any, method: str, name: str) -> list[Any]:
    """Return values as a list; raise ConfigError for a single text and for anything that is not a sequence of values.

    A dict and a table would yield their keys, a set has no order that results could follow.
    """
    wrong = isinstance(values, str | bytes | bytearray | Mapping | Set) or getattr(values, "ndim", 1) != 1
    if wrong or not isinstance(values, Iterable):
        got = type(values).__name__
        raise ConfigError(f"{method} takes a list of {name}s, got {got}; for one {name}, give [{name}]")
    return list(values)


def require_pairs(values: Any, method: str) -> list[tuple[str, str]]:
    """Return a list of pairs of texts; raise ConfigError for anything else."""
    found = require_list(values, method, "pair")
    for number, value in enumerate(found, 1):
        if not isinstance(value, list | tuple) or [isinstance(text, str) for text in value] != [True, True]:
            got = type(value).__name__
            raise ConfigError(f"{method} takes a source and a target for each pair, and pair {number} is {got}; give two texts")
    return [(source, target) for source, target in found]
