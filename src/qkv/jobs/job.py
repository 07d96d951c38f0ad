"""A job: everything that the training loop needs, and the last step after training."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from qkv.base.hardware import choose_precision, describe_device
from qkv.base.provenance import software
from qkv.jobs.validation import Validator
from qkv.objectives.objective import Objective
from qkv.recipes import Recipe
from qkv.training.config import TrainingConfig
from qkv.training.loop import BatchSource, Trainer
from qkv.training.progress import duration


@dataclass(frozen=True)
class Job:
    """One training run, ready to start."""

    model: nn.Module
    objective: Objective
    batches: BatchSource
    training: TrainingConfig
    validator: Validator
    size: str  # shown to the user: the size of the data and of a step
    finish: Callable[[Trainer], None]  # choose the weights, score them, write the report
    token_counts: np.ndarray | None = None  # of the tokens that the model learns to predict, (V,)


def run_facts(recipe: Recipe, trainer: Trainer, weights: str, scored_on: str) -> dict[str, Any]:
    """Return the facts of a finished run that its report shows."""
    return {
        "model": recipe.model.kind,
        "parameters": count_parameters(trainer.model),
        "weights": weights,
        "steps": f"{trainer.state.step:,}",
        "training time": duration(trainer.state.seconds),
        "device": describe_device(trainer.device),
        "precision": precision_name(recipe, trainer.device),
        "seed": str(recipe.seed),
        "date": time.strftime("%Y-%m-%d"),
        "scored on": scored_on,
        "warnings": trainer.health.summary(),
    }


def training_record(trainer: Trainer) -> dict[str, Any]:
    """Return what result.json keeps of a training beside the facts of its report."""
    state = trainer.state
    done = {"updates": state.step, "tokens": state.tokens, "seconds": round(state.seconds, 1), "processes": trainer.world_size}
    return {**done, **software()}


def count_parameters(model: nn.Module) -> str:
    """Return the number of a model's parameters, and how many are trained if some are not.

    ELMo's table of spellings, which holds integers, does not count.
    """
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters() if p.is_floating_point()]
    count, trained = sum(size for size, _ in sizes), sum(size for size, trained in sizes if trained)
    return f"{count:,}" if trained == count else f"{count:,} ({trained:,} trained)"


def precision_name(recipe: Recipe, device: torch.device) -> str:
    """Return the name of the precision that a recipe trains in on a device."""
    return {torch.bfloat16: "bf16", torch.float32: "float32"}[choose_precision(recipe.training.precision, device)]
