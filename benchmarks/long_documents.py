"""Does seeing more help? Film reviews classified by encoders that read 4,096 tokens, and by others that read 512.

    python benchmarks/long_documents.py all --train train.tsv.gz --test test.tsv.gz --seconds 60 --out FOLDER

makes FOLDER/table.md and FOLDER/table.json. The files hold a label in the first column and a text in the last (IMDB, Maas et al.
2011); of training, every 25th review is held out to choose the best weights. All encoders begin with new weights, have the same
layers and are trained for the same seconds, `--seeds` times, in processes of their own, `--jobs` at once. Scores are accuracies
on the test set, and on those of its reviews that do not fit into 512 tokens. What is there already is not done
again, and refused where it was made with other settings than asked for.
"""

import argparse
import json
import shutil
import statistics
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

from side_by_side import (
    AT_ONCE,
    alike,
    at_once,
    budget_of,
    devices,
    folder_named,
    note_settings,
    own_command,
    refuse_other_runs,
    refuse_other_settings,
    run_side_by_side,
    warm_up,
)

from qkv.base.files import atomic_file
from qkv.recipes import parse_recipe
from qkv.text.files import read_lines
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.training.log import read_metrics

SHORT, LONG = 512, 4096  # tokens, first and last included
# The shape of BERT mini (Turc et al. 2019). Sinusoids: places that few reviews reach need not be learned.
MODEL = {
    "kind": "bert",
    "width": 256,
    "feedforward": 1024,
    "heads": 4,
    "layers": 4,
    "positions": "sinusoidal",
    "max_positions": LONG,
}
# The first token, which answers for a review, sees 512 tokens by windows alone: 128 further with each of 4 layers.
VARIANTS: dict[str, tuple[Any, int, str]] = {
    "full attention, first 512 tokens": ("full", SHORT, "whole"),
    "full attention, first and last 255": ("full", SHORT, "ends"),
    "full attention, 4,096 tokens": ("full", LONG, "whole"),
    "window, 4,096 tokens": ("window", LONG, "whole"),
    "window and first places, 4,096 tokens": ({"kind": "bigbird", "random_blocks": 0}, LONG, "whole"),
    "BigBird, 4,096 tokens": ("bigbird", LONG, "whole"),
    "Linformer, 4,096 tokens": ("linformer", LONG, "whole"),
}  # attention, length, texts
HELD_OUT = 25  # every so many reviews of training are for dev
SCORE = "score.json"


def folder_of(out: Path, variant: str, seed: int) -> Path:
    return out / f"{folder_named(variant)}-{seed}"


# The reviews


def prepare(options: argparse.Namespace) -> None:
    """The tokenizer, the reviews of each part, and the same without what is in the middle of long ones; once."""
    folder, asked = options.out / "data", {name: getattr(options, name) for name in ("train", "test", "vocab")}
    if (folder / "lengths.json").exists():
        refuse_other_settings(folder / "settings.json", asked)
        return
    note_settings(folder / "settings.json", asked)
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
    """Labels and texts."""
    rows = [line.split("\t") for line in read_lines(Path(file)) if line]
    return [(row[0], " ".join(row[-1].replace("<br />", " ").split())) for row in rows]


def write_reviews(path: Path, rows: list[tuple[str, str]]) -> None:
    with atomic_file(path) as aside:
        aside.write_text("".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")


def ends(text: str, tokenizer: Tokenizer) -> str:
    """As many whole words from the beginning and from the end of a text as half of the short length has room for."""
    words, room = text.split(), SHORT // 2 - 1
    sizes = [len(ids) for ids in tokenizer.encode_batch(words)]
    head, tail = (sum(total <= room for total in accumulate(order)) for order in (sizes, reversed(sizes)))
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
        (run / AT_ONCE).write_text(str(options.jobs))
    score(options, variant, run)
    for folder in (run / "checkpoints", options.out / "warm" / run.name):
        shutil.rmtree(folder, ignore_errors=True)


def recipe_of(options: argparse.Namespace, variant: str, seed: int) -> Any:
    """The same for all but the attention and how much of a review is read."""
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
    """Which reviews of the test set the run is right about, told for all and for the long ones."""
    from qkv.base.hardware import describe_device
    from qkv.inference.text_encoder import load_text_encoder

    rows = read_reviews(str(options.out / "data" / f"test-{VARIANTS[variant][2]}.tsv"))
    reader = load_text_encoder(run)
    before = time.perf_counter()
    said = reader.predict([text for _, text in rows])
    seconds = time.perf_counter() - before
    right = [one.label == label for one, (label, _) in zip(said, rows, strict=True)]
    lengths = json.loads((options.out / "data" / "lengths.json").read_text())["test"]
    last = [line for line in read_metrics(run) if "seconds" in line][-1]
    values = {
        "accuracy": statistics.mean(right),
        "accuracy_long": statistics.mean(r for r, n in zip(right, lengths, strict=True) if n > SHORT),
        "updates": last["step"], "training_seconds": last["seconds"], "epochs": last["epoch"],
        "reviews_per_second": len(rows) / seconds, "device": describe_device(reader.device),
        "parameters": sum(p.numel() for p in reader.model.parameters()),
    }  # fmt: skip
    with atomic_file(run / SCORE) as path:
        path.write_text(json.dumps(values, indent=1))
    print(f"{run.name}: {values['accuracy']:.4f}, of long ones {values['accuracy_long']:.4f}", flush=True)


def everything(options: argparse.Namespace) -> None:
    """All encoders with all seeds, in processes of their own."""
    prepare(options)
    asked = [(variant, seed) for seed in range(1, options.seeds + 1) for variant in options.variant]
    commands = [own_command(__file__, options, "train", [variant], seed=seed) for variant, seed in asked]
    run_side_by_side(commands, options.jobs)
    report(options)


# The report


def report(options: argparse.Namespace) -> None:
    """table.md and table.json of what has been scored so far."""
    seeds = range(1, options.seeds + 1)
    paths = {variant: [folder_of(options.out, variant, seed) / SCORE for seed in seeds] for variant in VARIANTS}
    read = {variant: [json.loads(path.read_text()) for path in each if path.exists()] for variant, each in paths.items()}
    table = {variant: found for variant, found in read.items() if found}
    if not table:
        raise SystemExit(f"{options.out}: nothing has been scored yet")
    runs = [path.parent for each in paths.values() for path in each if path.exists()]
    where, most = devices(row for found in table.values() for row in found), max(map(len, table.values()))
    lines = [
        f"{alike(runs, budget)}{at_once(runs)}, {where}; means of {most} seeds (lowest to highest)",
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


def budget(recipe: Any) -> str:
    return f"{budget_of(recipe)} each, {recipe.training.batch_tokens:,} tokens an update"


def row(variant: str, found: list[dict[str, Any]]) -> str:
    """A line of the table: what all seeds gave."""

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
    parser.add_argument("what", choices=["all", "train", "report"])
    parser.add_argument("--variant", choices=list(VARIANTS), action="append", metavar="NAME", help="; ".join(VARIANTS))
    parser.add_argument("--seed", type=int, default=1, help="of `train`")
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
    if options.what != "report":
        seeds = range(1, options.seeds + 1) if options.what == "all" else [options.seed]
        asked = [(variant, seed) for variant in options.variant for seed in seeds]
        refuse_other_runs((folder_of(options.out, *one), recipe_of(options, *one)) for one in asked)
    if options.what == "train":
        prepare(options)
        for variant in options.variant:
            train_one(options, variant, options.seed)
    else:
        {"all": everything, "report": report}[options.what](options)


if __name__ == "__main__":
    main()
