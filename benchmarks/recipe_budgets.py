"""Train recipes as they come for a few minutes each, and tabulate what they reach and what the guard says.

    python benchmarks/recipe_budgets.py --text wiki.txt --train train.tsv --dev dev.tsv --minutes 10 --out FOLDER
    python benchmarks/recipe_budgets.py ... --rate 10 --out FOLDER  # ten times the learning rate of the recipe

writes FOLDER/table.md. `--recipe`, repeatable, selects recipes; `--jobs` trains several in parallel, which then share the
machine. Finished runs are skipped.
"""

import argparse
import json
import sys
from pathlib import Path

from comparison import run_parallel

from qkv.folder.run import RESULT
from qkv.recipes import load_recipe
from qkv.training.log import read_metrics

PRETRAINING = ["bert-mini", "gpt-mini", "t5-mini", "unilm-mini", "xlnet-mini", "elmo-mini", "electra-small"]
TRANSLATION = ["transformer-small", "rnn-small", "convolution-small"]
FIGURES = (  # of validations, the first that a run has
    "dev_generator_loss", "dev_masked_loss", "dev_word_loss", "dev_span_loss", "dev_forward_perplexity", "dev_loss",
)  # fmt: skip


def files(options: argparse.Namespace, recipe: str) -> dict[str, str]:
    """Return the settings that name a recipe's files."""
    if recipe in TRANSLATION:
        return {"data.train": options.train, "data.dev": options.dev}
    return {"data.text": options.text}


def training_command(options: argparse.Namespace, recipe: str) -> list[str]:
    settings = files(options, recipe) | {"training.minutes": f"{options.minutes:g}"}
    if options.rate != 1:
        own = load_recipe(recipe, [f"{key}={value}" for key, value in settings.items()]).training.learning_rate
        if own is None:
            raise SystemExit(f"{recipe} has no learning rate of its own to multiply; leave it out")
        settings["training.learning_rate"] = f"{own * options.rate:g}"
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "qkv", "train", recipe, *given, "--out", str(options.out / recipe)]


def line(run: Path) -> str:
    """Return a run's line of the table."""
    result, validations = json.loads((run / RESULT).read_text()), [m for m in read_metrics(run) if "dev_loss" in m]
    figure = next(name for name in FIGURES if name in validations[-1])
    values = [validation[figure] for validation in validations]
    reached = f"{figure.removeprefix('dev_')} {values[0]:.2f} -> {values[-1]:.2f}"
    return f"| {run.name} | {result['steps']} | {reached} | {'; '.join(result['warnings']) or 'none'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", action="append", help="a recipe of qkv; translation: " + ", ".join(TRANSLATION))
    parser.add_argument("--text", help="text to pretrain on")
    parser.add_argument("--train", help="pairs to translate")
    parser.add_argument("--dev")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=float, default=1, help="factor of the learning rate")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    recipes = options.recipe or [*PRETRAINING, *TRANSLATION]
    missing = {key for recipe in recipes for key, value in files(options, recipe).items() if value is None}
    if missing:
        parser.error(f"these recipes need {', '.join('--' + key.removeprefix('data.') for key in sorted(missing))}")
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = [recipe for recipe in recipes if not (options.out / recipe / RESULT).exists()]
    run_parallel([training_command(options, recipe) for recipe in wanted], options.jobs)
    lines = ["| recipe | updates | first validation -> last | warnings |", "|---|---|---|---|"]
    lines += [line(options.out / recipe) for recipe in recipes]
    (options.out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
