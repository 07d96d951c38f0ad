"""qkv export RUN --to ctranslate2|onnx|hf --out DIR: write a trained run in another program's format."""

from pathlib import Path
from typing import Annotated

import typer


def export_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run; one in training is exported with its newest checkpoint.")],
    to: Annotated[str, typer.Option(help="hf for Hugging Face transformers; for a translator also ctranslate2 or onnx.")],
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    precision: Annotated[str, typer.Option(help="float32; for ctranslate2 also int8 and bf16.")] = "float32",
    part: Annotated[str | None, typer.Option(help="For an ELECTRA: discriminator or generator.")] = None,
    license_name: Annotated[str | None, typer.Option("--license", help="License for the model card, such as mit.")] = None,
) -> None:
    """Export a run to Hugging Face, CTranslate2 or ONNX, with tokenizer and settings."""
    from qkv.interop.export import export

    folder = export(run, to, out, precision, part, license_name)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    print(f"{folder}: {to}, {precision}, {size:,.1f} MB")
