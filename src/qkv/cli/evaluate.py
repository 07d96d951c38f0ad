"""qkv evaluate RUN [--data FILE]: score a run; with --against, test whether the difference to another run is chance."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Column, Table

from qkv.base.config import parse, with_settings
from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_file
from qkv.cli.options import Device, run_folder

if TYPE_CHECKING:
    from qkv.inference.evaluation import Evaluation
    from qkv.inference.logistic import Reliability
    from qkv.inference.translator import Translator
    from qkv.text.translation_metrics import Comparison, Score


CONFIDENCE_OPTIONS = ("calibration", "calibrate")


class EvaluateOptions(NamedTuple):
    """The command's options; what each means is in `evaluate_command`."""

    data: str | None
    pairs: str | None
    against: Path | None
    metrics: str | None
    settings: list[str]
    outputs: Path | None
    as_json: bool
    device: str
    calibration: bool = False
    calibrate: bool = False

    def refuse(self, *names: str, reason: str) -> None:
        """Raise ConfigError where one of these options was given."""
        for name in names:
            if getattr(self, name):
                option = "set" if name == "settings" else name
                raise ConfigError(f"--{option} is {reason}; leave it out")


def evaluate_command(
    run: Annotated[Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a run.")],
    data: Annotated[
        str | None,
        typer.Option(help="File of sentence pairs, examples or text; by default the recipe's test set, or its dev set."),
    ] = None,
    pairs: Annotated[
        str | None,
        typer.Option(help="File of minimal pairs, such as BLiMP's: how often is the acceptable text more likely than the other?"),
    ] = None,
    against: Annotated[Path | None, typer.Option(help="Another run, to test whether the difference is chance.")] = None,
    metrics: Annotated[str | None, typer.Option(help="Metrics, such as bleu,chrf; by default the recipe's.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="For a translator a decoding key (beam=8) or the columns of --data (columns=[2,3]); "
            "for examples their columns (text=1); for --pairs how=left.",
        ),
    ] = None,
    outputs: Annotated[Path | None, typer.Option(help="Write the translations to this file, one per line.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    device: Device = "auto",
    calibration: Annotated[
        bool, typer.Option("--calibration", help="Show how well a translator's confidence agrees with this data.")
    ] = False,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Learn a translator's confidence from this data (by default the recipe's dev set)."),
    ] = False,
) -> None:
    """Score a run on held-out data.

    A translator gets BLEU, chrF and TER with confidence intervals,
    a fine-tuned encoder the metrics of its task,
    a language model its perplexity.
    """
    from qkv.folder.run import is_exported, read_recipe
    from qkv.recipes.abilities import evaluated_on

    options = EvaluateOptions(data, pairs, against, metrics, settings or [], outputs, as_json, device, calibration, calibrate)
    if pairs is not None:
        _evaluate_on_pairs(run, pairs, options)
        return
    wanted = "pairs" if is_exported(run) else evaluated_on(read_recipe(run), run)
    commands = {"pairs": _evaluate_translator, "examples": _evaluate_finetuned, "text": _evaluate_on_text}
    commands[wanted](run, options)


def _evaluate_finetuned(run: Path, options: EvaluateOptions) -> None:
    """Score a fine-tuned encoder by the metrics of its objective."""
    from qkv.cli.examples import read_examples_for
    from qkv.inference.text_encoder import load_text_encoder

    options.refuse("against", "outputs", *CONFIDENCE_OPTIONS, reason=f"for translators, and {run} is a fine-tuned encoder")
    encoder = load_text_encoder(run, options.device)
    recipe = encoder.finetuned()
    metrics = tuple(options.metrics.split(",")) if options.metrics is not None else recipe.judged_by
    for name in metrics:
        encoder.task.find_metric(name)  # refuses an unknown name before the examples are read
    files = (options.data,) if options.data is not None else recipe.data.test or recipe.data.dev
    examples = read_examples_for(recipe, files, options.settings)
    scores = encoder.evaluate(examples, metrics)
    if options.as_json:
        print(json.dumps({"scores": scores, "examples": len(examples)}, indent=1))
    else:
        _print_scores(scores, f"{len(examples):,} examples scored")


def _evaluate_on_pairs(run: Path, file: str, options: EvaluateOptions) -> None:
    """Print how often a model gives the acceptable text of a pair the higher probability."""
    from qkv.inference.load import load
    from qkv.inference.text_scores import PairsConfig, score_pairs
    from qkv.recipes.abilities import NAMES

    options.refuse("against", "outputs", "data", "metrics", *CONFIDENCE_OPTIONS, reason="not for --pairs")
    changed = with_settings({}, [setting.removeprefix("data.") for setting in options.settings])
    config = parse(PairsConfig, changed, "--set")
    model = load(run, options.device)
    if model.loads_as not in ("encoder", "generator"):
        kind = NAMES[model.loads_as]
        raise ConfigError(f"{run} is {kind}, and --pairs is for models that score a text by its probability; leave it out")
    found = score_pairs(model, file, config)
    if options.as_json:
        print(json.dumps(found._asdict(), indent=1))
    else:
        scores = {name: value for name, (value, _) in found.groups.items()} | {"all": found.accuracy}
        _print_scores(scores, f"{found.pairs:,} pairs scored")


def _evaluate_on_text(run: Path, options: EvaluateOptions) -> None:
    """Print a language model's loss and perplexity on text: for an ELMo in both directions, for a T5 on the dropped spans."""
    from qkv.jobs.perplexity import measure_perplexity, read_pretrained_run

    reason = f"not for a language model such as {run}"
    options.refuse("against", "outputs", "metrics", "settings", *CONFIDENCE_OPTIONS, reason=reason)
    found = measure_perplexity(read_pretrained_run(run), options.data, options.device)
    if options.as_json:
        print(json.dumps(found._asdict(), indent=1))
    else:
        _print_scores(found.scores, f"{found.tokens:,} tokens scored, of {found.documents:,} documents")


def _print_scores(scores: dict[str, float], summary: str) -> None:
    table = Table("metric", "score")
    for name, value in scores.items():
        table.add_row(name.replace("_", " "), f"{value:.4f}")
    console = Console(highlight=False)
    console.print(table)
    console.print(summary)


def _evaluate_translator(run: Path, options: EvaluateOptions) -> None:
    """Score a translator, with confidence intervals."""
    from qkv.inference.confidence import require_texts_to_calibrate
    from qkv.inference.evaluation import describe_detected, evaluate
    from qkv.inference.load import load_translator
    from qkv.jobs.prepared_pairs import read_corpora
    from qkv.recipes import TranslationData, parse_recipe
    from qkv.text.translation_metrics import compare_systems

    outputs = options.outputs
    if outputs is not None and outputs.exists():
        raise ConfigError(f"{outputs} exists already; choose another name for --outputs")
    if outputs is not None and not outputs.parent.is_dir():
        raise ConfigError(f"{outputs}: there is no folder {outputs.parent}; make it, or choose another name for --outputs")
    translator = load_translator(run, options.device)
    _check_confidence_options(run, translator, options)
    recipe, config = translator.recipe, translator.recipe.data
    decoding = with_settings({}, options.settings)
    columns = decoding.pop("columns", None)
    if columns is not None and options.data is None:
        raise ConfigError("--set columns=... says which columns of --data are read; give --data, or leave it out")
    if options.data is not None:
        # With several tasks, the sources in the file begin with the prefix of theirs.
        test = {"pairs": options.data, "prefix": config.only_prefix, "columns": columns}
        config = parse(TranslationData, {**config.model_dump(), "test": test}, "--data")
    # The test set shows how good a calibration is, so it is made on others.
    by_default = config.dev if options.calibrate and options.data is None else config.test or config.dev
    pairs, reports = read_corpora(by_default, config, recipe.model.reads_trees)
    for report in reports:
        if report.dropped:
            Console(stderr=True).print(report.table("cannot be scored"))
    if not pairs:
        raise DataError("there are no pairs to score; give --data a file with at least one")
    if options.calibrate:
        require_texts_to_calibrate(len({source for source, _ in pairs}))
    metrics = recipe.metrics
    if options.metrics is not None:
        metrics = tuple(options.metrics.split(","))
    elif "bleu" in metrics and "ter" not in metrics:
        metrics = (*metrics, "ter")  # too slow for every validation, but not here
    parse_recipe({**recipe.model_dump(), "metrics": metrics}, "--metrics")  # refuses an unknown name before the work
    baseline = load_translator(options.against, options.device) if options.against is not None else None
    found = evaluate(translator, pairs, metrics, confidence=True, **decoding)
    if found.target_language and not config.languages:
        Console(stderr=True, highlight=False).print(describe_detected(found.target_language), soft_wrap=True)
    if outputs is not None:
        with atomic_file(outputs) as path:
            path.write_text("".join(f"{line}\n" for line in found.outputs), encoding="utf-8")
    comparisons = []
    if baseline is not None:
        other = evaluate(baseline, pairs, metrics, **decoding)
        comparisons = compare_systems(other.outputs, found.outputs, found.references, metrics, found.target_language)
    calibration = _measure_confidence(run, translator, found, options)
    if options.as_json:
        shown = {"scores": [vars(s) for s in found.scores], "against": [vars(c) for c in comparisons]}
        print(json.dumps(shown if calibration is None else {**shown, "calibration": calibration.model_dump()}, indent=1))
        return
    _print_translation_scores(found.scores, len(found.sources), comparisons, run, options.against)
    if calibration is not None:
        _print_reliability(calibration)
    if options.calibrate:
        print("written to confidence.json in the run's folder; these figures predict each text from the others")


def _check_confidence_options(run: Path, translator: "Translator", options: EvaluateOptions) -> None:
    """Refuse --calibration without a calibration, and --calibrate where it cannot be written, before the work."""
    from qkv.folder.run import is_exported
    from qkv.inference.confidence import CONFIDENCE

    if options.calibration and options.calibrate:
        raise ConfigError("--calibrate learns confidence and --calibration shows how good it is; give one, and on other data")
    if options.calibration:
        _ = translator.confidence_model
    if options.calibrate and is_exported(run):
        raise ConfigError(f"{run} is an exported folder, whose confidence cannot be learned; give the run itself")
    if options.calibrate and (run / CONFIDENCE).exists():
        raise ConfigError(f"{run / CONFIDENCE} exists already; move it away to learn confidence anew")


def _measure_confidence(
    run: Path, translator: "Translator", found: "Evaluation", options: EvaluateOptions
) -> "Reliability | None":
    """Return how good the confidence of these translations is; with --calibrate, learn it from them first."""
    from qkv.inference.confidence import weights_digest
    from qkv.inference.evaluation import calibrate, measure_calibration

    if options.calibrate:
        learned = calibrate(translator, found, weights_digest(run))
        learned.save(run)
        return learned.reliability
    return measure_calibration(translator, found) if options.calibration else None


def _print_reliability(found: "Reliability") -> None:
    table = Table(*found.rows()[0])
    for row in found.rows():
        table.add_row(row["confidence"], f"{row['predicted']:.2f}", f"{row['observed']:.2f}", f"{row['texts']:,}")
    console = Console(highlight=False)
    console.print(table)
    console.print(str(found), soft_wrap=True)
    console.print(f"mean chrF: {found.confident_half:.1f} of the more confident half, {found.other_half:.1f} of the other half")


def _print_translation_scores(
    scores: "list[Score]", texts: int, comparisons: "list[Comparison]", run: Path, against: Path | None
) -> None:
    console = Console(highlight=False)
    table = Table("metric", "score", "95 % confidence", Column("signature", overflow="fold"))
    for score in scores:
        table.add_row(score.label, f"{score.value:.2f}", f"{score.low:.2f} to {score.high:.2f}", score.signature)
    console.print(table)
    console.print(f"{texts:,} texts scored")
    for c in comparisons:
        verdict = "differs" if c.p_value < 0.05 else "may be chance"
        console.print(f"{c.name}: {against} {c.baseline:.2f}, {run} {c.system:.2f}, p = {c.p_value:.3f}: {verdict}", markup=False)
