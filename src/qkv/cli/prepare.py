"""qkv prepare RECIPE|FILE [--set key=value]... [--shard i/n] [--on ray]: check and tokenise the corpora of a recipe."""

import os
import re
from typing import Annotated

import typer

from qkv.base.errors import ConfigError
from qkv.base.urls import is_url
from qkv.cli.options import Recipe

UNFINISHED = 3  # exit code while pieces of other machines are missing


def prepare_command(
    recipe: Recipe,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, such as data.train=s3://bucket/*.tsv; repeat for several.")
    ] = None,
    shard: Annotated[str, typer.Option(help="This machine's share, such as 2/8: the second of eight.")] = "1/1",
    workers: Annotated[int | None, typer.Option(min=1, help="Number of processes, one for each core by default.")] = None,
    on: Annotated[str, typer.Option(help="local; or ray, the cluster of RAY_ADDRESS, whose nodes share QKV_CACHE.")] = "local",
) -> None:
    """Check and tokenise the corpora of a recipe in the cache (QKV_CACHE, a folder or a URL), on one machine or several."""
    from qkv.recipes import load_recipe

    found = re.fullmatch(r"(\d+)/(\d+)", shard)
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count:
        raise ConfigError(f"--shard {shard}: give i/n with i from 1 to n, such as 2/8")
    if on not in ("local", "ray"):
        raise ConfigError(f"--on {on} is not known; give local or ray")
    loaded = load_recipe(recipe, settings or [])
    from qkv.jobs.prepare import prepare_corpora

    if on == "local":
        if not prepare_corpora(loaded, (number, count), workers):
            raise typer.Exit(UNFINISHED)
        return
    cache = os.environ.get("QKV_CACHE", "")
    if os.environ.get("RAY_ADDRESS") and (not cache or is_url(cache)):
        raise ConfigError(
            f"--on ray writes into a folder that all nodes share, and QKV_CACHE is {cache or 'not set'}; set it to one, or run "
            "qkv prepare --shard i/n on each machine"
        )
    from qkv.distributed.ray_workers import RayWorkers, cluster_size

    if not prepare_corpora(loaded, (number, count), workers or max(1, cluster_size(gpus=False)), RayWorkers):
        raise typer.Exit(UNFINISHED)
