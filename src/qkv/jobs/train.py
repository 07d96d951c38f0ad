"""From a recipe to a finished run: prepare the data, train, choose the weights, score them, write the report."""

import contextlib
import json
import platform
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from qkv.base.config import describe_differences, differences, dump_yaml
from qkv.base.errors import ConfigError, QkvError
from qkv.base.hardware import choose_device, describe_device
from qkv.folder.run import RESULT, discard_run, is_run, lock_run, open_run, read_recipe
from qkv.folder.start import complete_recipe
from qkv.folder.start_weights import weights_to_hold
from qkv.jobs.finetuning import finetuning
from qkv.jobs.health import expectations, make_probe
from qkv.jobs.inputs import check_inputs
from qkv.jobs.job import Job, count_parameters, precision_name
from qkv.jobs.pretraining import pretraining
from qkv.jobs.translation import translation
from qkv.recipes import RECIPE, Recipe, load_recipe, parse_recipe
from qkv.training import checkpoints, distributed
from qkv.training.health import Health
from qkv.training.loop import Trainer
from qkv.training.progress import Progress
from qkv.training.trackers import Tracker

JOBS: dict[str, Callable[..., Job]] = {"translation": translation, "pretraining": pretraining, "finetuning": finetuning}
VISIBLE_AFTER = 60  # seconds until a shared file system shows a new folder everywhere


def train(
    recipe: str | Path | dict[str, Any] | Recipe,
    out: str | Path,
    accept_changes: bool = False,
    settings: Mapping[str, Any] | list[str] | None = None,
    tracker: Tracker | None = None,
) -> Path:
    """Train a recipe into the run folder `out` and return the folder; the same call again resumes where it stopped.

    The recipe is a name (see `qkv recipes`), a YAML file, or a dict; `settings` replace single values, as `--set` does.
    A `tracker` sees each line of the log; an error that it raises ends the training.

    >>> qkv.train("transformer-small", out="runs/x", settings={"data.train": "train.tsv", "data.dev": "dev.tsv"})
    PosixPath('runs/x')
    """
    if not isinstance(out, str | Path):
        raise ConfigError(f"out must be the folder of the run, got {type(out).__name__}")
    run = Path(out)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(out)):  # a path has lost one of the two slashes of a URL
        raise ConfigError(
            f"{out}: a run is trained in a folder of this machine; train it there, then copy it (aws s3 cp --recursive); "
            "qkv.load and the commands that use a run read it at a URL"
        )
    with distributed.joined_processes() as rank, contextlib.ExitStack() as stack:
        with distributed.all_or_none():
            recipe = complete_recipe(resolve_recipe(recipe, settings))
            if not (is_run(run) and (run / RESULT).exists() and not differences(read_recipe(run), recipe)):
                check_inputs(recipe)
        _compare_recipes(recipe, rank)
        progress = Progress(quiet=rank > 0)
        stack.callback(progress.close)
        new = not run.exists()
        with distributed.all_or_none():
            if rank == 0:
                stack.enter_context(lock_run(run))
                for change in open_run(run, recipe, accept_changes):
                    progress.say(f"changed: {change}")
        with distributed.all_or_none():
            _wait_for_folder(run, rank)
        if (run / RESULT).exists():
            more = ", or larger training.steps or minutes to continue" if checkpoints.folders(run) else ""
            progress.say(f"{run} is finished; choose another --out to train again{more}")
            return run
        try:
            _train(recipe, run, progress, rank, accept_changes, tracker)
        except (QkvError, distributed.OtherProcessFailedError):
            if new and rank == 0:
                discard_run(run)
            raise
    return run


def _compare_recipes(recipe: Recipe, rank: int) -> None:
    """Refuse processes with other recipes than the first one's."""
    own = dump_yaml(recipe)
    first = distributed.broadcast_text(own)
    with distributed.all_or_none():
        if own != first:
            changes = differences(parse_recipe(yaml.safe_load(first), "the recipe of process 0"), recipe)
            raise ConfigError(
                f"process {rank} on {platform.node()} has another recipe than process 0: {describe_differences(changes)}; "
                "start all processes with the same recipe and settings"
            )


