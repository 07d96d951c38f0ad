"""A sweep: one recipe trained with many settings, all combinations of some values or draws from ranges, compared on dev.

Each trial is an ordinary run in the folder `trials`. Its outcome is in `sweep.json`, written anew after each; a sweep that was
stopped goes on with the trials that are not in it, and one in the middle of its training resumes from its checkpoint.
"""

import contextlib
import json
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_file, write_error
from qkv.base.hardware import cpu_cores
from qkv.base.locks import lock_file
from qkv.base.pool import LocalWorkers, run_tasks
from qkv.jobs.optuna_search import OptunaWorker, open_study, require_optuna
from qkv.jobs.search_space import Dimension, draws, grid, read_dimensions
from qkv.jobs.train import as_settings
from qkv.jobs.trials import TRIALS, Base, Trial, TrialWorker, default_metric, lower_is_better, measured, show
from qkv.recipes import RECIPE, Recipe
from qkv.report.sweep import write_sweep_report
from qkv.training.log import read_metrics
from qkv.training.progress import duration

SWEEP = "sweep.json"


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep searches."""

    metric: str | None = None  # a figure of metrics.jsonl on dev; by default the one that chooses the best weights
    seeds: int = 1  # trainings of each setting, whose mean counts
    random: int | None = None  # settings to draw, instead of all combinations
    optuna: int | None = None  # settings that Optuna chooses
    seed: int = 1  # of the draws
    workers: int | None = None  # trials at a time; by default one for each GPU, or one
    retry: bool = False  # train trials again that failed

    def __post_init__(self) -> None:
        if self.random is not None and self.optuna is not None:
            raise ConfigError("--random and --optuna are two ways to choose settings; give one")
        if self.optuna is not None and self.seeds > 1:
            raise ConfigError("--optuna trains each setting once; leave --seeds out, and train the best ones with several seeds")
        for name in ("seeds", "random", "optuna", "workers"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise ConfigError(f"--{name} {number}: give a number from 1 on")


@dataclass
class SweepResult:
    """The trials of a sweep, and the setting that is best on dev."""

    folder: Path
    metric: str
    trials: list[Trial]
    base: Base = field(repr=False)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each setting, the best first: its settings, mean of the metric, deviation over seeds, trials, problems."""
        groups: dict[str, list[Trial]] = {}
        for trial in self.trials:
            groups.setdefault(json.dumps(trial.settings), []).append(trial)
        found = []
        for trials in groups.values():
            problems = [f"{one.status}: {one.message}" for one in trials if one.status not in ("finished", "planned")]
            values = [one.value for one in trials if one.status == "finished" and one.value is not None]
            found.append({
                "settings": trials[0].settings, "label": trials[0].label, "value": fmean(values) if values else None,
                "deviation": stdev(values) if len(values) > 1 else None, "trials": len(values),
                "seconds": round(sum(one.seconds for one in trials), 1),
                "problem": next(iter(problems), ""),
            })  # fmt: skip
        sign = 1 if lower_is_better(self.metric) else -1
        return sorted(found, key=lambda row: (row["value"] is None, sign * (row["value"] or 0)))

    @property
    def best(self) -> dict[str, Any] | None:
        """The row of the best setting; None where no trial has finished."""
        row = next(iter(self.rows), None)
        return row if row is not None and row["value"] is not None else None

    @property
    def command(self) -> str:
        """The command that trains the best setting again."""
        return f"qkv train {shlex.quote(str(self.best_folder / RECIPE))} --out runs/best" if self.best is not None else ""

    @property
    def best_folder(self) -> Path:
        """The run of the best setting's best trial."""
        assert self.best is not None
        better = min if lower_is_better(self.metric) else max
        of_best = [one for one in self.trials if one.settings == self.best["settings"] and one.value is not None]
        return self.folder / TRIALS / better(of_best, key=lambda one: one.value or 0.0).name


