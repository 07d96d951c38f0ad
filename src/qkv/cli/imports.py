"""qkv import FOLDER --out RUN: an encoder, a GPT, a T5 or a translator of Hugging Face transformers as a run's folder."""

from pathlib import Path
from typing import Annotated

import typer


def import_command(
    folder: Annotated[Path, typer.Argument(help="A checkpoint: config.json, model.safetensors and a tokenizer.")],
    out: Annotated[Path, typer.Option(help="The run's folder to write; it must not exist yet.")],
) -> None:
    """Take over a BERT, ALBERT, ELECTRA, ERNIE, GPT, GPT-2, XLNet, T5 or Marian, to be used or trained further here."""
    from qkv.interop.huggingface.runs import import_huggingface

    run = import_huggingface(folder, out)
    count = sum(weight.numel() for weight in run.weights.values())
    heads = "" if run.heads is None else f"; heads: {', '.join(run.heads) or 'none'}"
    print(f"{out}: {run.recipe.model.kind}, {count:,} parameters, {len(run.tokenizers.source):,} pieces{heads}")
