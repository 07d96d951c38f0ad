"""GLUE's tasks as text-to-text tasks (Raffel et al. 2020, appendix D), to fine-tune T5 in pretrained_models.py.

The source is the task's name and the texts of an example; the target is a word for its class, or a number in steps of 0.2. Any
other output counts as the first class, or as 0.
"""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

from comparison import refuse_other_runs

from qkv.base.files import atomic_file
from qkv.recipes import parse_recipe
from qkv.text.examples import ExamplesConfig, TextExample, read_examples
from qkv.text.tokenizer import Tokenizer

CLASS_NAMES = {
    "SST-2": {"0": "negative", "1": "positive"},
    "CoLA": {"0": "unacceptable", "1": "acceptable"},
    "MRPC": {"0": "different", "1": "equivalent"},
    "RTE": {"entailment": "entailment", "not_entailment": "other"},
}
STEP = 0.2  # targets of regression are rounded to multiples of this
MAX_TOKENS = 320  # of a source; no task has a longer one
FILLED = 0.95  # share of positions that hold tokens, about
RUN = "run"  # folder of the translator inside that of the task


def source_of(task: str, example: TextExample) -> str:
    return f"{task}: {example.text}" + (f" / {example.pair}" if example.pair else "")


def target_of(task: str, example: TextExample) -> str:
    label = str(example.label)
    return CLASS_NAMES[task][label] if task in CLASS_NAMES else f"{round(float(label) / STEP) * STEP:.1f}"


def parse_outputs(task: str, outputs: list[str]) -> list[float]:
    """Return the class number or the value that each output stands for."""
    if task in CLASS_NAMES:
        names = list(CLASS_NAMES[task].values())
        return [names.index(text) if text in names else 0 for text in outputs]
    numbers = []
    for text in outputs:
        numbers.append(0.0)
        with contextlib.suppress(ValueError):
            numbers[-1] = float(text) if math.isfinite(float(text)) else 0.0
    return numbers


def finetune(
    folder: Path, task: str, files: dict[str, Path], settings: dict[str, Any], start: Path, training: dict[str, Any]
) -> None:
    """Fine-tune on a task and score on dev; `settings` has columns, kind, metric, epochs, seed and dropout."""
    from qkv.inference.load import load_translator
    from qkv.jobs.train import train
    from qkv.objectives import OBJECTIVES

    objective: Any = OBJECTIVES[settings["kind"]]
    read = {
        part: read_examples(objective.readers, ExamplesConfig(files=(str(file),), **settings["columns"]))
        for part, file in files.items()
    }
    recipe = recipe_of(folder, task, read, settings, start, training)
    refuse_other_runs([(folder / RUN, recipe)])
    if (folder / "result.json").exists():
        return
    train(recipe, folder / RUN)
    outputs = load_translator(folder / RUN).translate([source_of(task, example) for example in read["dev"]])
    if task in CLASS_NAMES:
        targets = parse_outputs(task, [target_of(task, example) for example in read["dev"]])
    else:
        targets = [float(str(example.label)) for example in read["dev"]]
    score = objective.find_metric(settings["metric"])(parse_outputs(task, outputs), targets)
    with atomic_file(folder / "result.json") as path:
        path.write_text(json.dumps({"scores": {settings["metric"]: score}}))
    (folder / RUN / "model.safetensors").unlink(missing_ok=True)


def recipe_of(
    folder: Path, task: str, read: dict[str, list[Any]], settings: dict[str, Any], start: Path, training: dict[str, Any]
) -> Any:
    """Return the recipe: the same epochs and batch tokens as for encoders, but no layer-wise learning rates."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = {part: write_pairs(folder / f"{part}.tsv", task, examples) for part, examples in read.items()}
    ids = Tokenizer.load(start / "tokenizer.json").encode_batch([source_of(task, example) for example in read["train"]])
    epoch = math.ceil(sum(len(text) + 1 for text in ids) / training["batch_tokens"] / FILLED)
    values = {
        "seed": settings["seed"],
        "start": str(start),
        "data": {**pairs, "max_tokens": MAX_TOKENS, "check": {"max_ratio": 10**6, "identical": "keep", "duplicates": "keep"}},
        "model": {"kind": "t5", "dropout": settings["dropout"]},
        "objective": {"smoothing": 0.0},
        "training": {**training, "steps": settings["epochs"] * epoch, "validate_every": epoch, "save_every": epoch},
        "decoding": {"beam": 1, "max_ratio": 0, "max_extra": 8},
        "metrics": ["exact"],
    }
    return parse_recipe(values, f"{folder}, {task}")


def write_pairs(path: Path, task: str, examples: list[TextExample]) -> str:
    with atomic_file(path) as temporary:
        temporary.write_text("".join(f"{source_of(task, one)}\t{target_of(task, one)}\n" for one in examples), encoding="utf-8")
    return str(path)
