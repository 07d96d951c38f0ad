"""qkv train RECIPE|FILE [--set key=value]... [--out DIR]: train a model, or resume its training."""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from qkv.base.errors import ConfigError
from qkv.cli.options import Recipe


def train_command(
    recipe: Recipe,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, such as training.steps=1000; repeat for several.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run, runs/RECIPE by default; an unfinished run in it is resumed.")
    ] = None,
    gpus: Annotated[str | None, typer.Option(help="Number of GPUs to train on, or all.")] = None,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Resume although the recipe has changed since.")
    ] = False,
) -> None:
    """Train a model; after an interruption the same command resumes."""
    from qkv.recipes import load_recipe

    if "WORLD_SIZE" not in os.environ:  # several processes read it together, and report a mistake once
        load_recipe(recipe, settings or [])
        if gpus is not None:
            _start_processes(gpus)
    from qkv.jobs.train import train

    train(recipe, out or Path("runs") / Path(recipe).stem, accept_changes, settings or [])


def _start_processes(gpus: str) -> NoReturn:
    """Start the same command once per GPU, by torchrun, and exit as the first one that fails does."""
    import torch
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    available = torch.cuda.device_count()
    if gpus != "all" and not gpus.isdigit():
        raise ConfigError(f"--gpus {gpus}: give a number, or all")
    wanted = available if gpus == "all" else int(gpus)
    if not 0 < wanted <= available:
        raise ConfigError(f"--gpus {gpus}: torch sees {available} GPUs here; leave --gpus out to train on the CPU")
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # the command has said why it ended
    try:
        torchrun(["--standalone", f"--nproc-per-node={wanted}", "-m", "qkv", *sys.argv[1:]])
    except ChildFailedError as error:
        codes = [failure.exitcode for failure in error.failures.values()]
        sys.exit(max(codes) if max(codes) > 0 else 128 - min(codes))
    except SignalException as stopped:
        sys.exit(128 + stopped.sigval)
    sys.exit(0)
