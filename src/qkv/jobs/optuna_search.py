"""Trials whose settings Optuna chooses from the results of those before, and that it ends early where they are no good.

The study is a file in the sweep's folder that all workers read. A task of a worker is a number: the trial that was begun for it,
if there is one, or a new one.
"""

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError
from qkv.jobs.search_space import Dimension, Settings
from qkv.jobs.trials import TRIALS, Base, Trial, lower_is_better, measured, train_trial
from qkv.training.trackers import StoppedByTrackerError

STUDY = "optuna.log"  # in the folder of a sweep
TASK, SPACE = "task", "space"  # attributes of trials and of the study


def require_optuna() -> Any:
    """Import Optuna; an error says what to install."""
    try:
        import optuna
    except ImportError:
        raise ConfigError("--optuna needs a package that is not installed; pip install 'qkv[optuna]', or use --random") from None
    optuna.logging.set_verbosity(logging.WARNING)
    return optuna


def open_study(out: Path, metric: str, space: str, seed: int) -> Any:
    """Open the study of a sweep, or begin it; refuse one of another recipe, metric or space."""
    optuna = require_optuna()
    file = optuna.storages.journal.JournalFileBackend(str(out / STUDY))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # Trials that others compute at this time count as bad ones, so that not all try the same settings.
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(file),
        study_name="qkv",
        direction="minimize" if lower_is_better(metric) else "maximize",
        sampler=sampler,
        pruner=optuna.pruners.MedianPruner(),
        load_if_exists=True,
    )
    if study.user_attrs.setdefault(SPACE, space) != space:
        raise ConfigError(f"{out} holds trials of another recipe, metric or other values to try; choose another --out")
    study.set_user_attr(SPACE, space)
    return study


def suggest(trial: Any, dimensions: Sequence[Dimension]) -> Settings:
    """Return the settings of a trial, new ones or those that it has."""
    found: Settings = {}
    for one in dimensions:
        if not one.is_range:  # by their numbers: Optuna takes no lists as choices
            found[one.key] = one.values[trial.suggest_categorical(one.key, range(len(one.values)))]
        elif one.whole:
            found[one.key] = trial.suggest_int(one.key, one.low, one.high, log=one.log)
        else:
            found[one.key] = trial.suggest_float(one.key, one.low, one.high, log=one.log)
    return found


class Reporter:
    """Tells Optuna the metric of each validation, and ends the training when it asks to."""

    def __init__(self, trial: Any, metric: str, reported: Iterable[int]):
        self.trial, self.metric, self.reported = trial, metric, set(reported)

    def rewind(self, step: int, lines: list[dict[str, Any]]) -> None:
        """Do nothing: what is done again is the same."""

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Report the metric where a line has it."""
        value = values.get(self.metric)
        if value is None or step in self.reported:
            return
        self.reported.add(step)
        self.trial.report(float(value), step)
        if self.trial.should_prune():
            raise StoppedByTrackerError(f"pruned at step {step:,}: {self.metric} {value:.4g} is below the median of other trials")

    def end(self, status: str) -> None:
        """Do nothing: `OptunaWorker` tells how the trial ended."""


class OptunaWorker:
    """Trains trials of a study in a process of a pool."""

    def __init__(
        self, base: Mapping[str, Any], out: str, metric: str, space: str, dimensions: Sequence[Mapping[str, Any]], seed: int
    ):
        self.base, self.out, self.metric, self.space, self.seed = Base(**base), Path(out), metric, space, seed
        self.dimensions = [Dimension(**{**one, "values": tuple(one["values"])}) for one in dimensions]

    def __call__(self, task: int) -> dict[str, Any]:
        """Train the trial of a task, and return how it ended."""
        optuna = require_optuna()
        study = open_study(self.out, self.metric, self.space, self.seed + task)
        begun = next((one for one in study.get_trials(deepcopy=False) if one.user_attrs.get(TASK) == task), None)
        if begun is not None and begun.state.is_finished():
            return dict(begun.user_attrs["outcome"])
        asked = study.ask() if begun is None else optuna.trial.Trial(study, begun._trial_id)
        asked.set_user_attr(TASK, task)
        settings = suggest(asked, self.dimensions)
        trial, recipe = self.base.plan(settings)
        found = vars(trial)
        if recipe is not None:
            found = found | vars(
                train_trial(
                    recipe, self.out, trial.name, Reporter(asked, self.metric, begun.intermediate_values if begun else ())
                )
            )
            found = vars(measured(Trial(**found), self.out / TRIALS / trial.name, self.metric))
        asked.set_user_attr("outcome", found)
        states = {"finished": optuna.trial.TrialState.COMPLETE, "pruned": optuna.trial.TrialState.PRUNED}
        state = states.get(found["status"], optuna.trial.TrialState.FAIL)
        study.tell(asked, found["value"] if found["status"] == "finished" else None, state=state)
        return found
