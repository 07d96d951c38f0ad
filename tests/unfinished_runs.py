"""Runs that are still in training, made of finished ones."""

import shutil
from pathlib import Path

import torch

from qkv.folder.run import RESULT, WEIGHTS
from qkv.training import checkpoints
from written_checkpoints import write_checkpoint

PLANNED = 400


def unfinish(run: Path, *steps: int) -> Path:
    """Turn a run folder into one whose training has saved these steps; only the last has the run's weights."""
    final = checkpoints.load_weights(run / WEIGHTS)
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    for step in steps:
        weights = final if step == steps[-1] else {name: torch.zeros_like(tensor) for name, tensor in final.items()}
        tensors = {checkpoints.MODEL: weights, checkpoints.OPTIMISER: {"exp_avg": torch.zeros(1)}}
        write_checkpoint(run, step, tensors, {"steps": PLANNED})
    (run / WEIGHTS).unlink()
    (run / RESULT).unlink(missing_ok=True)
    recipe = run / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("steps: 1\n", f"steps: {PLANNED}\n"))
    return run
