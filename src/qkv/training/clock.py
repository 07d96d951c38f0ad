"""Training time without validations, and seconds per update."""

import time

import torch

TIMED = 20  # updates that are timed, after as many to warm up


class Clock:
    """Counts training time, from the time that a resumed run had already spent."""

    def __init__(self, device: torch.device, step: int, seconds: float):
        self.device, self.first_step, self.seconds_before = device, step, seconds
        self.started = self.lap_started = self.timed_from = time.perf_counter()

    def elapsed(self) -> float:
        """Return the seconds of training since the run began, in this process and in those before it."""
        return self.seconds_before + time.perf_counter() - self.started

    def lap(self) -> float:
        """Return the seconds since the last call."""
        since, self.lap_started = self.lap_started, time.perf_counter()
        return self.lap_started - since

    def exclude(self, seconds: float) -> None:
        """Subtract time that was not spent training."""
        self.started += seconds
        self.lap_started += seconds
        self.timed_from += seconds

    def first_seconds_per_update(self, step: int) -> float | None:
        """Return the seconds per update at the one step by which the first updates have been timed; None at all others."""
        if step not in (self.first_step + TIMED, self.first_step + 2 * TIMED):
            return None
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        if step == self.first_step + TIMED:
            self.timed_from = time.perf_counter()
            return None
        return (time.perf_counter() - self.timed_from) / TIMED

    def seconds_per_update(self, step: int) -> float | None:
        """Return the mean seconds per update so far; None before enough updates have been timed."""
        steps = step - self.first_step - TIMED
        return (time.perf_counter() - self.timed_from) / steps if steps > TIMED else None
