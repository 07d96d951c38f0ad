"""What training needs of each kind of run, and what all of them say of themselves."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from qkv.base.hardware import choose_precision, describe_device
from qkv.jobs.final_weights import Validator
from qkv.recipes import Recipe
from qkv.training.config import TrainingConfig
from qkv.training.loop import BatchSource, Objective, Trainer
from qkv.training.progress import duration


@dataclass(frozen=True)
class Work:
    """All that the training loop is given, and what is done when it is over."""

    model: nn.Module
    objective: Objective
    batches: BatchSource
    training: TrainingConfig
    validator: Validator
    size: str  # how much there is to read, and in what portions
    finish: Callable[[Trainer], None]


def facts_of(recipe: Recipe, trainer: Trainer, weights: str, scored_on: str) -> dict[str, str]:
    """What a finished run says of itself."""
    return {
        "model": recipe.model.kind,
        "parameters": count_parameters(trainer.model),
        "weights": weights,
        "steps": f"{trainer.state.step:,}",
        "training time": duration(trainer.state.seconds),
        "device": describe_device(trainer.device),
        "precision": name_of_precision(recipe, trainer.device),
        "seed": str(recipe.seed),
        "date": time.strftime("%Y-%m-%d"),
        "scored on": scored_on,
    }


def count_parameters(model: nn.Module) -> str:
    """Of an ELMo without its table of how words are spelled, which is whole numbers."""
    return f"{sum(p.numel() for p in model.parameters() if p.is_floating_point()):,}"


def name_of_precision(recipe: Recipe, device: torch.device) -> str:
    return {torch.bfloat16: "bf16", torch.float32: "float32"}[choose_precision(recipe.training.precision, device)]
