"""Compare models at equal compute: pretrain each for the same seconds on the same text, then fine-tune on GLUE's small tasks.

    python benchmarks/pretrained_models.py all --text wiki.txt.xz --glue GLUE --tokenizer tokenizer.json --seconds 60 --out FOLDER

writes FOLDER/table.md and FOLDER/curves.svg. `--variant`, repeatable, selects models. The speed of each model is measured first,
with nothing else on the device (FOLDER/updates-per-second.json); each then makes the updates that it makes alone in these
seconds, so that `--parallel` models can be pretrained at a time without changing the comparison. They are fine-tuned in `--jobs`
parallel processes. Finished runs are skipped, and refused if their settings differ. `prepare` only tokenises all text, which
needs no GPU; `compile` computes a few gradients of each model, so that `measure` finds its kernels compiled. T5 needs a tokenizer
with sentinels, and is fine-tuned on text-to-text tasks (glue_as_text.py). ELMo reads words instead of pieces, from copies of text
and tasks with split punctuation (split_punctuation.py); it stays frozen in fine-tuning except for the weights of its layers' mix
and the head.
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import glue_as_text
import pretrained_models_report
import split_punctuation
from comparison import (
    folder_name,
    refuse_other_runs,
    refuse_other_settings,
    run_parallel,
    subcommand,
    warm_up,
    write_settings,
)

from qkv.folder.run import RESULT
from qkv.recipes import parse_recipe
from qkv.training.log import read_metrics

# The shape of ELECTRA-small. No dropout: pretraining is so short that hardly any text is read twice.
SMALL = {"width": 256, "feedforward": 1024, "heads": 4, "layers": 12, "dropout": 0.0}
DROPOUT = 0.1  # in fine-tuning
BERT, ALBERT, ERNIE = ({"kind": kind, **SMALL} for kind in ("bert", "albert", "ernie"))
ELECTRA = {"kind": "electra", **SMALL, "embedding_width": 256, "generator_size": 1.0, "tied_generator": True}
TWO_STAGES = {
    "kind": "replaced", "mask": 0.8, "random": 0.1, "keep": 0.1, "generator_alone": 0.5, "discriminator_weight": 10,
    "discriminator_warmup": 0.05,
}  # fmt: skip
ELMO = {"kind": "elmo", "size": "small", "dropout": 0.0}  # with about as many parameters
# The encoder has the shape of the others; its gated feed-forward is narrower, for the same number of parameters.
T5 = {
    "kind": "t5", "width": 256, "feedforward": 688, "heads": 4, "encoder_layers": 12, "decoder_layers": 4, "dropout": 0.0,
    "activation": "geglu", "tied": "inputs",
}  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """A model with its objective, and the settings in which it differs from the others."""

    model: dict[str, Any]
    objective: dict[str, Any]
    training: dict[str, Any] = field(default_factory=dict)  # settings of pretraining that differ from the others'
    finetuned_model: dict[str, Any] = field(default_factory=dict)  # settings of the model in fine-tuning
    run_of: str = ""  # the variant whose pretraining it starts from, if that is not its own


VARIANTS: dict[str, Variant] = {
    "BERT, masked words + next sentence": Variant(BERT, {"kind": "masked", "sentence_task": "next"}),
    "BERT, masked words only": Variant(BERT, {"kind": "masked"}),
    "ALBERT (layers shared), masked words only": Variant(ALBERT, {"kind": "masked"}),
    "ALBERT (layers shared) + sentence order": Variant(ALBERT, {"kind": "masked", "sentence_task": "order"}),
    "ELECTRA": Variant(ELECTRA, TWO_STAGES, {"learning_rate": 5e-4}),  # as in the recipe electra-small
    "ERNIE, masked n-grams of words": Variant(ERNIE, {"kind": "masked", "units": "ngram"}),
    "GPT, last token": Variant({"kind": "gpt", **SMALL, "max_positions": 512}, {"kind": "causal"}),
    "UniLM, four ways": Variant({"kind": "unilm", **SMALL}, {"kind": "unilm"}),
    "XLNet": Variant({"kind": "xlnet", **SMALL}, {"kind": "permutation", "sentence_pairs": True}, {"learning_rate": 5e-4}),
    "ELMo, features": Variant(ELMO, {"kind": "bidirectional"}, finetuned_model={"frozen": True}),
    "T5, text to text": Variant(T5, {"kind": "spans"}, {"learning_rate": 2e-3}),  # as in t5-mini, which is as wide
    "T5, its encoder with a head": Variant(T5, {"kind": "spans"}, run_of="T5, text to text"),
}
NEW = "BERT without pretraining"
# Columns by name, or by number where there is no header; and the metric that GLUE reports.
TASKS: dict[str, tuple[dict[str, Any], str, str, int]] = {
    "SST-2": ({"text": "sentence", "label": "label"}, "classification", "accuracy", 1),
    "CoLA": ({"text": 4, "label": 2}, "classification", "matthews", 4),
    "MRPC": ({"text": "#1 String", "pair": "#2 String", "label": "Quality"}, "classification", "f1", 4),
    "RTE": ({"text": "sentence1", "pair": "sentence2", "label": "label"}, "classification", "accuracy", 4),
    "STS-B": ({"text": "sentence1", "pair": "sentence2", "label": "score"}, "regression", "spearman", 4),
}  # columns, kind, metric, epochs
ADAM = {"betas": [0.9, 0.999], "epsilon": 1e-6, "weight_decay": 0.01, "averaging": "none", "schedule": "linear"}
TUNING = {"batch_tokens": 2048, "learning_rate": 3e-4, "warmup": 0.1, "log_every": 100, **ADAM}
PARTS = ("train", "dev")
SPEEDS = "updates-per-second.json"
MEASURED_UPDATES = 400


def folder_of(out: Path, variant: str) -> Path:
    """Return the folder of a variant's pretraining."""
    return out / folder_name(variant if variant == NEW else VARIANTS[variant].run_of or variant)


