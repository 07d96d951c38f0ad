"""Long computations in steps: generators that yield between two steps and return the result.

A service takes a step of one at a time, so that short requests need not wait for long ones; elsewhere `complete` takes them all.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Stepwise = Generator[None, None, T]


def complete(steps: Stepwise[T]) -> T:
    """Take all steps of a computation, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
