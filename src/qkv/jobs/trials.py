"""One trial of a sweep: an ordinary run, whose training is computed by a worker of base/pool.py."""

import contextlib
import hashlib
import json
import math
import re
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError, QkvError
from qkv.folder.run import RESULT
from qkv.folder.start import complete_recipe
from qkv.jobs.inputs import check_inputs
from qkv.jobs.search_space import Settings
from qkv.jobs.train import as_settings, train
from qkv.recipes import Recipe, load_recipe
from qkv.text.translation_metrics import METRICS
from qkv.training.log import read_metrics
from qkv.training.trackers import StoppedByTrackerError, Tracker

TRIALS, LOGS = "trials", "logs"  # in the folder of a sweep
LOWER_IS_BETTER = ("_loss", "perplexity", "bits_per_byte")  # endings of figures


@dataclass(frozen=True)
class Trial:
    """Settings to train with, and what came of them."""

    name: str  # of its folder
    settings: Settings  # those that are tried
    seed: int | None = None  # None for the recipe's own
    status: str = "planned"  # or finished, pruned, failed, refused
    message: str = ""  # why it failed or was refused
    seconds: float = 0.0
    value: float | None = None  # best of the metric over its validations
    step: int | None = None  # of that validation

    @property
    def label(self) -> str:
        """The settings in a few words, without the sections of keys."""
        return ", ".join(f"{key.rpartition('.')[2]} {show(value)}" for key, value in self.settings.items())


def show(value: Any) -> str:
    """Return a value as a person would write it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Base:
    """What all trials of a sweep share."""

    recipe: str  # name or file; JSON where it was given as a dict
    settings: tuple[str, ...] = ()

    def with_settings(self, tried: Settings, seed: int | None) -> list[str]:
        """Return the settings of a trial as `--set` takes them."""
        return [*self.settings, *as_settings(tried), *([] if seed is None else [f"seed={seed}"])]

    def load(self, tried: Settings, seed: int | None) -> Recipe:
        """Return the recipe of a trial."""
        given = json.loads(self.recipe) if self.recipe.startswith("{") else self.recipe
        return load_recipe(given, self.with_settings(tried, seed))

    def plan(self, tried: Settings, seed: int | None = None) -> tuple[Trial, Recipe | None]:
        """Return a trial with its recipe, all of whose inputs are there; a refused one has none."""
        try:
            recipe = self.load(tried, seed)
            trial = Trial(_name(tried, seed, recipe.model_dump_json(exclude_unset=True)), tried, seed)
            complete = complete_recipe(recipe)
            check_inputs(complete)
        except QkvError as error:
            name = _name(tried, seed, json.dumps([self.recipe, self.with_settings(tried, seed)]))
            return Trial(name, tried, seed, "refused", str(error)), None
        return trial, recipe


def _name(tried: Settings, seed: int | None, content: str) -> str:
    """Name a trial's folder by its settings, and by a digest of all that decides it."""
    named = [f"{key.rpartition('.')[2]}={show(value)}" for key, value in tried.items()] + ([f"seed={seed}"] if seed else [])
    readable = re.sub(r"[^A-Za-z0-9.=_+-]+", "-", "_".join(named))[:80]
    return f"{readable}-{hashlib.blake2b(content.encode(), digest_size=4).hexdigest()}"


def measured(trial: Trial, run: Path, metric: str) -> Trial:
    """Return a trial with the best value of the metric in its log."""
    lines = read_metrics(run)
    if not lines:
        return trial
    values = [(line[metric], line["step"]) for line in lines if isinstance(line.get(metric), int | float)]
    finite = [(value, step) for value, step in values if math.isfinite(value)]
    known = list(dict.fromkeys(name for line in lines for name in line if name.startswith("dev_")))
    if trial.status == "finished" and metric not in known:
        raise ConfigError(f"--metric {metric}: the trials have {', '.join(known)}; run the same command with one of these")
    if not finite:
        return replace(trial, status="failed", message=f"no finite {metric}") if trial.status == "finished" else trial
    value, step = min(finite) if lower_is_better(metric) else max(finite, key=lambda one: (one[0], -one[1]))
    return replace(trial, value=value, step=step)


def lower_is_better(metric: str) -> bool:
    """Return whether smaller values of a figure are better."""
    name = metric.removeprefix("dev_")
    return metric.endswith(LOWER_IS_BETTER) or (name in METRICS and not METRICS[name].higher_is_better)


def default_metric(recipe: Recipe) -> str:
    """Return the figure by which a recipe's training chooses its best weights."""
    return f"dev_{recipe.selection_metric}"


@dataclass(frozen=True)
class Outcome:
    """How the training of a trial ended."""

    status: str
    message: str = ""
    seconds: float = 0.0


def train_trial(recipe: Recipe, out: Path, name: str, tracker: Tracker | None = None) -> Outcome:
    """Train a trial, or resume it, with its messages in a file; whatever goes wrong is an outcome."""
    began = time.monotonic()
    outcome = Outcome("finished")
    messages = out / LOGS / f"{name}.txt"
    messages.parent.mkdir(parents=True, exist_ok=True)
    with messages.open("a", encoding="utf-8") as log, contextlib.redirect_stderr(log), contextlib.redirect_stdout(log):
        try:
            train(recipe, out / TRIALS / name, tracker=tracker)
        except StoppedByTrackerError as stopped:
            outcome = Outcome("pruned", str(stopped))
        except QkvError as error:
            outcome = Outcome("failed", str(error))
        except Exception as error:  # such as too little memory: other trials may have enough
            traceback.print_exc()
            outcome = Outcome("failed", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    return Outcome(outcome.status, outcome.message, round(time.monotonic() - began, 1))


class TrialWorker:
    """Trains trials in a process of a pool."""

    def __init__(self, base: Mapping[str, Any], out: str):
        self.base, self.out = Base(**base), Path(out)

    def __call__(self, trial: Mapping[str, Any]) -> dict[str, Any]:
        """Train a trial, and return how it ended."""
        given = Trial(**trial)
        if (self.out / TRIALS / given.name / RESULT).exists():  # finished by a sweep that was killed right then
            return vars(given) | {"status": "finished"}
        return vars(given) | vars(train_trial(self.base.load(given.settings, given.seed), self.out, given.name))
