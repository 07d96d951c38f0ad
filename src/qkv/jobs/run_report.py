"""The report and the result of a finished run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qkv.base.files import atomic_file
from qkv.folder.run import RESULT
from qkv.inference.confidence import ConfidenceModel
from qkv.inference.evaluation import Evaluation
from qkv.inference.translator import Translator
from qkv.jobs.before_after import format_row
from qkv.jobs.job import run_facts, training_record
from qkv.lens.heatmap import attention_svg
from qkv.recipes import Recipe
from qkv.report.page import write_report
from qkv.text.check import CheckReport
from qkv.training.log import read_metrics
from qkv.training.loop import Trainer
from qkv.training.progress import Progress, duration

SAMPLES = 24
PICTURES = 3
READABLE = range(4, 31)  # tokens on a side of an attention picture


def write_run_report(
    run: Path,
    facts: dict[str, Any],
    evaluation: Evaluation,
    translator: Translator,
    corpora: list[tuple[str, CheckReport]],
    rows: list[dict[str, Any]],
    confidence: ConfidenceModel | None,
) -> Path:
    """Write report.html into the run's folder: curves, scores, samples, confidence, attention, corpora.

    `rows` are the scores of all held-out sets, from `tabulate`.
    """
    samples = evaluation.samples(SAMPLES, translator.recipe.seed)
    return write_report(
        run,
        run.name,
        facts=facts,
        metrics=read_metrics(run),
        scores=[vars(score) for score in evaluation.scores],
        samples=[{"source": s, "reference": r, "output": o} for s, r, o in samples],
        corpus=[
            row
            for name, report in corpora
            for row in (
                {"corpus": name, "": "kept", "pairs": report.kept},
                *({"corpus": name, "": f"dropped: {reason}", "pairs": d.count} for reason, d in report.dropped.items()),
            )
        ],
        attention=_pictures(translator, [source for source, _, _ in samples]),
        figures=[format_row(row) for row in rows],
        figures_note=(
            f"Before: the start, {translator.recipe.start}. p: paired bootstrap resampling of the texts."
            if translator.recipe.start
            else "All held-out sets, with 95 % confidence intervals."
        ),
        confidence=_describe_confidence(confidence) if confidence is not None else "",
        reliability=confidence.reliability.rows() if confidence is not None else [],
    )


def _describe_confidence(model: ConfidenceModel) -> str:
    """Return a few sentences on what confidence means, and how good it is on dev."""
    found = model.reliability
    return (
        f"Confidence is the probability that a translation has a chrF of at least {model.good_chrf:g}. On dev, each text "
        f"predicted from the others: {found}. Mean chrF of the more confident half {found.confident_half:.1f}, "
        f"of the other half {found.other_half:.1f}."
    )


def _pictures(translator: Translator, sources: list[str]) -> list[str]:
    """Draw the attention of a few translations; none without cross-attention, as in a UniLM or an RNN with one source vector."""
    engine: Any = translator.engine
    if getattr(translator.recipe.model, "attention", "") == "none" or engine.model.joins_source_and_target:
        return []
    pictures: list[str] = []
    for outputs in translator.n_best(sources, n_best=1):
        for source, target in outputs[0].pieces[:1]:
            if len(pictures) < PICTURES and len(source) in READABLE and len(target) in READABLE:
                pictures.append(attention_picture(translator, source, target))
    return pictures


def attention_picture(translator: Translator, source: list[int], target: list[int]) -> str:
    """Draw how much each target token attends to each source token, as SVG."""
    weights = translator.attention(source, target)[:-1].numpy()
    columns, rows = translator.tokenizers.source.pieces(source), translator.tokenizers.target.pieces(target)
    return attention_svg(weights, rows, columns, translator.tokenizers.source.decode(source))


def write_result(
    run: Path, recipe: Recipe, trainer: Trainer, progress: Progress, *,
    weights: str, scores: dict[str, float], name: str, scored_on: str, data: dict[str, Any],
    trained_on: str | None = None, examples: Sequence[Any] = (),
) -> None:  # fmt: skip
    """Write the scores of a finished run to its report and its result file, and show them; `name` is the scored text's.

    `trained_on` counts what the run has learned from, `data` has the numbers of all its texts, and `examples` are some of the
    scored texts, for people to try.
    """
    facts = run_facts(recipe, trainer, weights, scored_on) | ({"trained on": trained_on} if trained_on else {})
    named = {key.removeprefix("dev_").replace("_", " "): f"{value:.4f}" for key, value in scores.items()}
    rows = [{"figure": key, name: value} for key, value in named.items()]
    report = write_report(
        run, run.name, facts=facts, metrics=read_metrics(run), scores=[], samples=[], attention=[], corpus=[], figures=rows
    )
    with atomic_file(run / RESULT) as path:
        record = {"data": data, "training": training_record(trainer)}
        path.write_text(json.dumps({**facts, "scores": scores, "examples": [*examples], **record}, indent=1))
    for key, value in named.items():
        progress.say(f"{name}: {key} {value}")
    progress.say(f"trained in {duration(trainer.state.seconds)}; report: {report}")
