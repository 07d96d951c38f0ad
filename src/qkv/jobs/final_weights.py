"""The choice of the weights that a finished run keeps."""

from pathlib import Path

from torch import Tensor

from qkv.base.files import atomic_file
from qkv.folder.run import WEIGHTS
from qkv.jobs.validation import Validator
from qkv.training import checkpoints
from qkv.training.loop import Trainer


def choose_weights(run: Path, trainer: Trainer, validator: Validator) -> str:
    """Keep the weights that score best on dev: the last, the best, or the mean of the last checkpoints; return which."""
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
    """Keep the last weights, or the mean of the last checkpoints where the recipe averages them; return which.

    This is for pretraining: the loss on dev does not say how well an encoder fine-tunes, and ELECTRA's even rises as its
    generator learns.
    """
    folders = _folders(run)
    last = max(folders)
    ((name, weights),) = (_mean(folders, trainer) or _at(folders[last], last)).items()
    return _keep(run, validator, name, weights)


def _folders(run: Path) -> dict[int, Path]:
    """Return the folders of checkpoints by their steps."""
    return {checkpoints.step_of(folder): folder for folder in checkpoints.folders(run)}


def _mean(folders: dict[int, Path], trainer: Trainer) -> dict[str, dict[str, Tensor]]:
    """Return the mean of the last checkpoints by its description; nothing where the recipe does not average them."""
    averaged = [folders[step] / checkpoints.MODEL for step in trainer.steps_to_average()]
    if trainer.config.averaging != "checkpoints" or len(averaged) < 2:
        return {}
    return {f"mean of the last {len(averaged)} checkpoints": checkpoints.average(averaged)}


def _at(folder: Path, step: int) -> dict[str, dict[str, Tensor]]:
    """Return the weights that were validated at a step, by their description."""
    path = checkpoints.scored_weights(folder)
    name = "average over training" if path.name == checkpoints.AVERAGE else "checkpoint"
    return {f"{name} at step {step:,}": checkpoints.read_weights(path)}


def _keep(run: Path, validator: Validator, name: str, weights: dict[str, Tensor]) -> str:
    """Load weights into the model, and save them as the run's."""
    model = validator.model.eval()
    checkpoints.set_weights(model, weights, name)
    with atomic_file(run / WEIGHTS) as path:
        checkpoints.save_weights(path, checkpoints.named_weights(model))
    validator.progress.say(f"weights kept: {name}")
    return name