def _wait_for_folder(run: Path, rank: int) -> None:
    """Wait until this process sees the folder that the first one has opened; refuse one that it does not share."""
    end = time.monotonic() + VISIBLE_AFTER
    while not (run / RECIPE).exists():
        if time.monotonic() > end:
            raise ConfigError(
                f"{run}: process {rank} on {platform.node()} does not see the folder that process 0 has made; choose an --out "
                "on a file system that all machines share"
            )
        time.sleep(0.1)


def resolve_recipe(given: Any, settings: Mapping[str, Any] | list[str] | None) -> Recipe:
    """Return the recipe that a caller gives as a name, a file, a dict or a recipe, with the settings applied."""
    if settings is not None and not isinstance(settings, Mapping | list):
        raise ConfigError(f"settings must be a dict such as {{'training.steps': 1000}}, got {type(settings).__name__}")
    if isinstance(given, str | Path | dict):
        return load_recipe(given, settings if isinstance(settings, list) else list(as_settings(settings or {})))
    if not hasattr(given, "job"):
        raise ConfigError(f"a recipe is a name, a YAML file or a dict, got {type(given).__name__}")
    if settings:
        raise ConfigError("settings go with a recipe's name, file or dict; change the recipe itself instead")
    return given


def as_settings(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield `key=value` for each value, in JSON, which is YAML; a section inside a section sets its keys one by one."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from as_settings(value, f"{prefix}{key}.")
        else:
            try:
                yield f"{prefix}{key}={json.dumps(value, default=_path_as_text)}"
            except TypeError as error:
                raise ConfigError(f"settings: {prefix}{key} {error}; give a text, a number, a path, a list or a dict") from None


def _path_as_text(value: Any) -> str:
    if not isinstance(value, Path):
        raise TypeError(f"is or has a {type(value).__name__}")
    return str(value)


def _train(recipe: Recipe, run: Path, progress: Progress, rank: int, accept_changes: bool, tracker: Tracker | None) -> None:
    # The first process makes the tokenizers and fills its machine's cache, then the first ones of other machines fill theirs.
    turn = 0 if rank == 0 else 1 if distributed.is_first_of_node() else 2
    for now in range(3):
        with distributed.all_or_none():
            if now == turn:
                job = JOBS[recipe.job](recipe, run, progress, accept_changes)
    _announce(recipe, job, progress)
    trainer = Trainer(
        run, job.model, job.objective, job.batches, job.training,
        seed=recipe.seed, width=recipe.model.width, validate=job.validator, progress=progress,
        health=Health(expectations(job.objective, job.token_counts)), probe=make_probe(job.model, job.objective),
        start_weights=weights_to_hold(recipe, run, job.model) if recipe.training.start_penalty else None,
    )  # fmt: skip
    if trainer.log and tracker:
        trainer.log.trackers.append(tracker)
    with trainer.log or contextlib.nullcontext():
        _run(recipe, run, job, trainer, progress)


def _run(recipe: Recipe, run: Path, job: Job, trainer: Trainer, progress: Progress) -> None:
    """Train, then choose the weights, score them and write the report."""
    state = trainer.train()
    progress.close()
    if trainer.signals.number is not None:
        progress.say(f"saved at step {state.step:,}; run the same command to resume")
        if trainer.signals.number == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt
    trainer.release()  # scores in float32 need more memory than those in bf16 during training
    if trainer.rank == 0:
        job.validator.use_float32()
        job.finish(trainer)
        if not recipe.training.keep_checkpoints:  # only now: without a result, a run goes on from its checkpoints
            freed = checkpoints.delete_all(run) / 1e6
            progress.say(f"checkpoints deleted, {freed:,.1f} MB (training.keep_checkpoints=true keeps them, to train further)")
        for warning in trainer.health.summary():
            progress.warn(warning)


def _announce(recipe: Recipe, job: Job, progress: Progress) -> None:
    """Show the size of the run, and warn of doubtful settings."""
    config = job.training
    for warning in recipe.model.warnings(recipe.longest):
        progress.warn(warning)
    limits = [f"{config.steps:,} steps"] if config.steps else []
    limits += [f"{config.minutes:.3g} minutes"] if config.minutes else []
    device = choose_device(config.device)
    progress.say(
        f"{recipe.model.kind}, {count_parameters(job.model)} parameters; {job.size}; {' or '.join(limits)} on "
        f"{describe_device(device)}, {precision_name(recipe, device)}"
    )
