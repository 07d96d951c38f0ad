"""GLUE's tasks from text to text, as Raffel et al. 2020 (appendix D) have them: what a T5 is fine-tuned on in family.py.

Of an example the source is the task's name and its texts, the target a word for its class, or a number in steps of 0.2. What is
said that is none of these counts as the first class, or as 0.
"""

import contextlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

from side_by_side import refuse_other_runs

from qkv.base.files import atomic_file
from qkv.recipes import parse_recipe
from qkv.text.examples import ExamplesConfig, TextExample, read_examples
from qkv.text.tokenizer import Tokenizer

WORDS = {
    "SST-2": {"0": "negative", "1": "positive"},
    "CoLA": {"0": "unacceptable", "1": "acceptable"},
    "MRPC": {"0": "different", "1": "equivalent"},
    "RTE": {"entailment": "entailment", "not_entailment": "other"},
}
STEP = 0.2  # of numbers
LONGEST = 320  # tokens of a source: of all tasks none has more
FILLED = 0.95  # of rows, nearly
RUN = "run"  # folder of the translator, in that of the task


def source_of(task: str, example: TextExample) -> str:
    return f"{task}: {example.text}" + (f" / {example.pair}" if example.pair else "")


def target_of(task: str, example: TextExample) -> str:
    label = str(example.label)
    return WORDS[task][label] if task in WORDS else f"{round(float(label) / STEP) * STEP:.1f}"


def understood(task: str, said: list[str]) -> list[float]:
    """Classes as numbers, and numbers, as they were said."""
    if task in WORDS:
        names = list(WORDS[task].values())
        return [names.index(text) if text in names else 0 for text in said]
    numbers = []
    for text in said:
        numbers.append(0.0)
        with contextlib.suppress(ValueError):
            numbers[-1] = float(text) if math.isfinite(float(text)) else 0.0
    return numbers


def finetune(folder: Path, task: str, files: dict[str, Path], how: dict[str, Any], start: Path, training: dict[str, Any]) -> None:
    """Train a task and score it on dev; `how` has its columns, kind, metric, epochs and seed."""
    from qkv.inference.translator import load_translator
    from qkv.jobs.train import train
    from qkv.text.metrics import METRICS

    read = {
        part: read_examples(how["kind"], ExamplesConfig(files=(str(file),), **how["columns"])) for part, file in files.items()
    }
    recipe = recipe_of(folder, task, read, how, start, training)
    refuse_other_runs([(folder / RUN, recipe)])
    if (folder / "result.json").exists():
        return
    train(recipe, folder / RUN)
    said = load_translator(folder / RUN).translate([source_of(task, example) for example in read["dev"]])
    wanted = understood(task, [target_of(task, example) for example in read["dev"]]) if task in WORDS else numbers_of(read["dev"])
    score = METRICS[how["metric"]].function(understood(task, said), wanted)
    with atomic_file(folder / "result.json") as path:
        path.write_text(json.dumps({"scores": {how["metric"]: score}}))
    shutil.rmtree(folder / RUN / "checkpoints", ignore_errors=True)
    (folder / RUN / "model.safetensors").unlink(missing_ok=True)


def numbers_of(examples: list[TextExample]) -> list[float]:
    return [float(str(example.label)) for example in examples]


def recipe_of(
    folder: Path, task: str, read: dict[str, list[Any]], how: dict[str, Any], start: Path, training: dict[str, Any]
) -> Any:
    """As many epochs, in rows of as many tokens; layers cannot have rates of their own here."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = {part: write_pairs(folder / f"{part}.tsv", task, examples) for part, examples in read.items()}
    ids = Tokenizer.load(start / "tokenizer.json").encode_batch([source_of(task, example) for example in read["train"]])
    epoch = math.ceil(sum(len(text) + 1 for text in ids) / training["batch_tokens"] / FILLED)
    values = {
        "seed": how["seed"],
        "start": str(start),
        "data": {**pairs, "max_tokens": LONGEST, "check": {"max_ratio": 10**6, "identical": "keep", "duplicates": "keep"}},
        "model": {"kind": "t5", "dropout": how["dropout"]},
        "objective": {"smoothing": 0.0},
        "training": {**training, "steps": how["epochs"] * epoch, "validate_every": epoch, "save_every": epoch},
        "decoding": {"beam": 1, "max_ratio": 0, "max_extra": 8},
        "metrics": ["exact"],
    }
    return parse_recipe(values, f"{folder}, {task}")


def write_pairs(path: Path, task: str, examples: list[TextExample]) -> str:
    with atomic_file(path) as aside:
        aside.write_text("".join(f"{source_of(task, one)}\t{target_of(task, one)}\n" for one in examples), encoding="utf-8")
    return str(path)
