"""How a run scores its model on dev, and what an encoder's says at its end."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from qkv.base.files import atomic_file
from qkv.base.hardware import choose_precision
from qkv.base.seeds import seed_at
from qkv.data.batches import Batch
from qkv.folder.run import RESULT
from qkv.jobs.job import facts_of
from qkv.recipes import Recipe
from qkv.report.page import write_report
from qkv.training.log import read_metrics
from qkv.training.loop import Trainer
from qkv.training.progress import Progress, duration


class OnDev:
    """What the validators of all runs have in common."""

    def __init__(self, recipe: Recipe, model: Any, objective: Any, progress: Progress):
        self.model, self.objective, self.progress, self.seed = model, objective, progress, recipe.seed
        self.device = next(model.parameters()).device
        self.precision = choose_precision(recipe.training.precision, self.device)

    def in_precision(self) -> torch.autocast:
        """Inside, the model computes as in training."""
        return torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32)

    @torch.no_grad()
    def mean_loss(self, batches: Iterable[Batch]) -> float:
        """Of an answer, over all batches; what is drawn, such as masks, is the same every time."""
        total, answers = torch.zeros((), device=self.device), 0
        with self.in_precision(), torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed_at(self.seed, "dev"))
            for batch in batches:
                total += self.objective.loss(self.model, *batch.to(self.device).inputs)
                answers += batch.answers
        return float(total) / answers


def write_result(
    run: Path, recipe: Recipe, trainer: Trainer, progress: Progress, *,
    weights: str, scores: dict[str, float], name: str, scored_on: str,
) -> None:  # fmt: skip
    """The scores of a finished run, in its report, in its result and for the user; `name` is what they were found on."""
    facts = facts_of(recipe, trainer, weights, scored_on)
    named = {key.removeprefix("dev_").replace("_", " "): f"{value:.4f}" for key, value in scores.items()}
    rows = [{"figure": key, name: value} for key, value in named.items()]
    report = write_report(
        run, run.name, facts=facts, metrics=read_metrics(run), scores=[], samples=[], attention=[], corpus=[], figures=rows
    )
    with atomic_file(run / RESULT) as path:
        path.write_text(json.dumps({**facts, "scores": scores}, indent=1))
    for key, value in named.items():
        progress.say(f"{name}: {key} {value}")
    progress.say(f"trained in {duration(trainer.state.seconds)}; report: {report}")
