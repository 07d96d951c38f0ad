"""qkv train RECIPE|FILE [--set key=value]... [--out DIR]"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from qkv.base.errors import ConfigError


def train_command(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see `qkv recipes`), or a YAML file.")],
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value, such as training.steps=1000.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; the same one again resumes.")] = None,
    gpus: Annotated[str | None, typer.Option(help="How many GPUs to train on: a number, or all.")] = None,
    accept_changes: Annotated[bool, typer.Option(help="Resume although the recipe differs.")] = False,
) -> None:
    """Train a model; the same command again goes on where it stopped."""
    from qkv.recipes import load_recipe

    made = load_recipe(recipe, settings or [])
    if gpus is not None and "WORLD_SIZE" not in os.environ:
        _become_torchrun(gpus)
    from qkv.jobs.train import train

    train(made, out or Path("runs") / Path(recipe).stem, accept_changes)


def _become_torchrun(gpus: str) -> None:
    """Start this very command once for each GPU; never comes back, so that signals reach torchrun and it passes them on."""
    import torch

    there = torch.cuda.device_count()
    if gpus != "all" and not gpus.isdigit():
        raise ConfigError(f"--gpus {gpus}: give a number, or all")
    wanted = there if gpus == "all" else int(gpus)
    if not 0 < wanted <= there:
        raise ConfigError(f"--gpus {gpus}: torch sees {there} GPUs here; leave --gpus out to train on the CPU")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={wanted}"]
    os.execv(sys.executable, [*torchrun, "-m", "qkv", *sys.argv[1:]])
