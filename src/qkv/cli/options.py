"""Options that several commands share."""

from typing import Annotated

import typer

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Decoding = Annotated[list[str] | None, typer.Option("--set", help="Any key of the recipe's decoding section: key=value.")]
