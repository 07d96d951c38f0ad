"""qkv prepare RECIPE|FILE [--set key=value]... [--shard i/n]: check and tokenise the corpora of a recipe in the cache."""

import re
from typing import Annotated

import typer

from qkv.base.errors import ConfigError


def prepare_command(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe (`qkv recipes` lists them), or a YAML file.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, such as data.train=s3://bucket/*.tsv; repeat for several.")
    ] = None,
    shard: Annotated[str, typer.Option(help="This machine's share, such as 2/8: the second of eight.")] = "1/1",
    workers: Annotated[int | None, typer.Option(min=1, help="Number of processes, one for each core by default.")] = None,
) -> None:
    """Check and tokenise the corpora of a recipe in the cache (QKV_CACHE, a folder or a URL), on one machine or several."""
    from qkv.recipes import load_recipe

    found = re.fullmatch(r"(\d+)/(\d+)", shard)
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count:
        raise ConfigError(f"--shard {shard}: give i/n with i from 1 to n, such as 2/8")
    loaded = load_recipe(recipe, settings or [])
    from qkv.jobs.prepare import prepare_corpora

    prepare_corpora(loaded, (number, count), workers)
