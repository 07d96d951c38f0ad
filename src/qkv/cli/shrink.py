"""qkv shrink RUN FILE... --out SMALLER: drop the pieces of a translator's vocabulary that some texts do not need."""

from pathlib import Path
from typing import Annotated

import typer


def shrink_command(
    run: Annotated[Path, typer.Argument(help="Folder of a translator's run.")],
    texts: Annotated[list[str], typer.Argument(metavar="FILE", help="Pairs of texts, as data.train takes them.")],
    out: Annotated[Path, typer.Option(help="Folder of the run to write; it must not exist.")],
) -> None:
    """Write a smaller translator, without the pieces that these texts do not need.

    Texts that need only kept pieces have the same tokens, and the same greedy translations where these need no dropped piece.
    """
    from qkv.jobs.shrink import shrink

    before, after = shrink(run, texts, out)
    pieces = (" and ".join(f"{count:,}" for count in dict.fromkeys(size.pieces)) for size in (before, after))
    print(f"{out}: {' pieces before, '.join(pieces)} after; {before.parameters:,} parameters before, {after.parameters:,} after")
