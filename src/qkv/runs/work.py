"""What training needs of each kind of run, and what all of them say of themselves."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from qkv.base.hardware import choose_precision, describe
from qkv.recipe import Recipe
from qkv.runs.choice import Validator
from qkv.runs.folder import CONFIG
from qkv.training import checkpoints
from qkv.training.config import TrainingConfig
from qkv.training.loop import Objective, Source, Trainer
from qkv.training.progress import duration


@dataclass(frozen=True)
class Work:
    """All that the training loop is given, and what is done when it is over."""

    model: nn.Module
    objective: Objective
    batches: Source
    training: TrainingConfig
    validator: Validator
    size: str  # how much there is to read, and in what portions
    finish: Callable[[Trainer], None]


def forget_other_texts(run: Path, texts: list[str]) -> None:
    """Delete what was made of other text than this, as long as nothing has been learned with it: it is made anew."""
    try:
        known = json.loads((run / CONFIG).read_text())["texts"]
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    if known != texts and not checkpoints.folders(run):
        for made in [*run.glob("tokenizer*.json"), run / CONFIG]:
            made.unlink(missing_ok=True)


def facts_of(recipe: Recipe, trainer: Trainer, weights: str, scored_on: str) -> dict[str, str]:
    """What a finished run says of itself."""
    return {
        "model": recipe.model.kind,
        "parameters": count_parameters(trainer.model),
        "weights": weights,
        "steps": f"{trainer.state.step:,}",
        "training time": duration(trainer.state.seconds),
        "device": describe(trainer.device),
        "precision": name_of_precision(recipe, trainer.device),
        "seed": str(recipe.seed),
        "date": time.strftime("%Y-%m-%d"),
        "scored on": scored_on,
    }


def count_parameters(model: nn.Module) -> str:
    return f"{sum(p.numel() for p in model.parameters()):,}"


def name_of_precision(recipe: Recipe, device: torch.device) -> str:
    return {torch.bfloat16: "bf16", torch.float32: "float32"}[choose_precision(recipe.training.precision, device)]
