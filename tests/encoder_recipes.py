"""Recipes that pretrain and fine-tune tiny encoders in a second, with their text and examples."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

TOPICS = {
    "garden": ["tree", "bird", "Rose", "branch", "leaf", "nest"],
    "harbour": ["ship", "Anchor", "sailor", "wave", "rope", "crane"],
    "kitchen": ["bread", "knife", "Oven", "salt", "plate", "spoon"],
}
VERBS = {"garden": "grows", "harbour": "floats", "kitchen": "burns"}
SIZES = ["small", "old", "red"]
TRAINING: dict[str, Any] = {
    "batch_tokens": 256, "schedule": "linear", "learning_rate": 0.02, "warmup": 0.1, "averaging": "none", "log_every": 1,
    "precision": "float32", "device": "cpu",
}  # fmt: skip
SHAPE: dict[str, Any] = {"width": 16, "feedforward": 32, "heads": 2, "layers": 2, "max_positions": 64}
TOKENIZER: dict[str, Any] = {"kind": "wordpiece", "vocab": 200, "special_tokens": ["[MASK]"]}
ERNIE_TASKS = [{"task": "capital"}, {"task": "document", "first_batch": 5}, {"task": "reorder"}, {"task": "distance"}]
PRETRAINING: dict[str, dict[str, Any]] = {
    "masked": {"model": {"kind": "bert"}, "objective": {"kind": "masked"}},
    "next": {"model": {"kind": "bert"}, "objective": {"kind": "masked", "sentence_task": "next", "units": "word"}},
    "order": {
        "model": {"kind": "albert", "embedding_width": 8},
        "objective": {"kind": "masked", "sentence_task": "order", "units": "ngram"},
    },
    "replaced": {"model": {"kind": "electra", "embedding_width": 16, "generator_size": 0.5}, "objective": {"kind": "replaced"}},
    "tied": {
        "model": {"kind": "electra", "embedding_width": 16, "generator_size": 1.0, "tied_generator": True},
        "objective": {"kind": "replaced", "generator_alone": 0.5},
    },
    "ernie": {
        "data": {"length": 24},  # so that documents are longer than a text, which the distance needs
        "model": {"kind": "ernie", "task_types": 7},
        "objective": {"kind": "ernie", "tasks": ERNIE_TASKS},
    },
    "unilm": {"model": {"kind": "unilm"}, "objective": {"kind": "unilm"}},
    "causal": {"model": {"kind": "gpt"}, "objective": {"kind": "causal"}},
    "permutation": {
        "model": {"kind": "xlnet"},
        "objective": {"kind": "permutation", "units": "word", "sentence_pairs": True, "segment_length": 16},
    },
    "bidirectional": {
        "tokenizer": {"kind": "words", "vocab": 40},
        "model": {
            "kind": "elmo",
            "lstm_width": 32,
            "character_width": 6,
            "filters": [[1, 8], [3, 12]],
            "highway_layers": 1,
            "max_characters": 12,
        },
        "objective": {"kind": "bidirectional"},
    },
}


def sentence(topic: str, rng: random.Random) -> str:
    return f"The {rng.choice(SIZES)} {rng.choice(TOPICS[topic])} {VERBS[topic]}."


def write_text(path: Path, documents: int = 60, seed: int = 1) -> Path:
    """Write documents about one topic each, separated by blank lines."""
    rng = random.Random(seed)
    made = []
    for _ in range(documents):
        topic = rng.choice(list(TOPICS))
        made.append("\n".join(sentence(topic, rng) for _ in range(rng.randint(4, 9))))
    path.write_text("\n\n".join(made) + "\n")
    return path


def pretraining_values(kind: str, text: Path) -> dict[str, Any]:
    """Return one of PRETRAINING as a complete recipe."""
    own = PRETRAINING[kind]
    return {
        "data": {"text": str(text), "length": 32, "held_out": 0.25, **own.get("data", {})},
        "tokenizer": own.get("tokenizer", TOKENIZER),
        "model": {**({"width": 16, "layers": 2} if kind == "bidirectional" else SHAPE), **own["model"]},
        "objective": own["objective"],
        "training": {**TRAINING, "steps": 20, "validate_every": 10, "save_every": 5},
    }


# Examples: each writer makes train, dev and test files for one kind of task


def _texts(rng: random.Random, count: int) -> str:
    """Texts with their topic as label."""
    lines = [(sentence(topic, rng), topic) for topic in rng.choices(list(TOPICS), k=count)]
    return "text\tlabel\n" + "".join(f"{text}\t{topic}\n" for text, topic in lines)


def _pairs(rng: random.Random, count: int) -> str:
    """Pairs of texts, labelled by whether their topic is the same."""
    lines = ["first,second,same"]
    for number in range(count):
        topic = rng.choice(list(TOPICS))
        other = topic if number % 2 else rng.choice([name for name in TOPICS if name != topic])
        lines.append(f'"{sentence(topic, rng)}","{sentence(other, rng)}",{number % 2}')
    return "\n".join(lines) + "\n"


def _numbers(rng: random.Random, count: int) -> str:
    """Texts with half the number of their sentences as label."""
    many = [rng.randint(1, 3) for _ in range(count)]
    records = [{"text": " ".join(sentence("garden", rng) for _ in range(n)), "label": n / 2} for n in many]
    return "".join(f"{json.dumps(record)}\n" for record in records)


def _tagged(rng: random.Random, count: int) -> str:
    """Sentences in which a size and the noun after it are a name."""
    made = []
    for topic in rng.choices(list(TOPICS), k=count):
        the, size, thing, verb = sentence(topic, rng).rstrip(".").split()
        made.append(f"{the}\tO\n{size}\tB-{topic}\n{thing}\tI-{topic}\n{verb}\tO\n")
    return "\n".join(made)


def _questions(rng: random.Random, count: int) -> str:
    """Questions about three sentences: what grows?"""
    paragraphs = []
    for number in range(count):
        sentences = [sentence(topic, rng) for topic in rng.sample(list(TOPICS), k=3)]
        context = " ".join(sentences)
        answer = next(text for text in sentences if "grows" in text).removesuffix(" grows.")
        found = {"answer_start": context.index(answer), "text": answer}
        question = {"id": f"q{number}", "question": "What grows?", "answers": [found]}
        paragraphs.append({"context": context, "qas": [question]})
    return json.dumps({"data": [{"title": "made up", "paragraphs": paragraphs}]})


WRITERS: dict[str, tuple[str, Callable[[random.Random, int], str]]] = {
    "classification": ("tsv", _texts),
    "pair": ("csv", _pairs),
    "regression": ("jsonl", _numbers),
    "tagging": ("conll", _tagged),
    "answering": ("json", _questions),
}
COLUMNS = {"pair": {"text": "first", "pair": "second", "label": "same"}}


def write_examples(folder: Path, kind: str, count: int = 120, seed: int = 1) -> dict[str, str]:
    """Write train, dev and test examples for one kind of WRITERS, and return their paths."""
    ending, writer = WRITERS[kind]
    rng = random.Random(seed)
    paths = {}
    for name, many in {"train": count, "dev": 24, "test": 24}.items():
        path = folder / f"{kind}-{name}.{ending}"
        path.write_text(writer(rng, many))
        paths[name] = str(path)
    return paths


def finetuning_values(kind: str, files: dict[str, str], start: Path | None = None) -> dict[str, Any]:
    """Return a recipe for one kind of WRITERS that starts from a run, or from new weights."""
    new = {"model": {"kind": "bert", **SHAPE}, "tokenizer": TOKENIZER}
    return {
        **(new if start is None else {"start": str(start)}),
        "data": {**files, "length": 48, **COLUMNS.get(kind, {})},
        "objective": {"kind": "classification" if kind == "pair" else kind},
        "training": {**TRAINING, "epochs": 6},
    }


def save_recipe(path: Path, values: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(values))
    return path
