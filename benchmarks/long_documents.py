"""Does more context help? Classify film reviews with encoders that read 4,096 tokens, and with others that read 512.

    python benchmarks/long_documents.py all --train train.tsv.gz --test test.tsv.gz --seconds 60 --out FOLDER

writes FOLDER/table.md and FOLDER/table.json. The files have a label in the first column and a text in the last (IMDB, Maas et al.
2011); every 25th training review is held out to choose the best weights. All encoders start from random weights, have the same
layers and train for the same seconds, with `--seeds` seeds, in `--jobs` parallel processes. Scores are accuracies on the test
set, and on those of its reviews that do not fit into 512 tokens. Finished runs are skipped, and refused if their settings differ.
"""

import argparse
import json
import shutil
import statistics
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

from comparison import (
    JOBS_FILE,
    common_description,
    device_names,
    folder_name,
    parallel_jobs,
    refuse_other_runs,
    refuse_other_settings,
    run_parallel,
    subcommand,
    training_budget,
    warm_up,
    write_settings,
)

from qkv.base.files import atomic_file
from qkv.recipes import parse_recipe
from qkv.text.files import read_lines
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.training.log import read_metrics

SHORT, LONG = 512, 4096  # tokens, with [CLS] and [SEP]
# The shape of BERT mini (Turc et al. 2019). Sinusoids, because few reviews reach the last positions to train them.
MODEL = {
    "kind": "bert",
    "width": 256,
    "feedforward": 1024,
    "heads": 4,
    "layers": 4,
    "positions": "sinusoidal",
    "max_positions": LONG,
}
# By windows alone the first token, which classifies the review, sees 512 tokens: 128 more in each of 4 layers.
VARIANTS: dict[str, tuple[Any, int, str]] = {
    "full attention, first 512 tokens": ("full", SHORT, "whole"),
    "full attention, first and last 255": ("full", SHORT, "ends"),
    "full attention, 4,096 tokens": ("full", LONG, "whole"),
    "window, 4,096 tokens": ("window", LONG, "whole"),
    "window and global tokens, 4,096 tokens": ({"kind": "bigbird", "random_blocks": 0}, LONG, "whole"),
    "BigBird, 4,096 tokens": ("bigbird", LONG, "whole"),
    "Linformer, 4,096 tokens": ("linformer", LONG, "whole"),
}  # attention, length, texts
HELD_OUT = 25  # every 25th training review is for dev
SCORE = "score.json"


def folder_of(out: Path, variant: str, seed: int) -> Path:
    return out / f"{folder_name(variant)}-{seed}"


# The reviews


def prepare(options: argparse.Namespace) -> None:
    """Write the tokenizer and the reviews of each part, whole and with the middle of long ones cut out, unless they exist."""
    folder, wanted = options.out / "data", {name: getattr(options, name) for name in ("train", "test", "vocab")}
    if (folder / "lengths.json").exists():
        refuse_other_settings(folder / "settings.json", wanted)
        return
    write_settings(folder / "settings.json", wanted)
    reviews, test = read_reviews(options.train), read_reviews(options.test)
    parts = {
        "train": [review for number, review in enumerate(reviews) if number % HELD_OUT],
        "dev": reviews[::HELD_OUT],
        "test": test,
    }
    config = TokenizerConfig.model_validate({"kind": "wordpiece", "vocab": options.vocab, "lowercase": True})
    tokenizer = train_tokenizer(config, (text for _, text in parts["train"]))
    tokenizer.save(folder / "tokenizer.json")
    lengths = {}
    for name, rows in parts.items():
        lengths[name] = [len(ids) + 2 for ids in tokenizer.encode_batch([text for _, text in rows])]
        cut = [
            (label, ends(text, tokenizer) if n > SHORT else text) for (label, text), n in zip(rows, lengths[name], strict=True)
        ]
        write_reviews(folder / f"{name}-whole.tsv", rows)
        write_reviews(folder / f"{name}-ends.tsv", cut)
    with atomic_file(folder / "lengths.json") as path:
        path.write_text(json.dumps(lengths))


