"""Speeds that are measured while a service computes."""

import math

MEMORY = 10.0  # seconds of computing over which speeds are averaged


class Average:
    """A rate whose older measurements count less and less."""

    def __init__(self) -> None:
        self.amount = self.seconds = 0.0

    def add(self, amount: float, seconds: float) -> None:
        """Note an amount of work, and the time that was spent."""
        kept = math.exp(-seconds / MEMORY)
        self.amount, self.seconds = self.amount * kept + amount, self.seconds * kept + seconds

    @property
    def rate(self) -> float | None:
        """The work done in a second; None before anything is known."""
        return self.amount / self.seconds if self.seconds and self.amount else None
