"""qkv merge ADAPTER --out RUN: write an adapter and its base as one complete run."""

from pathlib import Path
from typing import Annotated

import typer


def merge_command(
    adapter: Annotated[Path, typer.Argument(help="Folder of an adapter's run.")],
    out: Annotated[Path, typer.Option(help="Folder of the run to write; it must not exist.")],
    base: Annotated[Path | None, typer.Option(help="The run that the adapter was trained for, if it has moved.")] = None,
) -> None:
    """Merge an adapter with its base into a run that stands alone."""
    from qkv.folder.merging import merge

    run = merge(adapter, out, base)
    size = sum(file.stat().st_size for file in run.iterdir()) / 1e6
    print(f"{run}: a complete run, {size:,.1f} MB")
