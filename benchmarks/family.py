"""The encoders at equal compute: each pretrained for the same seconds on the same text, then fine-tuned on GLUE's small tasks.

    python benchmarks/family.py all --text wiki.txt.xz --glue GLUE --tokenizer tokenizer.json --seconds 60 --out FOLDER

makes FOLDER/table.md and FOLDER/curves.svg. Pretraining runs one after the other, alone on the device; fine-tuning in `--jobs`
processes at once. What is there already is not done again, and refused where it was made with other settings than asked for.
"""

import argparse
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import matplotlib
from side_by_side import folder_named, own_command, refuse_other_runs, run_side_by_side

from qkv.recipe import parse_recipe
from qkv.runs.folder import read_recipe
from qkv.training.log import read_metrics

# The shape of ELECTRA-small. Nothing is dropped out in so short a pretraining, in which hardly a text is read twice.
SMALL = {"width": 256, "inner": 1024, "heads": 4, "layers": 12, "dropout": 0.0}
DROPOUT = 0.1  # in fine-tuning
BERT, ALBERT, ERNIE = ({"kind": kind, **SMALL} for kind in ("bert", "albert", "ernie"))
ELECTRA = {"kind": "electra", **SMALL, "embedding": 128, "generator": 0.25}
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "BERT, masked words + next sentence": (BERT, {"kind": "masked", "relation": "next"}),
    "BERT, masked words only": (BERT, {"kind": "masked"}),
    "ALBERT (layers shared), masked words only": (ALBERT, {"kind": "masked"}),
    "ALBERT (layers shared) + sentence order": (ALBERT, {"kind": "masked", "relation": "order"}),
    "ELECTRA": (ELECTRA, {"kind": "replaced", "mask": 0.85, "keep": 0.15}),  # as in the authors' code
    "ERNIE, masked n-grams of words": (ERNIE, {"kind": "masked", "units": "ngram"}),
}
NEW = "BERT without pretraining"
# Columns by name, or by number where there is no header; and what GLUE reports.
TASKS: dict[str, tuple[dict[str, Any], str, str, int]] = {
    "SST-2": ({"text": "sentence", "label": "label"}, "classification", "accuracy", 1),
    "CoLA": ({"text": 4, "label": 2}, "classification", "matthews", 4),
    "MRPC": ({"text": "#1 String", "pair": "#2 String", "label": "Quality"}, "classification", "f1", 4),
    "RTE": ({"text": "sentence1", "pair": "sentence2", "label": "label"}, "classification", "accuracy", 4),
    "STS-B": ({"text": "sentence1", "pair": "sentence2", "label": "score"}, "regression", "spearman", 4),
}  # columns, kind, metric, epochs
ADAM = {"betas": [0.9, 0.999], "epsilon": 1e-6, "weight_decay": 0.01, "averaging": "none", "schedule": "linear"}


def folder_of(out: Path, variant: str) -> Path:
    return out / folder_named(variant)


def pretrain(options: argparse.Namespace, variant: str) -> None:
    from qkv.runs.train import train

    model, objective = VARIANTS[variant]
    training = {
        "minutes": options.seconds / 60, "batch_tokens": options.batch_tokens, "learning_rate": options.rate,
        "warmup": options.warmup, "validate_every": options.validate_every, "save_every": 10**9, "log_every": 50, **ADAM,
    }  # fmt: skip
    values = {
        "seed": 1, "data": {"text": options.text, "length": 128}, "tokenizer": {"file": options.tokenizer},
        "model": model, "objective": objective, "training": training,
    }  # fmt: skip
    run, recipe = folder_of(options.out, variant), parse_recipe(values, variant)
    refuse_other_runs([(run, recipe)])
    train(recipe, run)


def finetune(options: argparse.Namespace, variant: str) -> None:
    """All tasks and seeds of one encoder."""
    for task, (columns, kind, metric, epochs) in TASKS.items():
        for seed in range(1, options.seeds + 1):
            finetune_once(options, variant, task, seed, {"columns": columns, "kind": kind, "metric": metric, "epochs": epochs})


