"""Compare UniLM and T5, pretrained on one language or not, as translators with a Transformer.

    python benchmarks/pretrained_translators.py all --train train.tsv.gz --dev dev.tsv.gz --test test.tsv.gz \\
        --tokenizer tokenizer.json --unilm UNILM --t5 T5 --seconds 60 --out FOLDER

writes FOLDER/table.md and FOLDER/table.json. UNILM and T5 are pretraining runs (pretrained_models.py) with that tokenizer, which
all models share. Every translator trains for the same seconds on the pairs, pretraining not counted; `--jobs` processes train in
parallel on the same device. After pretraining on English alone, a model can read and write English, and of German only the
tokenizer has seen anything. Finished runs are skipped, and refused if their settings differ.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from architectures import TRANSFORMER
from comparison import device_names, folder_name, refuse_other_runs, run_parallel, subcommand
from translator_comparison import SCORE, budget, option_parser, score_one, table, train_one

from qkv.folder.run import read_recipe
from qkv.recipes import parse_recipe

# Kind of model, and whether it starts from a pretraining run. Learning rates are those of the recipes for each kind.
VARIANTS: dict[str, tuple[str, bool]] = {
    "Transformer": ("transformer", False),
    "UniLM, new": ("unilm", False),
    "UniLM, pretrained": ("unilm", True),
    "T5, new": ("t5", False),
    "T5, pretrained": ("t5", True),
}
RATE = {"transformer": 0.002, "unilm": 0.0005, "t5": 0.001}


def folder_of(out: Path, variant: str) -> Path:
    return out / folder_name(variant)


def recipe_of(options: argparse.Namespace, variant: str) -> Any:
    """Return the recipe of a variant; only the model, its objective and its learning rate differ."""
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
    """Return the model and the run it starts from, or a new model of that run's shape.

    The Transformer's is in architectures.py.
    """
    run = {"unilm": options.unilm, "t5": options.t5}.get(kind)
    objective = {"objective": {"kind": "masked-translation"}} if kind == "unilm" else {}
    if run is not None and pretrained:
        return {"start": str(run), "model": {"kind": kind, "dropout": options.dropout}, **objective}
    shape = TRANSFORMER if run is None else read_recipe(run).model.model_dump(mode="json")
    return {"tokenizer": {"shared": {"file": options.tokenizer}}, "model": {**shape, "dropout": options.dropout}, **objective}


def everything(options: argparse.Namespace) -> None:
    """Train all variants in parallel processes, then translate one after the other in a further process."""
    run_parallel([subcommand(__file__, options, "train", [variant]) for variant in options.variant], options.jobs)
    run_parallel([subcommand(__file__, options, "score", options.variant)], 1)
    report(options)


def report(options: argparse.Namespace) -> None:
    """Write table.md and table.json of all variants that have been scored."""
    paths = [path for variant in VARIANTS if (path := folder_of(options.out, variant) / SCORE).exists()]
    if not paths:
        raise SystemExit(f"{options.out}: nothing has been scored yet")
    found = [json.loads(path.read_text()) for path in paths]
    lines = [f"{options.out}: {budget([path.parent for path in paths])}; {device_names(found)}", "", *table(found), ""]
    lines += [f"{score['name']}: `{score['signature']}`  " for score in found[0]["scores"]]
    (options.out / "table.json").write_text(json.dumps(found, indent=1))
    (options.out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def main() -> None:
    parser = option_parser(__doc__, VARIANTS, seconds=60, dropout=0.1)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--unilm", type=Path, required=True, help="pretraining run of a UniLM")
    parser.add_argument("--t5", type=Path, required=True, help="pretraining run of a T5")
    options = parser.parse_args()
    options.variant = options.variant or list(VARIANTS)
    if options.action != "report":
        refuse_other_runs((folder_of(options.out, variant), recipe_of(options, variant)) for variant in options.variant)
    if options.action in ("all", "report"):
        {"all": everything, "report": report}[options.action](options)
        return
    for variant in options.variant:
        run = folder_of(options.out, variant)
        if options.action == "train":
            train_one(options, run, recipe_of(options, variant))
        else:
            score_one(options, run, variant)


if __name__ == "__main__":
    main()
