"""Compare the Transformer with recurrent and convolutional translators, and its position schemes, at equal budgets.

    python benchmarks/architectures.py all --train train.tsv.gz --dev dev.tsv.gz --test test.tsv.gz --seconds 30 --out FOLDER

writes FOLDER/table.md, FOLDER/table.json and FOLDER/lengths.svg (BLEU by source length). All models have about the same number of
parameters (8.6 to 9.7 million with 8,000 pieces) and share one tokenizer. `--jobs` processes train in parallel on the same
device; afterwards the models translate the test set one after the other. Finished runs are skipped, and refused if their settings
differ. `--updates` instead of `--seconds` gives all models the same number of updates; `--variant`, repeatable, selects models.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib
from comparison import (
    device_names,
    folder_name,
    refuse_other_runs,
    refuse_other_settings,
    run_parallel,
    subcommand,
    write_settings,
)
from translator_comparison import SCORE, budget, option_parser, score_one, table, train_one

from qkv.recipes import parse_recipe

# Input feeding makes the steps of a text sequential and training several times slower, so it is a variant of its own.
RNN = {"kind": "rnn", "cell": "lstm", "width": 512, "embedding_width": 256, "layers": 2, "input_feeding": False}
CONVOLUTION = {
    "kind": "convolution", "width": 256, "embedding_width": 256, "kernel_width": 3, "encoder_layers": 7,
    "decoder_layers": 7, "tied": "all",
}  # fmt: skip
TRANSFORMER = {
    "kind": "transformer", "width": 256, "feedforward": 1024, "heads": 4, "encoder_layers": 4, "decoder_layers": 4, "norm": "pre",
}  # fmt: skip
# Pre-norm would remove the `counting` and `normalised` positions from the sum, so the schemes are compared with post-norm.
POSITIONS = ("none", "counting", "normalised", "sinusoidal", "learned", "relative", "rotary", "alibi")
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "RNN, one vector": {**RNN, "attention": "none", "reverse": True},
    "RNN, additive attention": {**RNN, "attention": "additive"},
    "RNN, dot attention": {**RNN, "attention": "dot"},
    "RNN, general attention": {**RNN, "attention": "general"},
    "RNN, general attention, input feeding": {**RNN, "attention": "general", "input_feeding": True},
    "convolution": CONVOLUTION,
    "Transformer": TRANSFORMER,
}
SCHEMES = {f"Transformer, post-norm, {name}": {**TRANSFORMER, "norm": "post", "positions": name} for name in POSITIONS}
VARIANTS = {**ARCHITECTURES, **SCHEMES}
PLOTTED = ("RNN, one vector", "RNN, dot attention", "convolution", "Transformer")
RATE = {"rnn": 0.002, "convolution": 0.001, "pre": 0.002, "post": 0.001}  # by kind; a Transformer's by its norm


def folder_of(out: Path, variant: str) -> Path:
    return out / folder_name(variant)


def recipe_of(options: argparse.Namespace, variant: str) -> Any:
    """Return the recipe of a variant; only the model and its learning rate differ."""
    model = VARIANTS[variant]
    length = {"steps": options.updates} if options.updates else {"minutes": options.seconds / 60}
    training = {
        **length, "batch_tokens": options.batch_tokens, "schedule": "cosine", "warmup": options.warmup, "averaging": "ema",
        "learning_rate": RATE[model.get("norm", model["kind"])], "validate_every": 10**9, "save_every": 10**9, "log_every": 10,
    }  # fmt: skip
    values = {
        "seed": options.seed,
        "data": {**{part: getattr(options, part) for part in ("train", "dev", "test", "languages")}, "max_tokens": 128},
        "tokenizer": {"shared": {"file": str(options.out / "tokenizer.json")}},
        "model": {**model, "dropout": options.dropout},
        "training": training,
        "decoding": {"beam": options.beam, "batch_tokens": options.decoding_tokens},
    }  # fmt: skip
    return parse_recipe(values, variant)


def make_tokenizer(options: argparse.Namespace) -> None:
    """Train one tokenizer for both languages and all models, unless it exists."""
    from qkv.text.corpus import ParallelCorpusConfig, read_pairs
    from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

    path, settings = options.out / "tokenizer.json", options.out / "tokenizer-settings.json"
    wanted = {"train": options.train, "vocab": options.vocab}
    if path.exists():
        refuse_other_settings(settings, wanted)
    else:
        write_settings(settings, wanted)
        pairs = read_pairs(ParallelCorpusConfig(pairs=options.train))
        texts = (text for pair in pairs for text in (pair.source, pair.target))
        train_tokenizer(TokenizerConfig.model_validate({"kind": "bpe", "vocab": options.vocab}), texts).save(path)


def everything(options: argparse.Namespace) -> None:
    """Train all variants in parallel processes, then translate one after the other in a further process."""
    make_tokenizer(options)
    run_parallel([subcommand(__file__, options, "train", [variant]) for variant in options.variant], options.jobs)
    run_parallel([subcommand(__file__, options, "score", options.variant)], 1)
    report(options)


# The report


def report(options: argparse.Namespace) -> None:
    """Write table.md, table.json and lengths.svg for all variants that have been scored."""
    paths = {variant: folder_of(options.out, variant) / SCORE for variant in VARIANTS}
    found = {variant: json.loads(path.read_text()) for variant, path in paths.items() if path.exists()}
    if not found:
        raise SystemExit(f"{options.out}: nothing has been scored yet")
    lines = [
        f"{options.out}: {budget([path.parent for path in paths.values() if path.exists()])}; {device_names(found.values())}",
        "",
    ]
    for group in (ARCHITECTURES, SCHEMES):
        rows = [found[name] for name in group if name in found]
        lines += [*table(rows), ""] if rows else []
    lines += [*(f"{score['name']}: `{score['signature']}`  " for score in next(iter(found.values()))["scores"])]
    (options.out / "table.json").write_text(json.dumps(list(found.values()), indent=1))
    (options.out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    plotted = {name: found[name] for name in PLOTTED if name in found}
    if plotted:
        plot(plotted, options.out / "lengths.svg")


def plot(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Plot BLEU over the source length, one line per model."""
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4.5))
    for name, row in found.items():
        axis.plot([length["bleu"] for length in row["lengths"]], marker="o", label=name)
    lengths = next(iter(found.values()))["lengths"]
    names = [f"{bucket['shortest']} to {bucket['longest']}\n{bucket['texts']:,} texts" for bucket in lengths]
    axis.set_xticks(range(len(names)), names)
    axis.set_xlabel("source length in words")
    axis.set_ylabel("BLEU")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = option_parser(__doc__, VARIANTS, seconds=30, dropout=0.3)
    parser.add_argument("--updates", type=int)
    parser.add_argument("--vocab", type=int, default=8000)
    options = parser.parse_args()
    options.variant = options.variant or list(VARIANTS)
    if options.action != "report":
        refuse_other_runs((folder_of(options.out, variant), recipe_of(options, variant)) for variant in options.variant)
    if options.action in ("all", "report"):
        {"all": everything, "report": report}[options.action](options)
        return
    make_tokenizer(options)
    for variant in options.variant:
        run = folder_of(options.out, variant)
        if options.action == "train":
            train_one(options, run, recipe_of(options, variant))
        else:
            score_one(options, run, variant)


if __name__ == "__main__":
    main()
