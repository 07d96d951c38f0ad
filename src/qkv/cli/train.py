"""qkv train RECIPE|FILE [--set key=value]... [--out DIR]: train a model, or resume its training."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from qkv.base.errors import ConfigError


def train_command(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe (`qkv recipes` lists them), or a YAML file.")],
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

    loaded = load_recipe(recipe, settings or [])
    if gpus is not None and "WORLD_SIZE" not in os.environ:
        _exec_torchrun(gpus)
    from qkv.jobs.train import train

    train(loaded, out or Path("runs") / Path(recipe).stem, accept_changes)


def _exec_torchrun(gpus: str) -> None:
    """Replace this process by torchrun, which starts the same command once per GPU and passes signals on."""
    import torch

    available = torch.cuda.device_count()
    if gpus != "all" and not gpus.isdigit():
        raise ConfigError(f"--gpus {gpus}: give a number, or all")
    wanted = available if gpus == "all" else int(gpus)
    if not 0 < wanted <= available:
        raise ConfigError(f"--gpus {gpus}: torch sees {available} GPUs here; leave --gpus out to train on the CPU")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={wanted}"]
    os.execv(sys.executable, [*torchrun, "-m", "qkv", *sys.argv[1:]])
