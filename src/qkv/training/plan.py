"""The plan of a run with training.minutes: how many updates fit into them, and how often to validate, save and log then."""

import itertools
import math
from dataclasses import replace

from qkv.training import distributed
from qkv.training.clock import EARLY, TIMED, Clock
from qkv.training.config import TrainingConfig
from qkv.training.health import FEW_UPDATES, Health
from qkv.training.progress import Progress, duration
from qkv.training.state import TrainingState

Stages = tuple[tuple[float, float], ...]  # share of the updates of each stage, and how long one takes, see Objective.stages
PLANNED_AFTER = 3  # updates of a process, before minutes become steps
SHORT = 100  # updates left at the tenth one, below which the plan is printed then and not at the fortieth
FEW = 300  # updates below which a run is warned of
ADVISED = 500  # updates that the warning shows a way to
SMALLEST_BATCH = 256  # tokens of a batch that the warning may advise


class Planner:
    """Converts training.minutes to steps as updates are timed, and fits the intervals of a run to them.

    The plan is part of the state: a resumed run keeps it, and all processes follow the first one's.
    """

    def __init__(self, config: TrainingConfig, clock: Clock, progress: Progress, health: Health, stages: Stages = ((1.0, 1.0),)):
        self.config, self.clock, self.progress, self.health, self.stages = config, clock, progress, health, stages
        self.printed = False  # the time that is left

    def fitted(self, state: TrainingState) -> TrainingConfig:
        """Return the settings with the intervals that suit the plan."""
        return self.config.with_longest_interval(state.interval) if state.interval else self.config

    def begin_update(self, state: TrainingState) -> tuple[TrainingState, float]:
        """Return the state with the stage of the next update, and the fraction of all updates before it.

        A stage that has begun goes on, also if a plan with more updates would have it begin later.
        """
        borders = list(itertools.accumulate((share for share, _ in self.stages), initial=0.0))
        state = replace(state, stage=min(state.stage, len(self.stages) - 1))  # a changed recipe may have fewer
        done = max(state.step / state.planned_steps(self.config), borders[state.stage])
        stage = max(number for number, border in enumerate(borders[:-1]) if border <= done)
        if stage > state.stage:
            self.clock.begin_stage(state.step)
            state = replace(state, stage=stage, timed=0)
        return state, done

    def after_update(self, state: TrainingState) -> TrainingState:
        """Time the first updates of this process: plan the steps, and print the time that is left. -> the state with the plan."""
        seconds_per_update = self.clock.time_update(state.step)
        if seconds_per_update is None:
            return state
        timed = state.step - self.clock.first_step
        if self.config.minutes is not None and timed > state.timed:
            state = self.plan(state, seconds_per_update)
            if timed >= EARLY:
                state = replace(state, interval=longest_interval(state.steps))
        early = timed == EARLY and state.steps < state.step + SHORT  # planned again, it may end before the fortieth
        if (early or timed == 2 * TIMED) and not self.printed:
            self.printed = True
            left = (
                seconds_per_update
                * (state.steps - state.step)
                * mean_cost(state.step / max(1, state.steps), self.stages, state.stage)
            )
            self.progress.say(f"{state.steps:,} steps on this machine: about {duration(left)} to go")
            if self.config.minutes is not None:
                self.say_changes(state)
        return state

    def after_report(self, state: TrainingState) -> TrainingState:
        """Plan the steps again after a quarter, half and three quarters of the minutes, by the updates of the last quarter."""
        seconds_per_update = self.clock.seconds_per_update(state.step)
        if self.config.minutes is None or not state.steps or seconds_per_update is None:
            return state
        (passed,) = distributed.broadcast([self.clock.elapsed() / (self.config.minutes * 60)])
        quarter = int(4 * passed)
        if state.replanned < quarter < 4:
            state = self.plan(replace(state, replanned=quarter), seconds_per_update)
            self.clock.time_anew(state.step)
        return state

    def plan(self, state: TrainingState, seconds_per_update: float) -> TrainingState:
        """Set the number of steps to what fits into training.minutes, from the third update of this process on.

        It is done sooner only if the time is over, because the first update also loads and compiles kernels.
        """
        minutes, limit, timed = self.config.minutes or 0.0, self.config.steps, state.step - self.clock.first_step
        fitting = steps_within(minutes * 60 - self.clock.elapsed(), state.step, seconds_per_update, self.stages, state.stage)
        steps = int(*distributed.broadcast([fitting]))
        if timed < PLANNED_AFTER and steps > state.step:
            return state
        # Before the tenth update the estimate may be far too low, and counts only if there is no tenth one.
        known = timed >= EARLY or steps <= self.clock.first_step + EARLY
        if known:
            few = steps < min(FEW, limit or FEW)
            seconds = seconds_per_update * mean_cost(state.step / max(1, steps), self.stages, state.stage)
            message = warn_of_few_updates(self.config, steps, seconds) if few else None
            if self.health.note(FEW_UPDATES, state.step, message) and message:
                self.progress.warn(message)
        return replace(state, steps=min(steps, limit or steps), minutes=minutes, timed=max(timed, state.timed))

    def say_changes(self, state: TrainingState) -> None:
        """Print in one line which settings were changed to fit the number of steps."""
        line = describe_changes(self.config, self.fitted(state), state.planned_steps(self.config))
        if line:
            self.progress.say(line)


