"""Shared code of the comparisons of translators: train within a budget, score, and write a table."""

import argparse
import json
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from comparison import JOBS_FILE, common_description, parallel_jobs, training_budget, warm_up

from qkv.training.log import read_metrics

BOUNDS = (5, 8, 11, 14, 18, 24, 10**9)  # longest source of each bucket, in words
MIN_TEXTS = 30  # in a bucket; smaller ones are joined with the next
SCORE = "score.json"
WARM = 512  # texts translated before time is measured


def option_parser(about: str | None, variants: Iterable[str], seconds: float, dropout: float) -> argparse.ArgumentParser:
    """Return a parser of the options that all comparisons share."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["all", "train", "score", "report"])
    parser.add_argument("--variant", choices=list(variants), action="append", metavar="NAME", help="; ".join(variants))
    for part in ("train", "dev", "test"):
        parser.add_argument(f"--{part}", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--languages", nargs=2, default=["en", "de"])
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--dropout", type=float, default=dropout)
    for name, value in {"jobs": 1, "seed": 1, "batch-tokens": 8192, "warmup": 200, "beam": 5, "decoding-tokens": 4096}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser


# Training


def train_one(options: argparse.Namespace, run: Path, recipe: Any) -> None:
    """Train a translator unless it exists; kernels are compiled before time is measured."""
    from qkv.jobs.train import train

    if (run / "result.json").exists():
        return
    warm_up(recipe, options.out / "warm" / run.name)
    train(recipe, run)
    (run / JOBS_FILE).write_text(str(options.jobs))
    shutil.rmtree(options.out / "warm" / run.name, ignore_errors=True)


# Scoring


def score_one(options: argparse.Namespace, run: Path, variant: str) -> None:
    """Translate the test set after a warm-up; write speed, scores and BLEU by source length."""
    from qkv.base.hardware import describe_device
    from qkv.inference.engines import OwnEngine
    from qkv.inference.load import load_translator
    from qkv.jobs.prepared_pairs import read_corpora
    from qkv.text.translation_metrics import score_corpus

    if (run / SCORE).exists():
        return
    translator = load_translator(run)
    assert isinstance(translator.engine, OwnEngine)
    pairs, _ = read_corpora(translator.recipe.data.test, translator.recipe.data)
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    translator.translate(sources[:WARM])
    before = time.perf_counter()
    outputs = translator.translate(sources)
    seconds = time.perf_counter() - before
    updates, trained = trained_for(run)
    values = {
        "model": variant,
        "device": describe_device(translator.engine.device),
        "parameters": sum(p.numel() for p in translator.engine.model.parameters()),
        "updates": updates,
        "training_seconds": trained,
        "sentences_per_second": len(sources) / seconds,
        "scores": [
            vars(score) for score in score_corpus(outputs, targets, target_language=options.languages[1], confidence=True)
        ],
        "lengths": by_length(sources, targets, outputs, options.languages[1]),
    }
    (run / SCORE).write_text(json.dumps(values, indent=1))
    print(f"{variant}: {values['scores'][0]['value']:.1f} BLEU, {values['sentences_per_second']:.0f} sentences/s", flush=True)


def trained_for(run: Path) -> tuple[int, float]:
    """Return the updates and seconds of training."""
    last = [line for line in read_metrics(run) if "seconds" in line][-1]
    return last["step"], last["seconds"]


def by_length(sources: list[str], targets: list[str], outputs: list[str], language: str) -> list[dict[str, Any]]:
    """Return BLEU for each bucket of source lengths."""
    from qkv.text.translation_metrics import score_corpus

    found = []
    for bucket in buckets([len(source.split()) for source in sources]):
        lengths = [len(sources[i].split()) for i in bucket]
        (bleu,) = score_corpus([outputs[i] for i in bucket], [targets[i] for i in bucket], ["bleu"], language)
        found.append({"shortest": min(lengths), "longest": max(lengths), "texts": len(bucket), "bleu": bleu.value})
    return found


def buckets(lengths: list[int]) -> list[list[int]]:
    """Return buckets of the indices of texts of similar length, each with at least MIN_TEXTS if possible."""
    made: list[list[int]] = [[]]
    for low, high in zip((0, *BOUNDS), BOUNDS, strict=False):
        made[-1] += [index for index, length in enumerate(lengths) if low < length <= high]
        if len(made[-1]) >= MIN_TEXTS:
            made.append([])
    rest = made.pop()
    if made:
        made[-1] += rest
    return made or [rest]


# The report


def budget(runs: list[Path]) -> str:
    """Describe the settings that all runs share, read from their recipes."""

    def describe(recipe: Any) -> str:
        tokens, beam = recipe.training.batch_tokens, recipe.decoding.beam
        return f"{training_budget(recipe)} each, {tokens:,} target tokens an update, seed {recipe.seed}, beam {beam}"

    return common_description(runs, describe) + parallel_jobs(runs)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return a Markdown table with one row per model."""
    lines = ["| model | BLEU | chrF | parameters | training, s | updates | sentences/s |", "|---" * 7 + "|"]
    for row in rows:
        scores = " | ".join(f"{s['value']:.1f} [{s['low']:.1f}, {s['high']:.1f}]" for s in row["scores"])
        size = f"{row['parameters'] / 1e6:.2f} M"
        speed = f"{row['training_seconds']:.1f} | {row['updates']:,} | {row['sentences_per_second']:,.0f}"
        lines.append(f"| {row['model']} | {scores} | {size} | {speed} |")
    return lines
