"""Which of a run's weights are kept."""

from pathlib import Path
from typing import Protocol

from torch import Tensor, nn

from qkv.base.files import whole_file
from qkv.runs.folder import WEIGHTS
from qkv.training import checkpoints
from qkv.training.loop import Trainer, Validation
from qkv.training.progress import Progress


class Validator(Protocol):
    """Scores a model on held-out text."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def progress(self) -> Progress: ...

    def __call__(self, step: int) -> Validation:
        """The figures at a step of training, told to the user."""

    def final(self) -> float:
        """The figure by which finished weights are compared; higher is better."""


def choose_weights(run: Path, trainer: Trainer, validator: Validator) -> str:
    """Of the last weights, the best ones and the mean of the last checkpoints: those that do best on dev."""
    folders = {checkpoints.step_of(folder): folder for folder in checkpoints.folders(run)}
    last, best = max(folders), trainer.state.best_step
    candidates: dict[str, dict[str, Tensor]] = {}
    averaged = [folders[step] / checkpoints.MODEL for step in trainer.averaged_steps()]
    if trainer.config.averaging == "checkpoints" and len(averaged) > 1:
        candidates[f"mean of the last {len(averaged)} checkpoints"] = checkpoints.average(averaged)
    for step in dict.fromkeys(step for step in (best, last) if step in folders):
        path = checkpoints.validated(folders[step])
        name = "average over training" if path.name == checkpoints.AVERAGE else "checkpoint"
        candidates[f"{name} at step {step:,}"] = checkpoints.read_weights(path)
    model = validator.model.eval()
    scores = {}
    for name, weights in candidates.items():
        checkpoints.set_weights(model, weights, name)
        scores[name] = validator.final() if len(candidates) > 1 else 0.0
    chosen = max(scores, key=lambda name: scores[name])
    checkpoints.set_weights(model, candidates[chosen], chosen)
    with whole_file(run / WEIGHTS) as path:
        checkpoints.save_weights(path, checkpoints.own_weights(model))
    validator.progress.say(f"weights kept: {chosen}")
    return chosen