def steps_within(left: float, step: int, seconds_per_update: float, stages: Stages = ((1.0, 1.0),), stage: int = 0) -> int:
    """Return the updates in all, of which `step` are made, if `left` seconds are left and this stage goes on at this speed."""
    end = sum(share for share, _ in stages[: stage + 1])
    later = sum(share * cost for share, cost in stages[stage + 1 :]) / stages[stage][1]
    updates = max(0.0, left) / seconds_per_update
    steps = (step + updates) / (end + later)
    if later and steps * end < step:  # the next stage is due
        steps = step + updates * (1 - end) / later
    return max(step, int(steps))


def mean_cost(done: float, stages: Stages, stage: int) -> float:
    """Return the mean time of the updates that are left after a fraction of all, relative to that of an update of this stage."""
    end = sum(share for share, _ in stages[: stage + 1])
    now = max(0.0, end - done)
    later = sum(share for share, _ in stages[stage + 1 :])
    cost = now + sum(share * cost for share, cost in stages[stage + 1 :]) / stages[stage][1]
    return cost / (now + later) if now + later else 1.0


def longest_interval(steps: int) -> int:
    """Return a round number of updates (1, 2, 5, 10, 20, 50, ...) that is at most a third of all."""
    third = max(1, steps // 3)
    power = 10 ** (len(str(third)) - 1)
    return max(first * power for first in (1, 2, 5) if first * power <= third)


def describe_changes(given: TrainingConfig, used: TrainingConfig, steps: int) -> str | None:
    """Return one line on what a run of `steps` updates does otherwise than its recipe says; None if there is nothing."""
    warmup, wanted = given.warmup_steps(steps), int(given.configured_warmup(steps))
    changes = [f"warmup {warmup:,} (not {wanted:,})"] if warmup < wanted else []
    changes += [
        f"{name} {used.intervals[name]:,} (not {every:,})"
        for name, every in given.intervals.items()
        if used.intervals[name] < every
    ]
    return f"fitted to {steps:,} updates: training.{', '.join(changes)}" if changes else None


def warn_of_few_updates(config: TrainingConfig, steps: int, seconds_per_update: float) -> str:
    """Return a line for a run whose minutes allow few updates: how many, and what would allow more."""
    assert config.minutes is not None
    minutes = config.minutes + (ADVISED - steps) * seconds_per_update / 60
    digits = 10 ** max(0, math.floor(math.log10(minutes)) - 1)
    ways = [f"training.minutes={math.ceil(minutes / digits) * digits}"]
    tokens = config.batch_tokens * steps // ADVISED // 32 * 32
    if tokens >= max(SMALLEST_BATCH, config.batch_tokens // 4):  # much smaller batches take hardly less time than that
        ways.append(f"training.batch_tokens={tokens} (now {config.batch_tokens})")
    return (
        f"training.minutes={config.minutes:g} allows about {steps:,} updates on this machine, and a model hardly learns in fewer "
        f"than {FEW}; for about {ADVISED} updates set {' or '.join(ways)}, or choose a smaller model"
    )