def read_reviews(file: str) -> list[tuple[str, str]]:
    """Return labels and texts."""
    rows = [line.split("\t") for line in read_lines(Path(file)) if line]
    return [(row[0], " ".join(row[-1].replace("<br />", " ").split())) for row in rows]


def write_reviews(path: Path, rows: list[tuple[str, str]]) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text("".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")


def ends(text: str, tokenizer: Tokenizer) -> str:
    """Return the first and the last words of a text, as many whole words of each as fit into half of SHORT."""
    words, budget = text.split(), SHORT // 2 - 1
    sizes = [len(ids) for ids in tokenizer.encode_batch(words)]
    head, tail = (sum(total <= budget for total in accumulate(order)) for order in (sizes, reversed(sizes)))
    return " ".join([*words[:head], *words[len(words) - tail :]])


# Training and scoring


def train_one(options: argparse.Namespace, variant: str, seed: int) -> None:
    from qkv.jobs.train import train

    run = folder_of(options.out, variant, seed)
    if (run / SCORE).exists():
        return
    recipe = recipe_of(options, variant, seed)
    if not (run / "result.json").exists():
        warm_up(recipe, options.out / "warm" / run.name)
        train(recipe, run)
        (run / JOBS_FILE).write_text(str(options.jobs))
    score(options, variant, run)
    shutil.rmtree(options.out / "warm" / run.name, ignore_errors=True)


def recipe_of(options: argparse.Namespace, variant: str, seed: int) -> Any:
    """Return the recipe of a variant; only the attention and the length of reviews differ."""
    attention, length, texts = VARIANTS[variant]
    folder = options.out / "data"
    budget = {"steps": options.updates} if options.updates else {"minutes": options.seconds / 60}
    training = {
        **budget, "batch_tokens": options.batch_tokens, "schedule": "linear", "learning_rate": options.rate,
        "warmup": options.warmup,
        "betas": [0.9, 0.999], "epsilon": 1e-6, "weight_decay": 0.01, "averaging": "none", "keep": 1, "log_every": 10,
        "validate_every": options.validate_every, "save_every": 10**9,
    }  # fmt: skip
    files = {part: str(folder / f"{part}-{texts}.tsv") for part in ("train", "dev")}
    values = {
        "seed": seed, "data": {**files, "label": 1, "text": 2, "length": length},
        "tokenizer": {"file": str(folder / "tokenizer.json")},
        "model": {**MODEL, "attention": attention, "dropout": options.dropout},
        "objective": {"kind": "classification"}, "training": training,
    }  # fmt: skip
    return parse_recipe(values, variant)


def score(options: argparse.Namespace, variant: str, run: Path) -> None:
    """Write the accuracy on all reviews of the test set, and on the long ones."""
    from qkv.base.hardware import describe_device
    from qkv.inference.text_encoder import load_text_encoder

    rows = read_reviews(str(options.out / "data" / f"test-{VARIANTS[variant][2]}.tsv"))
    encoder = load_text_encoder(run)
    before = time.perf_counter()
    predictions = encoder.predict([text for _, text in rows])
    seconds = time.perf_counter() - before
    correct = [prediction.label == label for prediction, (label, _) in zip(predictions, rows, strict=True)]
    lengths = json.loads((options.out / "data" / "lengths.json").read_text())["test"]
    last = [line for line in read_metrics(run) if "seconds" in line][-1]
    values = {
        "accuracy": statistics.mean(correct),
        "accuracy_long": statistics.mean(c for c, n in zip(correct, lengths, strict=True) if n > SHORT),
        "updates": last["step"], "training_seconds": last["seconds"], "epochs": last["epoch"],
        "reviews_per_second": len(rows) / seconds, "device": describe_device(encoder.device),
        "parameters": sum(p.numel() for p in encoder.model.parameters()),
    }  # fmt: skip
    with atomic_file(run / SCORE) as path:
        path.write_text(json.dumps(values, indent=1))
    print(f"{run.name}: {values['accuracy']:.4f}, of long ones {values['accuracy_long']:.4f}", flush=True)


def everything(options: argparse.Namespace) -> None:
    """Train and score all encoders with all seeds in parallel processes, then report."""
    prepare(options)
    pairs = [(variant, seed) for seed in range(1, options.seeds + 1) for variant in options.variant]
    commands = [subcommand(__file__, options, "train", [variant], seed=seed) for variant, seed in pairs]
    run_parallel(commands, options.jobs)
    report(options)


# The report


def report(options: argparse.Namespace) -> None:
    """Write table.md and table.json of all variants that have been scored."""
    seeds = range(1, options.seeds + 1)
    paths = {variant: [folder_of(options.out, variant, seed) / SCORE for seed in seeds] for variant in VARIANTS}
    read = {variant: [json.loads(path.read_text()) for path in each if path.exists()] for variant, each in paths.items()}
    table = {variant: found for variant, found in read.items() if found}
    if not table:
        raise SystemExit(f"{options.out}: nothing has been scored yet")
    runs = [path.parent for each in paths.values() for path in each if path.exists()]
    where, most = device_names(row for found in table.values() for row in found), max(map(len, table.values()))
    lines = [
        f"{common_description(runs, describe)}{parallel_jobs(runs)}, {where}; means of {most} seeds (lowest to highest)",
        "",
        "| encoder | accuracy | on reviews longer than 512 | parameters | training, s | updates | epochs | reviews/s |",
        "|---" * 8 + "|",
    ]
    lines += [
        row(variant if len(found) == most else f"{variant}; {len(found)} of {most} seeds", found)
        for variant, found in table.items()
    ]
    lengths = json.loads((options.out / "data" / "lengths.json").read_text())
    long = {part: f"{sum(n > SHORT for n in each):,} of {len(each):,}" for part, each in lengths.items()}
    beyond = sum(n > LONG for n in lengths["test"])
    lines += [
        "",
        f"Longer than 512 tokens: {long['test']} reviews of the test set ({beyond:,} beyond 4,096), {long['train']} of training.",
    ]
    (options.out / "table.md").write_text("\n".join(lines) + "\n")
    (options.out / "table.json").write_text(json.dumps(table, indent=1))
    print("\n".join(lines))


def describe(recipe: Any) -> str:
    return f"{training_budget(recipe)} each, {recipe.training.batch_tokens:,} tokens an update"


def row(variant: str, found: list[dict[str, Any]]) -> str:
    """Return a row of the table: means and ranges over the seeds."""

    def share(name: str) -> str:
        values = [100 * each[name] for each in found]
        return f"{statistics.mean(values):.1f} % ({min(values):.1f} to {max(values):.1f})"

    mean = {name: statistics.mean(each[name] for each in found) for name in ("training_seconds", "updates", "epochs")}
    speed = statistics.mean(each["reviews_per_second"] for each in found)
    return (
        f"| {variant} | {share('accuracy')} | {share('accuracy_long')} | {found[0]['parameters'] / 1e6:.2f} M | "
        f"{mean['training_seconds']:.1f} | {mean['updates']:,.0f} | {mean['epochs']:.0f} | {speed:,.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["all", "train", "report"])
    parser.add_argument("--variant", choices=list(VARIANTS), action="append", metavar="NAME", help="; ".join(VARIANTS))
    parser.add_argument("--seed", type=int, default=1, help="seed of `train`")
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--updates", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--batch-tokens", type=int, default=32768)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--validate-every", type=int, default=250)
    options = parser.parse_args()
    options.variant = options.variant or list(VARIANTS)
    if options.action != "report":
        seeds = range(1, options.seeds + 1) if options.action == "all" else [options.seed]
        pairs = [(variant, seed) for variant in options.variant for seed in seeds]
        refuse_other_runs((folder_of(options.out, *pair), recipe_of(options, *pair)) for pair in pairs)
    if options.action == "train":
        prepare(options)
        for variant in options.variant:
            train_one(options, variant, options.seed)
    else:
        {"all": everything, "report": report}[options.action](options)


if __name__ == "__main__":
    main()
