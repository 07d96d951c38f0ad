"""The progress of a run, and how far it is to go."""

from dataclasses import dataclass

from qkv.data.batches import START, Position
from qkv.training.config import TrainingConfig

UNKNOWN_STEPS = 10**9


@dataclass(frozen=True)
class TrainingState:
    """The progress of a run, saved in every checkpoint."""

    step: int = 0
    position: Position = START
    steps: int = 0  # in all; 0 until a run with training.minutes has been timed
    tokens: int | None = 0  # trained on so far; None where a run began before they were counted
    seconds: float = 0.0  # spent training so far
    best: float = float("-inf")  # highest selection score
    best_step: int = 0
    validations_since_best: int = 0
    minutes: float = 0.0  # training.minutes that the steps were planned for
    timed: int = 0  # updates of a process, and of a stage, after which they were last planned
    stage: int = 0  # of the objective, of the last update
    replanned: int = 0  # quarters of training.minutes after which the steps were planned again
    interval: int = 0  # most updates between validations, checkpoints and lines of the log that suit the plan

    def planned_steps(self, config: TrainingConfig) -> int:
        """Return the number of updates in all; for a run with minutes that has not been timed yet, an upper limit."""
        return self.steps or config.steps or UNKNOWN_STEPS
