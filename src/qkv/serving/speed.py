"""How fast a model computes, from what it has computed."""

import math

FIRST = 128.0  # the cost of the first batch of a kind: nobody knows how long it will take
MEMORY = 10.0  # seconds of computing over which speeds are averaged
LEAST_SLOPE = 0.25  # of the mean time per token, which a token more takes at least
PRIOR_SLOPE, DOUBT = 1 / 3, 0.01  # the same where all batches were of one size, so that others are tried; and how soon they count


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


class BatchTime:
    """The time of a batch: a fixed one, and one for each token of its cost, by least squares; older batches count less.

    One rate would not do: where the fixed time is long, small batches would look slow, and stay small for ever.
    """

    def __init__(self) -> None:
        self.count = self.cost = self.seconds = self.squares = self.products = 0.0  # sums over batches

    def add(self, cost: float, seconds: float) -> None:
        """Note the time that a batch took."""
        kept = math.exp(-seconds / MEMORY)
        self.count, self.cost, self.seconds = self.count * kept + 1, self.cost * kept + cost, self.seconds * kept + seconds
        self.squares, self.products = self.squares * kept + cost * cost, self.products * kept + cost * seconds

    def cost_of(self, seconds: float) -> float:
        """Return the cost of a batch that takes this time beside twice the fixed time; a small one before anything is known."""
        if not self.count or not self.cost or not self.seconds:
            return FIRST
        mean_cost, mean_seconds = self.cost / self.count, self.seconds / self.count
        variance = self.squares / self.count - mean_cost**2
        covariance = self.products / self.count - mean_cost * mean_seconds
        whole, doubt = mean_seconds / mean_cost, DOUBT * mean_cost**2
        slope = (covariance + doubt * PRIOR_SLOPE * whole) / (variance + doubt)
        slope = min(whole, max(LEAST_SLOPE * whole, slope))
        return (seconds + mean_seconds - slope * mean_cost) / slope
