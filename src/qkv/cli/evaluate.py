"""qkv evaluate RUN [--data FILE]: scores with signature and confidence; against another run, with a paired test."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from qkv.base.config import parse, with_settings
from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_file
from qkv.cli.lines import warnings_as_lines

if TYPE_CHECKING:
    from qkv.text.translation_metrics import Comparison, Score


def evaluate_command(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    data: Annotated[
        str | None, typer.Option(help="Pairs, examples or text; the recipe's test set (or dev) when not given.")
    ] = None,
    pairs: Annotated[
        str | None,
        typer.Option(help="Pairs of a right text and a wrong one, such as BLiMP's: how often is the right one likelier?"),
    ] = None,
    against: Annotated[Path | None, typer.Option(help="Another run, to test whether the difference is chance.")] = None,
    metrics: Annotated[str | None, typer.Option(help="Names, such as bleu,chrf; the recipe's when not given.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A translator: beam=8 and the like; else columns: text=1, label=2; of pairs: how=left."),
    ] = None,
    outputs: Annotated[Path | None, typer.Option(help="Write the translations there, a line each.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Score a run on held-out pairs, a fine-tuned one on held-out examples, a language model on held-out text."""
    from qkv.folder.run import is_exported, read_recipe
    from qkv.jobs.perplexity import has_perplexity

    recipe = None if is_exported(run) else read_recipe(run)
    others: dict[str, object] = {"--against": against, "--outputs": outputs}
    if pairs is not None:
        _evaluate_on_pairs(run, pairs, settings, as_json, device, {**others, "--data": data, "--metrics": metrics})
    elif recipe is not None and recipe.job == "finetuning":
        _evaluate_finetuned(run, data, metrics, settings, as_json, device, others)
    elif has_perplexity(recipe):
        _evaluate_on_text(run, data, as_json, device, {**others, "--metrics": metrics, "--set": settings})
    else:
        _evaluate_translator(run, data, against, metrics, settings, outputs, as_json, device)


def _evaluate_finetuned(
    run: Path, data: str | None, metrics: str | None, settings: list[str] | None, as_json: bool, device: str,
    others: dict[str, object],
) -> None:  # fmt: skip
    """Scores of a fine-tuned encoder, by the metrics of its objective."""
    from qkv.cli.examples import examples_in
    from qkv.inference.text_encoder import load_text_encoder
    from qkv.text.metrics import find_metric

    _refuse_options(others, f"for translators, and {run} is a fine-tuned encoder")
    reader = load_text_encoder(run, device)
    recipe = reader.finetuned()
    kind, config = recipe.objective.kind, recipe.data
    wanted = tuple(metrics.split(",")) if metrics is not None else recipe.judged_by
    for name in wanted:
        find_metric(name, kind)
    examples = examples_in(recipe, (data,) if data is not None else config.test or config.dev, settings)
    with warnings_as_lines():
        scores = reader.evaluate(examples, wanted)
    if as_json:
        print(json.dumps({"scores": scores, "examples": len(examples)}, indent=1))
        return
    _show_figures(scores, f"{len(examples):,} examples scored")


def _evaluate_on_pairs(
    run: Path, file: str, settings: list[str] | None, as_json: bool, device: str, others: dict[str, object]
) -> None:
    """How often a model finds the right text of a pair likelier."""
    from qkv.inference.load import load
    from qkv.inference.text_scores import PairsConfig, preferred
    from qkv.recipes.abilities import NAMES

    _refuse_options(others, "not for --pairs")
    changed = with_settings({}, [setting.removeprefix("data.") for setting in settings or []])
    config = parse(PairsConfig, changed, "--set")
    model = load(run, device)
    if model.loads_as not in ("encoder", "generator"):
        kind = NAMES[model.loads_as]
        raise ConfigError(f"{run} is {kind}, and --pairs is for models that tell how likely a text is; leave it out")
    found = preferred(model, file, config)
    if as_json:
        print(json.dumps(found._asdict(), indent=1))
    else:
        _show_figures(
            {name: value for name, (value, _) in found.groups.items()} | {"all": found.accuracy}, f"{found.pairs:,} pairs scored"
        )


