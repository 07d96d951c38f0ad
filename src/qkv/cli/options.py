"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.base.errors import ConfigError
from qkv.cli.completion import complete_recipe

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Recipe = Annotated[
    str, typer.Argument(autocompletion=complete_recipe, help="Name of a recipe (`qkv recipes` lists them), or a YAML file.")
]
Decoding = Annotated[list[str] | None, typer.Option("--set", help="Any key of the recipe's decoding section: key=value.")]


def run_folder(value: str) -> Path:
    """Return the folder of a run; one at a URL is copied into the cache first."""
    from qkv.data.copies import local_folder

    return local_folder(value)


def check_out(out: Path | None, *endings: str) -> None:
    """Refuse a file to write whose name does not say its format, before the model is loaded."""
    if out is not None and out.suffix not in endings:
        raise ConfigError(f"--out {out}: the name must end with {' or '.join(endings)}, which chooses the format")