def finetune_once(options: argparse.Namespace, variant: str, task: str, seed: int, how: dict[str, Any]) -> None:
    from qkv.runs.train import train

    files = {part: str(Path(options.glue) / task / f"{part}.tsv.gz") for part in ("train", "dev")}
    start: dict[str, Any] = {"model": {**BERT, "dropout": DROPOUT}, "tokenizer": {"file": options.tokenizer}}
    if variant != NEW:
        model = {"kind": VARIANTS[variant][0]["kind"], "dropout": DROPOUT}
        start = {"start": str(folder_of(options.out, variant)), "model": model}
    training = {
        "epochs": how["epochs"], "batch_tokens": 2048, "learning_rate": 3e-4, "warmup": 0.1,
        "layer_decay": 0.9, "log_every": 100, **ADAM,
    }  # fmt: skip
    values = {
        "seed": seed, **start, "data": {**files, **how["columns"], "length": 128}, "objective": {"kind": how["kind"]},
        "training": training, "metrics": [how["metric"]],
    }  # fmt: skip
    run = folder_of(options.out, variant) / "tasks" / f"{task}-{seed}"
    recipe = parse_recipe(values, f"{variant}, {task}")
    refuse_other_runs([(run, recipe)])
    train(recipe, run)
    shutil.rmtree(run / "checkpoints", ignore_errors=True)  # a hundred runs would fill the disk
    (run / "model.safetensors").unlink(missing_ok=True)


def everything(options: argparse.Namespace) -> None:
    """Pretrain one after the other, fine-tune side by side, in processes of their own."""
    run_side_by_side([own_command(__file__, options, "pretrain", [variant]) for variant in VARIANTS], 1)
    run_side_by_side([own_command(__file__, options, "finetune", [variant]) for variant in [*VARIANTS, NEW]], options.jobs)
    report(options)


def score(options: argparse.Namespace, variant: str, task: str, seed: int) -> float | None:
    result = folder_of(options.out, variant) / "tasks" / f"{task}-{seed}" / "result.json"
    return 100 * json.loads(result.read_text())["scores"][TASKS[task][2]] if result.exists() else None


def report(options: argparse.Namespace) -> None:
    """table.md, and curves.svg of what pretraining is measured by."""
    lines = ["| encoder | updates | tokens | " + " | ".join(f"{task} ({how[2]})" for task, how in TASKS.items()) + " | mean |"]
    lines.append("|---" * (len(TASKS) + 4) + "|")
    for variant in [*VARIANTS, NEW]:
        cells, means = [], []
        for task in TASKS:
            found = [s for seed in range(1, options.seeds + 1) if (s := score(options, variant, task, seed)) is not None]
            means.append(statistics.mean(found) if found else float("nan"))
            cells.append(f"{means[-1]:.1f} ({min(found):.1f} to {max(found):.1f})" if found else "")
        before = pretrained(folder_of(options.out, variant))
        lines.append(f"| {variant} | {before} | {' | '.join(cells)} | {statistics.mean(means):.1f} |")
    (options.out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    draw(options)


def pretrained(run: Path) -> str:
    """Updates and tokens of a pretraining, as it tells them itself."""
    steps = max((line["step"] for line in read_metrics(run)), default=0)
    tokens = steps * read_recipe(run).training.batch_tokens if steps else 0
    return f"{steps:,} | {tokens / 1e6:.0f} M"


def draw(options: argparse.Namespace) -> None:
    """Losses over seconds: of masked words where there are any, and of the discriminator."""
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for variant in VARIANTS:
        metrics = read_metrics(folder_of(options.out, variant))
        for axis, name in zip(axes, ("masked_loss", "discriminator_loss"), strict=True):
            name = "generator_loss" if variant == "ELECTRA" and name == "masked_loss" else name
            points = [(line["seconds"], line[name]) for line in metrics if name in line]
            if points:
                axis.plot(*zip(*points, strict=True), label=variant + (", its generator" if name == "generator_loss" else ""))
    for axis, title in zip(axes, ("masked words, nats each", "ELECTRA: replaced or not, nats a token"), strict=True):
        axis.set_title(title)
        axis.set_xlabel("seconds of training")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(options.out / "curves.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["all", "pretrain", "finetune", "report"])
    parser.add_argument("--variant", choices=[*VARIANTS, NEW])
    parser.add_argument("--text", required=True)
    parser.add_argument("--glue", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=7)
    parser.add_argument("--batch-tokens", type=int, default=16384)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=float, default=0.1)
    parser.add_argument("--validate-every", type=int, default=1000)
    options = parser.parse_args()
    steps = {"all": everything, "report": report}
    steps[options.what](options) if options.what in steps else globals()[options.what](options, options.variant)


if __name__ == "__main__":
    main()