def sweep(
    recipe: str | Path | dict[str, Any], out: str | Path, tries: Mapping[str, Any] | Sequence[str],
    settings: Mapping[str, Any] | Sequence[str] = (), say: Callable[[str], None] = print, **options: Any,
) -> SweepResult:  # fmt: skip
    """Train a recipe with many settings into the folder `out`, and compare them; the same call again resumes.

    `tries` has for each key a list of values, or a range such as "2..6"; `settings` are the same in all trials. Options are those
    of SweepOptions, such as `seeds=3`, `random=20`, `optuna=20`, `metric="dev_bleu"`.

    >>> qkv.sweep("transformer-small", "runs/sweep", {"training.learning_rate": [1e-4, 3e-4]}, {"data.train": "train.tsv"})
    """
    unknown = options.keys() - SweepOptions.__dataclass_fields__.keys()
    if unknown:
        raise ConfigError(f"sweep has no option {min(unknown)}; it has {', '.join(SweepOptions.__dataclass_fields__)}")
    dimensions, wanted, folder = read_dimensions(tries), SweepOptions(**options), Path(out)
    fixed = tuple(as_settings(settings) if isinstance(settings, Mapping) else settings)
    base = Base(json.dumps(recipe, default=str) if isinstance(recipe, dict) else str(recipe), fixed)
    with _locked(folder):
        if wanted.optuna is not None:
            return _search(folder, base, dimensions, wanted, say)
        return _run_all(folder, base, dimensions, wanted, say)


def _run_all(
    folder: Path, base: Base, dimensions: tuple[Dimension, ...], options: SweepOptions, say: Callable[[str], None]
) -> SweepResult:
    """Train all combinations, or some draws."""
    tried = grid(dimensions) if options.random is None else draws(dimensions, options.random, options.seed)
    planned = [base.plan(one, seed) for one in tried for seed in (range(1, options.seeds + 1) if options.seeds > 1 else [None])]
    trials = [trial for trial, _ in planned]
    metric = _check_plan(planned, options)
    known = {trial.name: trial for trial in _recorded(folder) if trial.status != "failed" or not options.retry}
    trials = [known.get(trial.name, trial) for trial in trials]
    result = SweepResult(folder, metric, trials, base)
    _say_refused(trials, say)
    todo = [number for number, trial in enumerate(trials) if trial.status == "planned"]
    done = sum(trial.status not in ("planned", "refused") for trial in trials)
    say(f"{len(trials):,} trials" + (f", of which {done:,} were trained before" if done else ""))
    tasks = [{"trial": vars(trials[number])} for number in todo]
    setup = {"base": asdict(base), "out": str(folder)}
    for done, (number, answer) in enumerate(_answers(TrialWorker, setup, tasks, options), len(trials) - len(todo) + 1):
        trial = Trial(**(vars(trials[todo[number]]) | answer))
        trials[todo[number]] = measured(trial, folder / TRIALS / trial.name, metric)
        _say_trial(done, len(trials), trials[todo[number]], metric, say)
        _write(result)
    return _finish(result, [measured(trial, folder / TRIALS / trial.name, metric) for trial in trials])


def _search(
    folder: Path, base: Base, dimensions: tuple[Dimension, ...], options: SweepOptions, say: Callable[[str], None]
) -> SweepResult:
    """Let Optuna choose the settings of trials."""
    require_optuna()
    assert options.optuna is not None
    # Each value by itself beside the first ones of the others, as what Optuna will choose is not known yet.
    ends = {one.key: one.values or (one.low, one.high) for one in dimensions}
    first = {key: values[0] for key, values in ends.items()}
    planned = [base.plan(first | {key: value}) for key, values in ends.items() for value in values]
    metric = _check_plan(planned, options)
    _say_refused([trial for trial, _ in planned], say)
    space = json.dumps([asdict(base), metric, [asdict(one) for one in dimensions]])
    open_study(folder, metric, space, options.seed)
    result = SweepResult(folder, metric, [], base)
    tasks = [{"task": task} for task in range(options.optuna)]  # workers know from the study which ones are done
    say(f"{options.optuna:,} trials")
    setup = {
        "base": asdict(base), "out": str(folder), "metric": metric, "space": space, "seed": options.seed,
        "dimensions": [asdict(one) for one in dimensions],
    }  # fmt: skip
    for number, answer in _answers(OptunaWorker, setup, tasks, options):
        trial = Trial(**({"name": f"task-{tasks[number]['task']}", "settings": {}} | answer))
        result.trials.append(trial)
        _say_trial(len(result.trials), options.optuna, trial, metric, say)
        _write(result)
    return _finish(result, result.trials)


