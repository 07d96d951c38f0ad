"""qkv evaluate RUN [--data FILE]: scores with signature and confidence; against another run, with a paired test."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from qkv.base.config import parse, with_settings
from qkv.base.errors import ConfigError, DataError
from qkv.base.files import whole_file


def evaluate_command(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    data: Annotated[str | None, typer.Option(help="A file of pairs; the recipe's test set (or dev) when not given.")] = None,
    against: Annotated[Path | None, typer.Option(help="Another run, to test whether the difference is chance.")] = None,
    metrics: Annotated[str | None, typer.Option(help="bleu,chrf,ter,token_errors,exact; the recipe's when not given.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any key of `decoding`: key=value.")] = None,
    outputs: Annotated[Path | None, typer.Option(help="Write the translations there, a line each.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Score a run on held-out pairs."""
    from qkv.build import DataConfig
    from qkv.runs.evaluate import evaluate
    from qkv.runs.prepare import read_corpora
    from qkv.runs.translator import load
    from qkv.text.score import compare_systems

    translator = load(run, device)
    config = translator.recipe.data
    if data is not None:
        config = parse(DataConfig, {**config.model_dump(), "test": data}, "--data")
    pairs, _ = read_corpora(config.test or config.dev, config)
    if not pairs:
        raise DataError("there are no pairs to score; give --data a file with at least one")
    if outputs is not None and outputs.exists():
        raise ConfigError(f"{outputs} exists already; choose another name for --outputs")
    if outputs is not None and not outputs.parent.is_dir():
        raise ConfigError(f"{outputs}: there is no folder {outputs.parent}; make it, or choose another name for --outputs")
    wanted = (
        tuple(metrics.split(","))
        if metrics is not None
        else ("bleu", "chrf", "ter")
        if _is_translation(translator.recipe.metrics)
        else translator.recipe.metrics
    )
    options = with_settings({}, settings or [])
    found = evaluate(translator, pairs, wanted, confidence=True, **options)
    if outputs is not None:
        with whole_file(outputs) as path:
            path.write_text("".join(f"{line}\n" for line in found.outputs), encoding="utf-8")
    compared = []
    if against is not None:
        other = evaluate(load(against, device), pairs, wanted, **options)
        language = config.languages[1] if config.languages else None
        compared = compare_systems(other.outputs, found.outputs, found.references, wanted, language)
    if as_json:
        print(json.dumps({"scores": [vars(s) for s in found.scores], "against": [vars(c) for c in compared]}, indent=1))
        return
    console = Console(highlight=False)
    table = Table("metric", "score", "95 % confidence", "signature")
    for score in found.scores:
        table.add_row(score.label, f"{score.value:.2f}", f"{score.low:.2f} to {score.high:.2f}", score.signature)
    console.print(table)
    for c in compared:
        verdict = "differs" if c.p_value < 0.05 else "may be chance"
        console.print(f"{c.name}: {against} {c.baseline:.2f}, {run} {c.system:.2f}, p = {c.p_value:.3f}: {verdict}")


def _is_translation(metrics: tuple[str, ...]) -> bool:
    return "bleu" in metrics
