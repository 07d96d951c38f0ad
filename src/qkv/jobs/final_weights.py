"""Which of a run's weights are kept."""

from pathlib import Path
from typing import Protocol

from torch import Tensor, nn

from qkv.base.files import atomic_file
from qkv.folder.run import WEIGHTS
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


class Judge(Validator, Protocol):
    """Also compares weights when training is over."""

    def final(self) -> float:
        """The figure by which finished weights are compared; higher is better."""


def choose_weights(run: Path, trainer: Trainer, validator: Judge) -> str:
    """Of the last weights, the best ones and the mean of the last checkpoints: those that do best on dev."""
    folders = _folders(run)
    candidates = _mean(folders, trainer)
    for step in dict.fromkeys(step for step in (trainer.state.best_step, max(folders)) if step in folders):
        candidates |= _at(folders[step], step)
    model = validator.model.eval()
    scores = {}
    for name, weights in candidates.items():
        checkpoints.set_weights(model, weights, name)
        scores[name] = validator.final() if len(candidates) > 1 else 0.0
    chosen = max(scores, key=lambda name: scores[name])
    return _keep(run, validator, chosen, candidates[chosen])


def last_weights(run: Path, trainer: Trainer, validator: Validator) -> str:
    """The last ones, or the mean of the last checkpoints where the recipe averages them; dev decides nothing.

    For pretraining: what makes a good encoder is not what a loss on dev tells. An ELECTRA's even rises as its generator learns.
    """
    folders = _folders(run)
    last = max(folders)
    ((name, weights),) = (_mean(folders, trainer) or _at(folders[last], last)).items()
    return _keep(run, validator, name, weights)


def _folders(run: Path) -> dict[int, Path]:
    """Checkpoints by their steps."""
    return {checkpoints.step_of(folder): folder for folder in checkpoints.folders(run)}


def _mean(folders: dict[int, Path], trainer: Trainer) -> dict[str, dict[str, Tensor]]:
    """The mean of the last checkpoints, by a name for people; nothing where the recipe does not ask for it."""
    averaged = [folders[step] / checkpoints.MODEL for step in trainer.steps_to_average()]
    if trainer.config.averaging != "checkpoints" or len(averaged) < 2:
        return {}
    return {f"mean of the last {len(averaged)} checkpoints": checkpoints.average(averaged)}


def _at(folder: Path, step: int) -> dict[str, dict[str, Tensor]]:
    """The weights that were validated at a step, by a name for people."""
    path = checkpoints.scored_weights(folder)
    name = "average over training" if path.name == checkpoints.AVERAGE else "checkpoint"
    return {f"{name} at step {step:,}": checkpoints.read_weights(path)}


def _keep(run: Path, validator: Validator, name: str, weights: dict[str, Tensor]) -> str:
    """Make these the run's weights, and the model's."""
    model = validator.model.eval()
    checkpoints.set_weights(model, weights, name)
    with atomic_file(run / WEIGHTS) as path:
        checkpoints.save_weights(path, checkpoints.named_weights(model))
    validator.progress.say(f"weights kept: {name}")
    return name