def reads_words(variant: str) -> bool:
    """Return whether a variant reads whole words, by their characters, instead of pieces."""
    return variant != NEW and VARIANTS[variant].model["kind"] == "elmo"


def is_pretrained(variant: str) -> bool:
    """Return whether a variant has a pretraining of its own."""
    return variant != NEW and not VARIANTS[variant].run_of


def split_texts_folder(options: argparse.Namespace) -> Path:
    """Return the folder of texts and tasks with split punctuation."""
    return Path(options.out) / "split-texts"


# Pretraining


def pretraining_recipe(options: argparse.Namespace, variant: str, steps: int = 1, **others: Any) -> Any:
    """Return the recipe of a variant; only the model, its objective and what it needs to train well differ."""
    chosen, here = VARIANTS[variant], split_texts_folder(options)
    training = {
        "steps": steps, "batch_tokens": options.batch_tokens, "learning_rate": options.rate, "warmup": options.warmup,
        "validate_every": options.validate_every, "save_every": 10**9, "log_every": 50, **ADAM, **chosen.training, **others,
    }  # fmt: skip
    text, tokenizer = (here / "text.txt", here / "words.json") if reads_words(variant) else (options.text, options.tokenizer)
    values = {
        "seed": 1, "data": {"text": str(text), "length": 128}, "tokenizer": {"file": str(tokenizer)},
        "model": chosen.model, "objective": chosen.objective, "training": training,
    }  # fmt: skip
    return parse_recipe(values, variant)


def compile_kernels(options: argparse.Namespace, variant: str) -> None:
    """Compute a few gradients of a variant, so that its kernels are compiled before time is measured."""
    if is_pretrained(variant):
        with tempfile.TemporaryDirectory() as folder:
            warm_up(pretraining_recipe(options, variant), Path(folder))


def measure(options: argparse.Namespace) -> None:
    """Train each variant for some updates, alone, and write the updates per second of those that have not been measured."""
    from qkv.jobs.train import train

    speeds = read_speeds(options)
    for variant in options.variant:
        if not is_pretrained(variant) or variant in speeds:
            continue
        with tempfile.TemporaryDirectory() as folder:
            recipe = pretraining_recipe(options, variant, MEASURED_UPDATES, validate_every=MEASURED_UPDATES, log_every=20)
            train(recipe, Path(folder) / "run")
            lines = [line for line in read_metrics(Path(folder) / "run") if "seconds" in line]
        laps = [(after["seconds"] - before["seconds"]) / 20 for before, after in pairwise(lines)]
        # An ELECTRA may train its generator alone at first, which is faster.
        alone = getattr(recipe.objective, "generator_alone", 0.0)
        first = round(alone * len(laps))
        speeds[variant] = 1 / (alone * median(laps[:first]) + (1 - alone) * median(laps[first:]))
        write_settings(options.out / SPEEDS, speeds)
    for variant in speeds:
        print(f"{variant}: {speeds[variant]:.1f} updates/s", flush=True)


