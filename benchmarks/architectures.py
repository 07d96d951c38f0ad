"""The Transformer beside recurrent and convolutional translators, and with every scheme of positions, at equal budgets.

    python benchmarks/architectures.py all --train train.tsv.gz --dev dev.tsv.gz --test test.tsv.gz --seconds 30 --out FOLDER

makes FOLDER/table.md, FOLDER/table.json and FOLDER/lengths.svg, BLEU by the length of the source. All models have about as many
weights (8.6 to 9.7 million with 8,000 pieces) and one tokenizer. Training runs in processes of its own, `--jobs` at once, which
share the device; afterwards all translate the test set one after the other, alone on it. What is there already is not done again,
and refused where it was made with other settings than asked for.
`--updates` in place of `--seconds` gives all as many updates; `--variant`, once or more often, takes some of the models only.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib
from side_by_side import (
    devices,
    folder_named,
    note_settings,
    own_command,
    refuse_other_runs,
    refuse_other_settings,
    run_side_by_side,
)
from translation import SCORE, budget, options_for, score_one, table, train_one

from qkv.recipes import parse_recipe

# Where a step reads what the one before found, all steps of a text come one after the other: many times the time, so that this
# is compared by itself.
RNN = {"kind": "rnn", "cell": "lstm", "width": 512, "embedding_width": 256, "layers": 2, "input_feeding": False}
CONVOLUTION = {
    "kind": "convolution", "width": 256, "embedding_width": 256, "kernel_width": 3, "encoder_layers": 7, "decoder_layers": 7, "tied": "all",
}  # fmt: skip
TRANSFORMER = {
    "kind": "transformer", "width": 256, "feedforward": 1024, "heads": 4, "encoder_layers": 4, "decoder_layers": 4, "norm": "pre",
}  # fmt: skip
# A norm before each layer would take plain and normalised counting away, so that schemes are compared with norms after them.
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
DRAWN = ("RNN, one vector", "RNN, dot attention", "convolution", "Transformer")
RATE = {"rnn": 0.002, "convolution": 0.001, "pre": 0.002, "post": 0.001}  # by kind, of a Transformer by its norm


def folder_of(out: Path, variant: str) -> Path:
    return out / folder_named(variant)


def recipe_of(options: argparse.Namespace, variant: str) -> Any:
    """The same for all but the model, and the rate that suits it."""
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
    """One vocabulary for both sides and all models."""
    from qkv.text.corpus import ParallelCorpusConfig, read_pairs
    from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

    path, note = options.out / "tokenizer.json", options.out / "tokenizer-settings.json"
    asked = {"train": options.train, "vocab": options.vocab}
    if path.exists():
        refuse_other_settings(note, asked)
    else:
        note_settings(note, asked)
        pairs = read_pairs(ParallelCorpusConfig(pairs=options.train))
        texts = (text for pair in pairs for text in (pair.source, pair.target))
        train_tokenizer(TokenizerConfig.model_validate({"kind": "bpe", "vocab": options.vocab}), texts).save(path)


def everything(options: argparse.Namespace) -> None:
    """Train side by side, in processes of their own; then translate one after the other, in another."""
    make_tokenizer(options)
    run_side_by_side([own_command(__file__, options, "train", [variant]) for variant in options.variant], options.jobs)
    run_side_by_side([own_command(__file__, options, "score", options.variant)], 1)
    report(options)


# The report


def report(options: argparse.Namespace) -> None:
    """table.md, table.json and lengths.svg of what has been scored so far."""
    paths = {variant: folder_of(options.out, variant) / SCORE for variant in VARIANTS}
    found = {variant: json.loads(path.read_text()) for variant, path in paths.items() if path.exists()}
    if not found:
        raise SystemExit(f"{options.out}: nothing has been scored yet")
    lines = [f"{options.out}: {budget([path.parent for path in paths.values() if path.exists()])}; {devices(found.values())}", ""]
    for group in (ARCHITECTURES, SCHEMES):
        rows = [found[name] for name in group if name in found]
        lines += [*table(rows), ""] if rows else []
    lines += [*(f"{score['name']}: `{score['signature']}`  " for score in next(iter(found.values()))["scores"])]
    (options.out / "table.json").write_text(json.dumps(list(found.values()), indent=1))
    (options.out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    drawn = {name: found[name] for name in DRAWN if name in found}
    if drawn:
        draw(drawn, options.out / "lengths.svg")


def draw(found: dict[str, dict[str, Any]], path: Path) -> None:
    """BLEU over the length of the source, a line for each model."""
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4.5))
    for name, row in found.items():
        axis.plot([length["bleu"] for length in row["lengths"]], marker="o", label=name)
    lengths = next(iter(found.values()))["lengths"]
    names = [f"{bucket['shortest']} to {bucket['longest']}\n{bucket['texts']:,} texts" for bucket in lengths]
    axis.set_xticks(range(len(names)), names)
    axis.set_xlabel("words of the source")
    axis.set_ylabel("BLEU")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = options_for(__doc__, VARIANTS, seconds=30, dropout=0.3)
    parser.add_argument("--updates", type=int)
    parser.add_argument("--vocab", type=int, default=8000)
    options = parser.parse_args()
    options.variant = options.variant or list(VARIANTS)
    if options.what != "report":
        refuse_other_runs((folder_of(options.out, variant), recipe_of(options, variant)) for variant in options.variant)
    if options.what in ("all", "report"):
        {"all": everything, "report": report}[options.what](options)
        return
    make_tokenizer(options)
    for variant in options.variant:
        run = folder_of(options.out, variant)
        if options.what == "train":
            train_one(options, run, recipe_of(options, variant))
        else:
            score_one(options, run, variant)


if __name__ == "__main__":
    main()
