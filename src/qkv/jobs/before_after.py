"""Scores before and after a translator was trained further: what it gained on a new domain, and what it forgot of an old one."""

import json
from pathlib import Path
from typing import Any

from qkv.base.files import atomic_file
from qkv.inference.evaluation import Evaluation, scored_texts
from qkv.inference.translator import Translator
from qkv.text.translation_metrics import METRICS, Score, compare_systems
from qkv.training.loop import Validation

BEFORE = "before.json"  # in a run's folder: translations by the weights that it started from
SIGNIFICANT = 0.05  # p-values below it
REMEDY = "lower training.learning_rate, give more pairs, or use the start itself"
HeldOut = dict[str, list[tuple[str, str]]]  # the pairs of each held-out set, by its name
Translations = dict[str, dict[str, str]]  # the translation of each source, by the name of its set


def save_before(run: Path, translator: Translator, held_out: HeldOut) -> None:
    """Save the translations of the weights that a run starts from, with the recipe's decoding; a resumed run has them."""
    if (run / BEFORE).exists():
        return
    found: Translations = {}
    for name, pairs in held_out.items():
        sources = list(dict.fromkeys(source for source, _ in pairs))
        found[name] = dict(zip(sources, translator.translate(sources, n_best=1), strict=True))
    with atomic_file(run / BEFORE) as path:
        path.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


def tabulate(run: Path, held_out: HeldOut, evaluations: dict[str, Evaluation]) -> list[dict[str, Any]]:
    """Return a row for each set and metric: its score, and for a run with a start that before, with a paired bootstrap test."""
    before: Translations = json.loads((run / BEFORE).read_text(encoding="utf-8")) if (run / BEFORE).exists() else {}
    rows = []
    for name, evaluation in evaluations.items():
        after = dict(zip(evaluation.sources, evaluation.outputs, strict=True))
        for score in evaluation.scores:
            row = {"held-out set": name, "metric": score.name, "value": score.value, "low": score.low, "high": score.high}
            if name in before:
                sources, references = scored_texts(held_out[name], score.name)
                baseline, system = ([found[source] for source in sources] for found in (before[name], after))
                (compared,) = compare_systems(baseline, system, references, [score.name], evaluation.target_language)
                gain = compared.system - compared.baseline
                row |= {"before": float(compared.baseline), "difference": float(gain), "p": float(compared.p_value)}
            rows.append(row)
    return rows


def start_warnings(start: str, before: Validation, after: Validation, rows: list[dict[str, Any]]) -> list[str]:
    """Return warnings where the kept weights are no better than those of the start on dev, or significantly worse on test."""
    found = []
    if after.selection_score <= before.selection_score:
        scores = ", ".join(f"{name} {before.scores[name]:.3f} -> {value:.3f}" for name, value in after.scores.items())
        found.append(f"the weights kept are no better on dev than those of {start} ({scores}); {REMEDY}")
    for row in rows:
        loss = -row["difference"] if METRICS[row["metric"]].higher_is_better else row["difference"]
        if row["held-out set"] == "test" and loss > 0 and row["p"] < SIGNIFICANT:
            scores = "{score}, before {before}, p = {p}".format_map(format_row(row))
            found.append(f"test is worse than with {start}: {scores}; {REMEDY}")
    return found


def format_row(row: dict[str, Any]) -> dict[str, str]:
    """Return the cells of a row of `tabulate` as people read them."""
    score = Score(row["metric"], row["value"], row["low"], row["high"], signature="")
    cells = {"held-out set": row["held-out set"], "score": str(score)}
    if "before" in row:
        cells |= {"before": f"{row['before']:.1f}", "difference": f"{row['difference']:+.1f}", "p": f"{row['p']:.3f}"}
    return cells
