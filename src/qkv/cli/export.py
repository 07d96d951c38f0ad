"""qkv export RUN --to ctranslate2|onnx|hf --out DIR: a trained run for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.lines import warnings_as_lines


def export_command(
    run: Annotated[Path, typer.Argument(help="The run's folder; its training must be finished.")],
    to: Annotated[str, typer.Option(help="hf, for transformers; of a translator also ctranslate2 and onnx.")],
    out: Annotated[Path, typer.Option(help="The folder to write; it must not exist yet.")],
    precision: Annotated[str, typer.Option(help="float32; for ctranslate2 int8 and bf16 too.")] = "float32",
    part: Annotated[str | None, typer.Option(help="Of an ELECTRA: discriminator, or generator.")] = None,
) -> None:
    """Write a trained run in another program's format, with all that is needed to use it."""
    from qkv.interop.export import export

    with warnings_as_lines():
        folder = export(run, to, out, precision, part)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    print(f"{folder}: {to}, {precision}, {size:,.1f} MB")