def median(laps: list[float]) -> float:
    """Return the median: some reports come after kernels were compiled, a graph was recorded or the health was probed."""
    return statistics.median(laps) if laps else 0.0


def read_speeds(options: argparse.Namespace) -> dict[str, float]:
    """Return the updates per second of the variants that have been measured."""
    file = options.out / SPEEDS
    return json.loads(file.read_text()) if file.exists() else {}


def pretrain(options: argparse.Namespace, variant: str) -> None:
    from qkv.jobs.train import train

    if not is_pretrained(variant):
        return
    updates = round(read_speeds(options)[variant] * options.seconds)
    run, recipe = folder_of(options.out, variant), pretraining_recipe(options, variant, updates)
    refuse_other_runs([(run, recipe)])
    if not (run / RESULT).exists():
        train(recipe, run)


def tokenise(options: argparse.Namespace, variant: str) -> None:
    """Tokenise the text that a variant reads, unless it is cached."""
    from qkv.jobs.pretraining import tokenise_files
    from qkv.text.documents import find_document_files
    from qkv.text.tokenizer import Tokenizer

    if not is_pretrained(variant):
        return
    if reads_words(variant):
        make_split_texts(options)
    recipe = pretraining_recipe(options, variant)
    documents, _ = tokenise_files(recipe, find_document_files(recipe.data.text), Tokenizer.load(Path(recipe.tokenizer.file)))
    print(f"{variant}: {len(documents):,} documents, {documents.tokens.tokens:,} tokens", flush=True)


def make_split_texts(options: argparse.Namespace) -> None:
    """Write the text, its words and GLUE's tasks with split punctuation, unless they exist."""
    here = split_texts_folder(options)
    file, settings = here / "settings.json", {"text": options.text, "glue": options.glue, "words": options.words}
    if file.exists():
        refuse_other_settings(file, settings)
        return
    here.mkdir(parents=True, exist_ok=True)
    split_punctuation.write_text(Path(options.text), here / "text.txt", options.words, here / "words.json")
    for task, (columns, kind, _, _) in TASKS.items():
        for part in PARTS:
            split_punctuation.write_examples(
                Path(options.glue) / task / f"{part}.tsv.gz", here / task / f"{part}.tsv", kind, columns
            )
    write_settings(file, settings)  # last: everything else is complete now


# Fine-tuning


def finetune(options: argparse.Namespace, variant: str) -> None:
    """Fine-tune one model on the given tasks, with all seeds."""
    text_to_text = is_pretrained(variant) and VARIANTS[variant].model["kind"] == "t5"
    for task in options.task:
        for seed in range(1, options.seeds + 1):
            (finetune_as_text if text_to_text else finetune_once)(options, variant, task, seed)


def tasks_folder(out: Path, variant: str) -> Path:
    return out / folder_name(variant) / "tasks"


def task_folder(out: Path, variant: str, task: str, seed: int) -> Path:
    return tasks_folder(out, variant) / f"{task}-{seed}"


def finetune_once(options: argparse.Namespace, variant: str, task: str, seed: int) -> None:
    from qkv.jobs.train import train

    run, recipe = task_folder(options.out, variant, task, seed), finetuning_recipe(options, variant, task, seed)
    refuse_other_runs([(run, recipe)])
    train(recipe, run)
    (run / "model.safetensors").unlink(missing_ok=True)


def finetune_as_text(options: argparse.Namespace, variant: str, task: str, seed: int) -> None:
    columns, kind, metric, epochs = TASKS[task]
    settings = {"columns": columns, "kind": kind, "metric": metric, "epochs": epochs, "seed": seed, "dropout": DROPOUT}
    files = {part: Path(options.glue) / task / f"{part}.tsv.gz" for part in PARTS}
    glue_as_text.finetune(
        task_folder(options.out, variant, task, seed), task, files, settings, folder_of(options.out, variant), TUNING
    )


