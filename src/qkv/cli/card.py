"""qkv card RUN: write a model card of what a run records."""

from pathlib import Path
from typing import Annotated

import typer


def card_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[Path | None, typer.Option(help="File to write; README.md in the run's folder by default.")] = None,
    license_name: Annotated[str | None, typer.Option("--license", help="License to name, such as mit or cc-by-4.0.")] = None,
) -> None:
    """Write a model card: what a model is, what it was trained on, how good it is, and how to use it."""
    from qkv.folder.model_card import write_card

    print(write_card(run, out, license_name))
