"""Time spent training, validations left out, and how long an update takes."""

import time

import torch

TIMED = 20  # updates that are timed, after as many have warmed the machine up


class Clock:
    """Runs from where a run's training time stood when this process took it up."""

    def __init__(self, device: torch.device, step: int, seconds: float):
        self.device, self.first, self.before = device, step, seconds
        self.started = self.window_started = self.timed_from = time.perf_counter()

    def elapsed(self) -> float:
        """Seconds of training in all processes' lives."""
        return self.before + time.perf_counter() - self.started

    def window(self) -> float:
        """Seconds since this was last asked."""
        since, self.window_started = self.window_started, time.perf_counter()
        return self.window_started - since

    def leave_out(self, seconds: float) -> None:
        """Time that was not spent training."""
        self.started += seconds
        self.window_started += seconds
        self.timed_from += seconds

    def first_estimate(self, step: int) -> float | None:
        """Seconds an update takes, once: when the first ones have been timed."""
        if step not in (self.first + TIMED, self.first + 2 * TIMED):
            return None
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        if step == self.first + TIMED:
            self.timed_from = time.perf_counter()
            return None
        return (time.perf_counter() - self.timed_from) / TIMED

    def estimate(self, step: int) -> float | None:
        """Seconds an update has taken so far; None before there was time to tell."""
        steps = step - self.first - TIMED
        return (time.perf_counter() - self.timed_from) / steps if steps > TIMED else None