def finetuning_recipe(options: argparse.Namespace, variant: str, task: str, seed: int) -> Any:
    """Return the recipe of a fine-tuning; only the model that it starts from differs."""
    _, kind, metric, epochs = TASKS[task]
    training = {"epochs": epochs, "layer_decay": 0.9, **TUNING}
    values = {
        "seed": seed, **start_of(options, variant), "data": {**examples_of(options, variant, task), "length": 128},
        "objective": {"kind": kind}, "training": training, "metrics": [metric],
    }  # fmt: skip
    return parse_recipe(values, f"{variant}, {task}")


def start_of(options: argparse.Namespace, variant: str) -> dict[str, Any]:
    if variant == NEW:
        return {"model": {**BERT, "dropout": DROPOUT}, "tokenizer": {"file": options.tokenizer}}
    chosen = VARIANTS[variant]
    model = {"kind": chosen.model["kind"], "dropout": DROPOUT, **chosen.finetuned_model}
    return {"start": str(folder_of(options.out, variant)), "model": model}


def examples_of(options: argparse.Namespace, variant: str, task: str) -> dict[str, Any]:
    """Return the files of a task and their columns."""
    if not reads_words(variant):
        return {part: str(Path(options.glue) / task / f"{part}.tsv.gz") for part in PARTS} | TASKS[task][0]
    files = {part: str(split_texts_folder(options) / task / f"{part}.tsv") for part in PARTS}
    return files | {name: name for name in TASKS[task][0]}


# The whole comparison


def prepare(options: argparse.Namespace) -> None:
    """Tokenise the text of all variants in parallel processes."""
    run_parallel([subcommand(__file__, options, "tokenise", [variant]) for variant in options.variant], options.jobs)


def everything(options: argparse.Namespace) -> None:
    """Measure speeds, then pretrain and fine-tune, each in a process of its own; then report."""
    prepare(options)
    unknown = [variant for variant in options.variant if variant not in read_speeds(options)]
    run_parallel([subcommand(__file__, options, "compile", [variant]) for variant in unknown], options.jobs)
    run_parallel([subcommand(__file__, options, "measure", options.variant)], 1)
    run_parallel([subcommand(__file__, options, "pretrain", [variant]) for variant in options.variant], options.parallel)
    pairs = [(variant, task) for variant in options.variant for task in options.task]
    run_parallel([subcommand(__file__, options, "finetune", [variant], task=[task]) for variant, task in pairs], options.jobs)
    report(options)


def report(options: argparse.Namespace) -> None:
    runs = {variant: folder_of(options.out, variant) for variant in options.variant}
    tasks = {variant: tasks_folder(options.out, variant) for variant in options.variant}
    pretrained_models_report.report(
        options.out, runs, tasks, {task: metric for task, (_, _, metric, _) in TASKS.items()}, options.seeds, read_speeds(options)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    whole = {"all": everything, "prepare": prepare, "measure": measure, "report": report}
    each = {"tokenise": tokenise, "compile": compile_kernels, "pretrain": pretrain, "finetune": finetune}
    names = [*VARIANTS, NEW]
    parser.add_argument("action", choices=[*whole, *each])
    parser.add_argument("--variant", choices=names, action="append", metavar="NAME", help="; ".join(names))
    parser.add_argument("--task", choices=list(TASKS), nargs="+", default=list(TASKS), help="tasks to fine-tune on")
    parser.add_argument("--text", required=True, help="text to pretrain on")
    parser.add_argument("--glue", required=True, help="folder with a folder for each task")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--words", type=int, default=100_000, help="vocabulary of ELMo in pretraining")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=1, help="models that are pretrained at a time")
    parser.add_argument("--jobs", type=int, default=7, help="models that are fine-tuned at a time")
    parser.add_argument("--batch-tokens", type=int, default=16384)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=float, default=0.1)
    parser.add_argument("--validate-every", type=int, default=1000)
    options = parser.parse_args()
    options.variant = options.variant or names
    if options.action in whole:
        whole[options.action](options)
        return
    for variant in options.variant:
        each[options.action](options, variant)


if __name__ == "__main__":
    main()
