"""qkv import FOLDER --out RUN: an encoder, a GPT, a T5 or a translator of Hugging Face transformers as a run's folder."""

from pathlib import Path
from typing import Annotated

import typer


def import_command(
    folder: Annotated[Path, typer.Argument(help="A checkpoint: config.json, model.safetensors and a tokenizer.")],
    out: Annotated[Path, typer.Option(help="The run's folder to write; it must not exist yet.")],
) -> None:
    """Take over a BERT, ALBERT, ELECTRA, ERNIE, GPT, GPT-2, XLNet, T5 or Marian, to be used or trained further here."""
    from qkv.folder.networks import EncoderRun
    from qkv.interop.huggingface_runs import import_huggingface
    from qkv.parts.heads import ENCODER

    run = import_huggingface(folder, out)
    if not isinstance(run, EncoderRun):
        count = sum(weight.numel() for weight in run.weights.values())
        return print(f"{out}: {run.config.kind}, {count:,} parameters, {len(run.tokenizer):,} pieces")
    weights = run.network.weights
    count = sum(weight.numel() for part in weights.values() for weight in part.values())
    heads = ", ".join(part for part in weights if part != ENCODER) or "none"
    print(f"{out}: {run.network.config.kind}, {count:,} parameters, {len(run.tokenizer):,} pieces; heads: {heads}")
