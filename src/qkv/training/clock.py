"""Training time without validations, and seconds per update."""

import statistics
import time

import torch

EARLY = 10  # first updates of a process, each of which is timed by itself
TIMED = 20  # updates that are timed together, after as many to warm up
FEWEST = 5  # updates whose mean time is believed


class Clock:
    """Counts training time, from the time that a resumed run had already spent."""

    def __init__(self, device: torch.device, step: int, seconds: float):
        self.device, self.first_step, self.seconds_before = device, step, seconds
        self.started = self.lap_started = self.update_started = self.timed_from = time.perf_counter()
        self.timed_step = step  # the last update before `timed_from`
        self.early: list[float] = []  # seconds of each of the first updates

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
        self.update_started += seconds
        self.timed_from += seconds

    def time_update(self, step: int) -> float | None:
        """Note that an update ended. -> seconds per update after each of the first 10 and after 40; None at all other steps.

        The first update loads and compiles kernels, and one soon after it may be recorded as a graph: until 10 the fastest one
        counts, at 10 the median, at 40 the mean since the twentieth or `time_anew`.
        """
        done = step - self.first_step
        if done > EARLY and done not in (TIMED, 2 * TIMED):
            return None
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        if done == 2 * TIMED:
            return (now - self.timed_from) / (step - self.timed_step)
        if done in (EARLY, TIMED):
            self.time_anew(step)
        if done > EARLY:
            return None
        self.early.append(now - self.update_started)
        self.update_started = now
        after_first = self.early[1:] or self.early
        return statistics.median_low(after_first) if done == EARLY else min(after_first)

    def begin_stage(self, step: int) -> None:
        """Time the updates after this one as the first of a process: they compute something else."""
        self.first_step, self.early, self.update_started = step, [], time.perf_counter()

    def seconds_per_update(self, step: int) -> float | None:
        """Return the mean seconds per update since the first ones, or since `time_anew`; None before there are a few of them."""
        steps = step - self.timed_step
        settled = self.timed_step > self.first_step and steps >= FEWEST
        return (time.perf_counter() - self.timed_from) / steps if settled else None

    def time_anew(self, step: int) -> None:
        """Let `seconds_per_update` count from here."""
        self.timed_from, self.timed_step = time.perf_counter(), step
