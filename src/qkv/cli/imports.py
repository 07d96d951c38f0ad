"""qkv import FOLDER --out RUN: turn a Hugging Face checkpoint into a run's folder."""

from pathlib import Path
from typing import Annotated

import typer


def import_command(
    folder: Annotated[Path, typer.Argument(help="Checkpoint with config.json, model.safetensors and a tokenizer.")],
    out: Annotated[Path, typer.Option(help="Folder of the run to write; it must not exist.")],
) -> None:
    """Import a Hugging Face checkpoint, to use or to train further.

    Supported are BERT, ALBERT, ELECTRA, ERNIE, GPT, GPT-2, XLNet, T5 and Marian.
    """
    from qkv.interop.huggingface.runs import import_huggingface

    run = import_huggingface(folder, out)
    count = sum(weight.numel() for weight in run.weights.values())
    heads = "" if run.heads is None else f"; heads: {', '.join(run.heads) or 'none'}"
    print(f"{out}: {run.recipe.model.kind}, {count:,} parameters, {len(run.tokenizers.source):,} pieces{heads}")
