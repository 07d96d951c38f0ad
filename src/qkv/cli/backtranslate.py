"""qkv backtranslate REVERSE_RUN TEXT... --out pairs.tsv: synthetic sources for real targets."""

from pathlib import Path
from typing import Annotated

import typer

from qkv.cli.options import Decoding, Device


def backtranslate_command(
    run: Annotated[Path, typer.Argument(help="Run that translates from the target language to the source language.")],
    texts: Annotated[list[str], typer.Argument(help="Target-language text, one text per line: files, patterns, or -.")],
    out: Annotated[Path, typer.Option(help="TSV file of pairs to write; an unfinished one is continued.")],
    tag: Annotated[str, typer.Option(help="Word that begins each source; empty for none.")] = "<BT>",
    min_score: Annotated[float | None, typer.Option(help="Drop pairs of a lower log-probability per token, such as -2.")] = None,
    beam: Annotated[int | None, typer.Option(help="Beam search of this size instead of sampling; 1 is greedy.")] = None,
    n_best: Annotated[int | None, typer.Option(help="Translations of each text.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of sampling: below 1 sharpens, above 1 flattens.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k most likely tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the tokens that hold this probability.")] = None,
    settings: Decoding = None,
    device: Device = "auto",
    engine: Annotated[str | None, typer.Option(help="own, ctranslate2 or onnx.")] = None,
    precision: Annotated[str | None, typer.Option(help="With --engine ctranslate2: float32, int8 or bf16.")] = None,
) -> None:
    """Write training pairs: sampled translations of a text, and the text; after an interruption the same command goes on."""
    from qkv.base.config import with_settings
    from qkv.jobs.synthesis import backtranslate

    given = {"beam": beam, "n_best": n_best, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    options = with_settings({name: value for name, value in given.items() if value is not None}, settings or [])
    backtranslate(run, texts, out, tag=tag, min_score=min_score, device=device, engine=engine, precision=precision, **options)
