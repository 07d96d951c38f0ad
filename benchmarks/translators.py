"""Pretrained on text of one language, then taught to translate: UniLM and T5 beside the same ones new, and a Transformer.

    python benchmarks/translators.py all --train train.tsv.gz --dev dev.tsv.gz --test test.tsv.gz --tokenizer tokenizer.json \\
        --unilm UNILM --t5 T5 --seconds 60 --out FOLDER

makes FOLDER/table.md and FOLDER/table.json. UNILM and T5 are runs of pretraining (family.py), made with that tokenizer, which all
have in common. Every translator has the same seconds on the pairs, whatever its pretraining took; trained `--jobs` at once, they
share the device. Where the text was English alone, what they know before is how to read English, and to write nothing but
English: of German the tokenizer alone has seen something. What is there already is not done again, and refused where it was
made with other settings than asked for.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from architectures import TRANSFORMER
from side_by_side import devices, folder_named, own_command, refuse_other_runs, run_side_by_side
from translation import SCORE, budget, options_for, score_one, table, train_one

from qkv.folder.run import read_recipe
from qkv.recipes import parse_recipe

# By kind; whether it starts from a run. Rates are those of the recipes for each kind.
VARIANTS: dict[str, tuple[str, bool]] = {
    "Transformer": ("transformer", False),
    "UniLM, new": ("unilm", False),
    "UniLM, pretrained": ("unilm", True),
    "T5, new": ("t5", False),
    "T5, pretrained": ("t5", True),
}
RATE = {"transformer": 0.002, "unilm": 0.0005, "t5": 0.001}


def folder_of(out: Path, variant: str) -> Path:
    return out / folder_named(variant)


def recipe_of(options: argparse.Namespace, variant: str) -> Any:
    """The same for all but the model, and the rate that suits it."""
    kind, pretrained = VARIANTS[variant]
    training = {
        "minutes": options.seconds / 60, "batch_tokens": options.batch_tokens, "schedule": "cosine", "warmup": options.warmup,
        "averaging": "ema", "learning_rate": RATE[kind], "validate_every": 10**9, "save_every": 10**9, "log_every": 10,
    }  # fmt: skip
    values = {
        "seed": options.seed,
        "data": {**{part: getattr(options, part) for part in ("train", "dev", "test", "languages")}, "max_tokens": 128},
        **start_of(options, kind, pretrained),
        "training": training,
        "decoding": {"beam": options.beam, "batch_tokens": options.decoding_tokens},
    }  # fmt: skip
    return parse_recipe(values, variant)


def start_of(options: argparse.Namespace, kind: str, pretrained: bool) -> dict[str, Any]:
    """The run that it starts from, or a new model of that run's shape; the Transformer has that of architectures.py."""
    run = {"unilm": options.unilm, "t5": options.t5}.get(kind)
    objective = {"objective": {"kind": "masked-translation"}} if kind == "unilm" else {}
    if run is not None and pretrained:
        return {"start": str(run), "model": {"kind": kind, "dropout": options.dropout}, **objective}
    shape = TRANSFORMER if run is None else read_recipe(run).model.model_dump(mode="json")
    return {"tokenizer": {"shared": {"file": options.tokenizer}}, "model": {**shape, "dropout": options.dropout}, **objective}


def everything(options: argparse.Namespace) -> None:
    """Train side by side, in processes of their own; then translate one after the other, in another."""
    run_side_by_side([own_command(__file__, options, "train", [variant]) for variant in options.variant], options.jobs)
    run_side_by_side([own_command(__file__, options, "score", options.variant)], 1)
    report(options)


def report(options: argparse.Namespace) -> None:
    """table.md and table.json of what has been scored so far."""
    paths = [path for variant in VARIANTS if (path := folder_of(options.out, variant) / SCORE).exists()]
    if not paths:
        raise SystemExit(f"{options.out}: nothing has been scored yet")
    found = [json.loads(path.read_text()) for path in paths]
    lines = [f"{options.out}: {budget([path.parent for path in paths])}; {devices(found)}", "", *table(found), ""]
    lines += [f"{score['name']}: `{score['signature']}`  " for score in found[0]["scores"]]
    (options.out / "table.json").write_text(json.dumps(found, indent=1))
    (options.out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def main() -> None:
    parser = options_for(__doc__, VARIANTS, seconds=60, dropout=0.1)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--unilm", type=Path, required=True, help="a run of pretraining")
    parser.add_argument("--t5", type=Path, required=True, help="another")
    options = parser.parse_args()
    options.variant = options.variant or list(VARIANTS)
    if options.what != "report":
        refuse_other_runs((folder_of(options.out, variant), recipe_of(options, variant)) for variant in options.variant)
    if options.what in ("all", "report"):
        {"all": everything, "report": report}[options.what](options)
        return
    for variant in options.variant:
        run = folder_of(options.out, variant)
        if options.what == "train":
            train_one(options, run, recipe_of(options, variant))
        else:
            score_one(options, run, variant)


if __name__ == "__main__":
    main()