def _check_plan(planned: list[tuple[Trial, Recipe | None]], options: SweepOptions) -> str:
    """Return the metric; refuse a plan of which no trial can be trained."""
    recipes = [recipe for _, recipe in planned if recipe is not None]
    if not recipes:
        raise ConfigError(f"no trial can be trained; {planned[0][0].label}: {planned[0][0].message}")
    return options.metric or default_metric(recipes[0])


def _answers(
    work: type, setup: dict[str, Any], tasks: list[dict[str, Any]], options: SweepOptions
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each task that is done, and what came of it."""
    import torch

    gpus = [str(number) for number in range(torch.cuda.device_count())]
    count = options.workers or max(1, len(gpus))
    threads = {} if gpus or "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(max(1, cpu_cores() // count))}
    workers = LocalWorkers(f"{work.__module__}:{work.__qualname__}", setup, gpus, threads)
    for number, answer, lost in run_tasks(workers, count, tasks):
        yield number, answer if not lost else {"status": "failed", "message": lost}


def _finish(result: SweepResult, trials: list[Trial]) -> SweepResult:
    """Write sweep.json and the report."""
    result = SweepResult(result.folder, result.metric, trials, result.base)
    _write(result)
    write_sweep_report(
        result.folder,
        rows=result.rows,
        metric=result.metric,
        curves={one.label: read_metrics(result.folder / TRIALS / one.name) for one in trials if one.value is not None},
        command=result.command,
        facts={"recipe": result.base.recipe, "trials": len(trials), "metric": result.metric, "date": time.strftime("%Y-%m-%d")},
    )
    return result


def _write(result: SweepResult) -> None:
    values = {
        **asdict(result.base), "metric": result.metric, "best": result.best, "command": result.command,
        "settings_tried": result.rows, "trials": [vars(trial) for trial in result.trials],
    }  # fmt: skip
    with atomic_file(result.folder / SWEEP) as aside:
        aside.write_text(json.dumps(values, indent=1, ensure_ascii=False), encoding="utf-8")


def _recorded(folder: Path) -> list[Trial]:
    """Return the trials that sweep.json holds, but for those that were not trained yet."""
    path = folder / SWEEP
    if not path.exists():
        return []
    try:
        trials = [Trial(**values) for values in json.loads(path.read_text(encoding="utf-8"))["trials"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not what qkv sweep writes ({error}); delete it, and finished trials are found again") from None
    return [trial for trial in trials if trial.status not in ("planned", "refused")]


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder of a sweep, and create it."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / ".lock").exists():
        raise ConfigError(f"{folder} is not empty and not the folder of a sweep; choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise write_error(folder, error) from None
    with lock:
        try:
            lock_file(lock, wait=False)
        except OSError:
            raise ConfigError(f"{folder} is being used by another sweep; wait, or choose another --out") from None
        yield


def _say_refused(trials: list[Trial], say: Callable[[str], None]) -> None:
    for label, message in dict.fromkeys((trial.label, trial.message) for trial in trials if trial.status == "refused"):
        say(f"refused: {label}: {message}")


def _say_trial(number: int, count: int, trial: Trial, metric: str, say: Callable[[str], None]) -> None:
    seed = "" if trial.seed is None else f", seed {trial.seed}"
    value = "" if trial.value is None else f"{metric} {show(trial.value)} at step {trial.step:,}"
    outcome = value if trial.status == "finished" else f"{trial.status}: {trial.message}"
    say(f"{number}/{count}  {trial.label}{seed}: {outcome} ({duration(trial.seconds)})")
