"""Does the dependency tree help? Tag words with small encoders that know positions in the text, in its tree, or in both.

    python benchmarks/structure.py --train train.conllu.gz --dev dev.conllu.gz --test test.conllu.gz --out FOLDER

writes FOLDER/table.md and FOLDER/table.json: accuracy on the test set, mean and standard deviation over `--seeds` seeds. The
files are Universal Dependencies treebanks, whose gold trees are the input. There are three tasks:

- pos: parts of speech (UPOS) of the original sentences;
- shuffled: the same, but the words of each sentence are shuffled together with their heads, so that only the tree says which
  words belong together;
- side: for shuffled words, whether each originally stood before or after its head.

All encoders start from random weights, have the same layers and train for the same epochs, in `--jobs` parallel processes.
Finished runs are skipped, and refused if their settings differ.
"""

import argparse
import itertools
import json
import random
import statistics
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from comparison import refuse_other_runs, refuse_other_settings, write_settings

from qkv.base.files import atomic_file
from qkv.jobs.train import train
from qkv.recipes import parse_recipe
from qkv.text.examples import TAG_READERS, ExamplesConfig, TaggedExample, read_examples

MODEL = {"kind": "bert", "width": 96, "feedforward": 192, "heads": 4, "layers": 2, "max_distance": 8}
# Each scheme with trees follows the scheme that it extends.
SCHEMES = ("none", "sinusoidal", "structural-absolute", "relative", "structural-relative", "structural")
TASKS = ("pos", "shuffled", "side")
PARTS = ("train", "dev", "test")


def shuffled(example: TaggedExample, rng: random.Random) -> TaggedExample:
    """Return the same words and tree in random order."""
    assert example.heads is not None
    order = rng.sample(range(len(example.words)), len(example.words))
    new = {old + 1: position for position, old in enumerate(order, 1)} | {0: 0}
    heads = [new[example.heads[old]] for old in order]
    return example._replace(words=[example.words[i] for i in order], tags=[example.tags[i] for i in order], heads=heads)


def sides(example: TaggedExample) -> list[str]:
    """Return for each word whether it stands before or after its head."""
    heads = example.heads or []
    return ["root" if not head else "before" if word < head else "after" for word, head in enumerate(heads, 1)]


def prepare(options: argparse.Namespace) -> None:
    """Write each part of each task as JSON Lines."""
    names = [*PARTS, *(f"{part}_sentences" for part in PARTS)]
    settings = {name: getattr(options, name) for name in names}
    refuse_other_settings(options.out / "settings.json", settings)
    write_settings(options.out / "settings.json", settings)
    for part in PARTS:
        config = ExamplesConfig(files=(getattr(options, part),), trees=True)
        examples = read_examples(TAG_READERS, config)[: getattr(options, f"{part}_sentences")]
        for task in TASKS:
            rng = random.Random(f"{part} {task}")
            made = [example._replace(tags=sides(example)) if task == "side" else example for example in examples]
            made = made if task == "pos" else [shuffled(example, rng) for example in made]
            with atomic_file(options.out / f"{task}-{part}.jsonl") as path:
                path.write_text(
                    "".join(json.dumps({name: getattr(e, name) for name in ("words", "tags", "heads")}) + "\n" for e in made)
                )


def recipe_of(options: argparse.Namespace, task: str, scheme: str, seed: int) -> Any:
    """Return the recipe of an encoder; only the task, the position scheme and the seed differ."""
    values = {
        "seed": seed,
        "data": {**{part: str(options.out / f"{task}-{part}.jsonl") for part in PARTS}, "length": 128},
        "tokenizer": {"kind": "wordpiece", "vocab": options.vocab},
        "model": {**MODEL, "positions": scheme},
        "objective": {"kind": "tagging"},
        "metrics": ["tag_accuracy"],
        "training": {
            "epochs": options.epochs, "batch_tokens": options.batch_tokens, "schedule": "linear", "learning_rate": options.rate,
            "warmup": 0.1, "averaging": "none", "device": options.device, "precision": options.precision,
        },
    }  # fmt: skip
    return parse_recipe(values, f"{task}, {scheme}")


def folder_of(options: argparse.Namespace, task: str, scheme: str, seed: int) -> Path:
    return options.out / f"{task}-{scheme}-{seed}"


def all_encoders(options: argparse.Namespace) -> list[tuple[str, str, int]]:
    """Return task, scheme and seed of each encoder."""
    return list(itertools.product(options.tasks, options.schemes, range(1, options.seeds + 1)))


def accuracy(options: argparse.Namespace, task: str, scheme: str, seed: int) -> float:
    """Return the accuracy on the test set; train the encoder unless it exists."""
    run = folder_of(options, task, scheme, seed)
    if not (run / "result.json").exists():
        train(recipe_of(options, task, scheme, seed), run)
    return float(json.loads((run / "result.json").read_text())["scores"]["tag_accuracy"])


def report(options: argparse.Namespace) -> None:
    """Train all encoders; write a table with a row per scheme and a column per task."""
    encoders = all_encoders(options)
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        found = dict(zip(encoders, pool.map(accuracy, itertools.repeat(options), *zip(*encoders, strict=True)), strict=True))
    table = {
        scheme: {task: [found[task, scheme, seed] for seed in range(1, options.seeds + 1)] for task in options.tasks}
        for scheme in options.schemes
    }
    lines = [f"| positions | {' | '.join(options.tasks)} |", "|---" * (len(options.tasks) + 1) + "|"]
    for scheme, by_task in table.items():
        lines.append(f"| {scheme} | {' | '.join(_mean_and_spread(values) for values in by_task.values())} |")
    (options.out / "table.md").write_text("\n".join(lines) + "\n")
    (options.out / "table.json").write_text(json.dumps(table, indent=1))
    print("\n".join(lines))


def _mean_and_spread(values: list[float]) -> str:
    spread = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.2f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for part in PARTS:
        parser.add_argument(f"--{part}", required=True, help="a treebank in CoNLL-U")
        parser.add_argument(f"--{part}-sentences", type=int, help="read only this many sentences of it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=SCHEMES)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="encoders trained in parallel")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=6000)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    refuse_other_runs((folder_of(options, *one), recipe_of(options, *one)) for one in all_encoders(options))
    prepare(options)
    report(options)


if __name__ == "__main__":
    main()
