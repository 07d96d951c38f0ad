"""qkv completion: what a shell needs to complete qkv's commands, options, recipes and choices."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

VARIABLE = "_QKV_COMPLETE"  # which the scripts set when they ask for completions


class Shell(StrEnum):
    """Shells whose completion is tested."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion_command(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> None:
    """Print a script that lets your shell complete qkv's commands, options and recipes."""
    from typer.completion import get_completion_script

    print(get_completion_script(prog_name="qkv", complete_var=VARIABLE, shell=shell.value))


def complete_recipe(incomplete: str) -> list[str]:
    """Return the recipes whose names begin so; where there is none, the shell completes files."""
    folder = Path(__file__).parents[1] / "recipes"
    return sorted(path.stem for path in folder.glob("*.yaml") if path.stem.startswith(incomplete))
