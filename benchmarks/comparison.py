"""Shared code of the comparisons: folder names, parallel processes, and checks that existing runs have the same settings."""

import argparse
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from qkv.base.config import differences
from qkv.base.files import atomic_file
from qkv.folder.run import RESULT, read_recipe
from qkv.folder.start import complete_recipe
from qkv.training import checkpoints

JOBS_FILE = "parallel-jobs"  # file in a run's folder: the number of runs that trained in parallel
GRACE = 60  # seconds for a training to save its checkpoint after another process failed


def folder_name(variant: str) -> str:
    """Return the folder name of a variant."""
    return re.sub("[(),]", "", variant.lower()).replace("+", "and").replace(" ", "-")


# Processes


def subcommand(script: str, options: argparse.Namespace, action: str, variants: list[str], **others: Any) -> list[str]:
    """Return the command that runs one action of a script for some variants, with these options and others."""
    given = {**vars(options), **others, "action": None, "variant": None}
    command = [sys.executable, script, action]
    for name, value in given.items():
        if value is not None:
            command += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return [*command, *(part for variant in variants for part in ("--variant", variant))]


def run_parallel(commands: list[list[str]], jobs: int) -> None:
    """Run commands in parallel, `jobs` at a time; if one fails, terminate the others and raise."""
    waiting, running = list(commands), list[subprocess.Popen[bytes]]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(subprocess.Popen(waiting.pop(0)))
            time.sleep(0.1)
            ended = [process for process in running if process.poll() is not None]
            running = [process for process in running if process not in ended]
            if any(process.returncode for process in ended):
                raise SystemExit("one of the processes failed; see above")
    finally:
        _terminate(running)


def _terminate(processes: list[subprocess.Popen[bytes]]) -> None:
    """Send SIGTERM to all, and kill those that are still running after GRACE seconds."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + GRACE
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0, until - time.monotonic()))
        process.kill()
        process.wait()


def warm_up(recipe: Any, run: Path) -> None:
    """Compute a few gradients of a throwaway model of this shape, so that kernels are compiled before time is measured."""
    from qkv.base.hardware import choose_precision
    from qkv.data.batches import START
    from qkv.jobs.train import JOBS
    from qkv.training.gradients import GradientAccumulator
    from qkv.training.progress import Progress

    run.mkdir(parents=True, exist_ok=True)
    progress = Progress(quiet=True)
    recipe = complete_recipe(recipe)
    job = JOBS[recipe.job](recipe, run, progress, True)
    device = next(job.model.parameters()).device
    precision = choose_precision(recipe.training.precision, device)
    gradients = GradientAccumulator(job.model.train(), job.objective.loss, precision, 1, seed=0, progress=progress)
    for batch in islice(job.batches.starting(START), 3):
        gradients.accumulate(batch.to(device), 0)


# Existing runs and data


def refuse_other_runs(wanted: Iterable[tuple[Path, Any]]) -> None:
    """Exit with a message if a finished or resumable run has another recipe than the wanted one."""
    for run, recipe in wanted:
        if not ((run / RESULT).exists() or checkpoints.folders(run)):
            continue
        _refuse(run, differences(read_recipe(run), complete_recipe(recipe)))


def refuse_other_settings(file: Path, wanted: dict[str, Any]) -> None:
    """Exit with a message if the data beside this file of settings were made with others."""
    made = json.loads(file.read_text()) if file.exists() else wanted
    _refuse(
        file.parent, [f"{name}: {made.get(name)!r} -> {value!r}" for name, value in wanted.items() if made.get(name) != value]
    )


def _refuse(made: Path, changes: list[str]) -> None:
    if changes:
        raise SystemExit(f"{made} was made with other settings: {'; '.join(changes)}. Use the same, or choose another --out")


def write_settings(file: Path, settings: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as path:
        path.write_text(json.dumps(settings, indent=1))


# Descriptions of runs


def common_description(runs: Iterable[Path], describe: Callable[[Any], str]) -> str:
    """Return the description of the runs' recipes, which must be the same for all."""
    found = {describe(read_recipe(run)): run for run in runs}
    if len(found) > 1:
        listed = "; ".join(f"{run} had {description}" for description, run in found.items())
        raise SystemExit(f"the runs cannot be compared: {listed}. Choose an --out for each")
    return next(iter(found))


def training_budget(recipe: Any) -> str:
    """Describe how long a recipe trains."""
    training = recipe.training
    return f"{training.steps:,} updates" if training.steps else f"{training.minutes * 60:g} seconds"


def parallel_jobs(runs: Iterable[Path]) -> str:
    """Describe how many runs trained in parallel, if it is known."""
    found = {int(path.read_text()) for run in runs if (path := run / JOBS_FILE).exists()}
    return f", {' or '.join(map(str, sorted(found)))} trained in parallel" if found else ""


def device_names(scores: Iterable[dict[str, Any]]) -> str:
    """Return the devices that the models were scored on."""
    return " or ".join(dict.fromkeys(score["device"] for score in scores))
