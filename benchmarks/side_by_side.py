"""What comparisons of models share: names, processes side by side, and that runs already there are those asked for."""

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

AT_ONCE = "at-once"  # file in a run's folder: how many trained side by side then
GRACE = 60  # seconds that a training has to save what it learned, when another one failed


def folder_named(variant: str) -> str:
    """What a model is called among folders."""
    return re.sub("[(),]", "", variant.lower()).replace("+", "and").replace(" ", "-")


# Processes


def own_command(script: str, options: argparse.Namespace, what: str, variants: list[str], **others: Any) -> list[str]:
    """The command that does a part of what this one was asked for, with its options and others."""
    given = {**vars(options), **others, "what": None, "variant": None}
    command = [sys.executable, script, what]
    for name, value in given.items():
        if value is not None:
            command += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return [*command, *(part for variant in variants for part in ("--variant", variant))]


def run_side_by_side(commands: list[list[str]], jobs: int) -> None:
    """Run commands in processes of their own, so many at once; where one fails, the others are ended first."""
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
        _end(running)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Ask all to end, and end those that do not."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + GRACE
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0, until - time.monotonic()))
        process.kill()
        process.wait()


def warm_up(recipe: Any, run: Path) -> None:
    """A few gradients of another model of this shape: kernels are compiled before the clock runs, not in some models' time."""
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
    gradients = GradientAccumulator(job.model.train(), job.objective.loss, precision, 1, seed=0, rank=0, progress=progress)
    for batch in islice(job.batches.starting(START), 3):
        gradients.accumulate(batch.to(device), 0)


# What is there already


def refuse_other_runs(asked: Iterable[tuple[Path, Any]]) -> None:
    """End with a line where a run that is there, or begun, was made with another recipe than the one asked for."""
    for run, recipe in asked:
        if not ((run / RESULT).exists() or checkpoints.folders(run)):
            continue
        _refuse(run, differences(read_recipe(run), complete_recipe(recipe)))


def refuse_other_settings(note: Path, asked: dict[str, Any]) -> None:
    """The same for data made before, whose settings stand in a note beside it."""
    made = json.loads(note.read_text()) if note.exists() else asked
    _refuse(note.parent, [f"{name}: {made.get(name)!r} -> {value!r}" for name, value in asked.items() if made.get(name) != value])


def _refuse(made: Path, changes: list[str]) -> None:
    if changes:
        raise SystemExit(f"{made} was made with other settings: {'; '.join(changes)}. Ask for the same, or choose another --out")


def note_settings(note: Path, asked: dict[str, Any]) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(note) as path:
        path.write_text(json.dumps(asked, indent=1))


# What runs tell


def alike(runs: Iterable[Path], tell: Callable[[Any], str]) -> str:
    """What `tell` says of the recipe of each run, which must be one thing."""
    told = {tell(read_recipe(run)): run for run in runs}
    if len(told) > 1:
        raise SystemExit(f"not alike: {'; '.join(f'{run} had {what}' for what, run in told.items())}. Choose an --out for each")
    return next(iter(told))


def budget_of(recipe: Any) -> str:
    """How long a recipe trains."""
    training = recipe.training
    return f"{training.steps:,} updates" if training.steps else f"{training.minutes * 60:g} seconds"


def at_once(runs: Iterable[Path]) -> str:
    """How many trained side by side, as far as runs tell."""
    told = {int(path.read_text()) for run in runs if (path := run / AT_ONCE).exists()}
    return f", {' or '.join(map(str, sorted(told)))} training at once" if told else ""


def devices(scores: Iterable[dict[str, Any]]) -> str:
    """Where the models were scored."""
    return " or ".join(dict.fromkeys(score["device"] for score in scores))
