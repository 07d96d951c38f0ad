"""Train small models on 1, 2, 3 and 4 processes and in micro-batches, with dropout and drawn masks, and compare their losses.

    python benchmarks/process_counts.py [--steps 30] [--model bert ...] [--processes 2 3 4] [--out runs/process-counts]

Everything runs on the CPU: several processes are started by torchrun and exchange gradients over gloo. Prints a table: the loss
of the first and the last update of one process, and for every other way of computing the same batches the largest difference
of a loss from it over all updates, as a share of the loss, and the largest difference of a final weight. Key biases are left
out of the weights: their gradient is only rounding, which Adam scales up. Finished runs are not trained again.
"""

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file

from qkv.training.log import read_metrics

NOUNS = ["tree", "bird", "rose", "ship", "anchor", "sailor", "wave", "bread", "knife", "oven", "salt", "plate"]
VERBS = ["grows", "floats", "burns", "sings", "falls", "waits"]
SIZES = ["small", "old", "red", "green", "tall"]
SHAPE = {"width": 64, "feedforward": 128, "heads": 4}
ENCODER = {**SHAPE, "layers": 2, "max_positions": 64}
PAIRS = {**SHAPE, "encoder_layers": 2, "decoder_layers": 2}
ELMO = {"width": 64, "lstm_width": 96, "character_width": 8, "filters": [[1, 16], [3, 32]], "max_characters": 12}
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # model and objective
    "transformer": (PAIRS, {"kind": "translation"}),
    "transformer, gelu": ({**PAIRS, "activation": "gelu"}, {"kind": "translation"}),
    "rnn": ({"kind": "rnn", "width": 64, "embedding_width": 64}, {"kind": "translation"}),
    "bert": ({"kind": "bert", **ENCODER}, {"kind": "masked", "sentence_task": "next", "units": "word"}),
    "albert": (
        {"kind": "albert", **ENCODER, "embedding_width": 32, "dropout": 0.1},
        {"kind": "masked", "sentence_task": "order"},
    ),
    "electra": ({"kind": "electra", **ENCODER, "embedding_width": 64}, {"kind": "replaced"}),
    "ernie": ({"kind": "ernie", **ENCODER, "task_types": 7}, {"kind": "ernie", "tasks": [{"task": "capital"}]}),
    "gpt": ({"kind": "gpt", **ENCODER}, {"kind": "causal"}),
    "t5": ({"kind": "t5", **PAIRS, "head_width": 16}, {"kind": "spans"}),
    "unilm": ({"kind": "unilm", **ENCODER}, {"kind": "unilm"}),
    "xlnet": ({"kind": "xlnet", **ENCODER}, {"kind": "permutation", "units": "word", "segment_length": 16}),
    "elmo": ({"kind": "elmo", **ELMO}, {"kind": "bidirectional"}),
}
TOKENIZER = {"kind": "wordpiece", "vocab": 200, "special_tokens": ["[MASK]"]}


def write_files(folder: Path) -> None:
    """Write documents of made-up sentences, and pairs of a sentence and the same backwards."""
    rng = random.Random(1)

    def sentence() -> str:
        return f"The {rng.choice(SIZES)} {rng.choice(NOUNS)} {rng.choice(VERBS)} by the {rng.choice(SIZES)} {rng.choice(NOUNS)}."

    documents = ["\n".join(sentence() for _ in range(rng.randint(4, 9))) for _ in range(300)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n")
    for name, count in (("train.tsv", 2000), ("dev.tsv", 50)):
        lines = [sentence() for _ in range(count)]
        (folder / name).write_text("".join(f"{line}\t{' '.join(reversed(line.split()))}\n" for line in lines))


def recipe(name: str, folder: Path, steps: int) -> dict[str, Any]:
    """Return a recipe; 500 tokens are about 16 rows, which three processes cannot share evenly."""
    model, objective = MODELS[name]
    training = {
        "steps": steps, "batch_tokens": 500, "learning_rate": 0.001, "warmup": 10, "validate_every": steps, "save_every": steps,
        "log_every": 1, "averaging": "none", "precision": "float32", "device": "cpu",
    }  # fmt: skip
    if objective["kind"] == "translation":
        return {
            "data": {"train": str(folder / "train.tsv"), "dev": str(folder / "dev.tsv")},
            "tokenizer": {"shared": {"kind": "bpe", "vocab": 200}},
            "model": model, "objective": objective, "training": {**training, "row_width": 32}, "score_dev": 4,
        }  # fmt: skip
    tokenizer: dict[str, Any] = {"kind": "words", "vocab": 60} if name == "elmo" else TOKENIZER
    if name == "t5":
        tokenizer = {**tokenizer, "sentinels": 20}
    data = {"text": str(folder / "text.txt"), "length": 32, "held_out": 0.1}
    return {"data": data, "tokenizer": tokenizer, "model": model, "objective": objective, "training": training}


def train(recipe: Path, run: Path, processes: int, micro_batches: int) -> None:
    """Train a recipe, unless the run is there."""
    if (run / "result.json").exists():
        return
    options = ["train", str(recipe), "--out", str(run), "--set", f"training.accumulate={micro_batches}"]
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"] if processes > 1 else []
    command = [sys.executable, "-m", *torchrun, "qkv", *options]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "QKV_CACHE": str(recipe.parent / "cache")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(run) if "loss" in line]


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Return the final weights without key biases, which change no output: a third of `qkv` biases, half of `kv` ones."""
    found = load_file(run / "model.safetensors")
    for name, tensor in found.items():
        stacked = {"qkv": 3, "kv": 2}.get(name.split(".")[-2] if "." in name else "", 0) if name.endswith("bias") else 0
        if stacked:
            tensor.chunk(stacked)[stacked - 2].zero_()
    return found


def compare(one: Path, other: Path) -> tuple[float, float]:
    """Return the largest relative difference of a loss, and the largest difference of a weight."""
    first, second = losses(one), losses(other)
    apart = max(abs(a - b) / abs(a) for a, b in zip(first, second, strict=True))
    mine, theirs = weights(one), weights(other)
    return apart, max(float((mine[name].float() - theirs[name].float()).abs().max()) for name in mine)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[3])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("runs/process-counts"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    write_files(options.out)
    ways = {f"{count} processes": (count, 1) for count in options.processes}
    ways |= {f"{count} micro-batches": (1, count) for count in options.micro_batches}
    print(f"| model | dropout | loss, update 1 and {options.steps} | " + " | ".join(ways) + " |")
    print("|---" * (3 + len(ways)) + "|")
    for name in options.model:
        file = options.out / f"{name.replace(', ', '-')}.yaml"
        file.write_text(yaml.safe_dump(recipe(name, options.out.resolve(), options.steps)))
        runs = {way: options.out / f"{file.stem}-{'-'.join(way.split())}" for way in ("1 process", *ways)}
        for way, run in runs.items():
            train(file, run, *ways.get(way, (1, 1)))
        one = runs.pop("1 process")
        first, *_, last = losses(one)
        cells = ["{:.0e}, {:.0e}".format(*compare(one, run)) for run in runs.values()]
        rate = json.loads((one / "config.json").read_text())["model"]["dropout"]
        print(f"| {name} | {rate:g} | {first:.4f}, {last:.4f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