def _evaluate_on_text(run: Path, data: str | None, as_json: bool, device: str, others: dict[str, object]) -> None:
    """How well a model foresees text; an ELMo from both ends, a T5 what it lost."""
    from qkv.jobs.perplexity import measure_perplexity, read_scored

    _refuse_options(others, f"not for a language model such as {run}")
    found = measure_perplexity(read_scored(run), data, device)
    if as_json:
        print(json.dumps(found._asdict(), indent=1))
    else:
        _show_figures(found.scores, f"{found.tokens:,} tokens scored, of {found.documents:,} documents")


def _refuse_options(given: dict[str, object], why: str) -> None:
    for option, value in given.items():
        if value:
            raise ConfigError(f"{option} is {why}; leave it out")


def _show_figures(scores: dict[str, float], scored: str) -> None:
    table = Table("metric", "score")
    for name, value in scores.items():
        table.add_row(name.replace("_", " "), f"{value:.4f}")
    console = Console(highlight=False)
    console.print(table)
    console.print(scored)


def _evaluate_translator(
    run: Path, data: str | None, against: Path | None, metrics: str | None, settings: list[str] | None, outputs: Path | None,
    as_json: bool, device: str,
) -> None:  # fmt: skip
    """Scores of a translator, with their confidence."""
    from qkv.inference.evaluation import evaluate
    from qkv.inference.translator import load
    from qkv.jobs.translation_data import read_corpora
    from qkv.recipes import TranslationData, parse_recipe
    from qkv.text.translation_metrics import compare_systems

    _refuse(outputs)
    translator = load(run, device)
    config = translator.recipe.data
    if data is not None:
        test = {"pairs": data, "prefix": config.only_prefix}  # of several tasks, the file's sources say which they are for
        config = parse(TranslationData, {**config.model_dump(), "test": test}, "--data")
    pairs, reports = read_corpora(config.test or config.dev, config, translator.recipe.model.reads_trees)
    for report in reports:
        if report.dropped:
            Console(stderr=True).print(report.table("cannot be scored"))
    if not pairs:
        raise DataError("there are no pairs to score; give --data a file with at least one")
    wanted = tuple(metrics.split(",")) if metrics is not None else _usual(translator.recipe.metrics)
    parse_recipe({**translator.recipe.model_dump(), "metrics": wanted}, "--metrics")  # a wrong name shows before the work
    other_run = load(against, device) if against is not None else None
    options = with_settings({}, settings or [])
    with warnings_as_lines():
        found = evaluate(translator, pairs, wanted, confidence=True, **options)
    if outputs is not None:
        with atomic_file(outputs) as path:
            path.write_text("".join(f"{line}\n" for line in found.outputs), encoding="utf-8")
    compared = []
    if other_run is not None:
        other = evaluate(other_run, pairs, wanted, **options)
        language = config.languages[1] if config.languages else None
        compared = compare_systems(other.outputs, found.outputs, found.references, wanted, language)
    if as_json:
        print(json.dumps({"scores": [vars(s) for s in found.scores], "against": [vars(c) for c in compared]}, indent=1))
    else:
        _show(found.scores, len(found.sources), compared, run, against)


def _refuse(outputs: Path | None) -> None:
    """Say that the translations cannot be written there before they are made."""
    if outputs is not None and outputs.exists():
        raise ConfigError(f"{outputs} exists already; choose another name for --outputs")
    if outputs is not None and not outputs.parent.is_dir():
        raise ConfigError(f"{outputs}: there is no folder {outputs.parent}; make it, or choose another name for --outputs")


def _usual(metrics: tuple[str, ...]) -> tuple[str, ...]:
    """The recipe's metrics, and TER where they are a translator's: too slow for each validation, but not for the end."""
    return (*metrics, "ter") if "bleu" in metrics and "ter" not in metrics else metrics


def _show(scores: "list[Score]", texts: int, compared: "list[Comparison]", run: Path, against: Path | None) -> None:
    console = Console(highlight=False)
    table = Table("metric", "score", "95 % confidence", Column("signature", overflow="fold"))
    for score in scores:
        table.add_row(score.label, f"{score.value:.2f}", f"{score.low:.2f} to {score.high:.2f}", score.signature)
    console.print(table)
    console.print(f"{texts:,} texts scored")
    for c in compared:
        verdict = "differs" if c.p_value < 0.05 else "may be chance"
        console.print(f"{c.name}: {against} {c.baseline:.2f}, {run} {c.system:.2f}, p = {c.p_value:.3f}: {verdict}", markup=False)
