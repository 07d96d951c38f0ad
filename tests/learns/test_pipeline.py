"""From a file of pairs to a translator, with the two calls that a user makes."""

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

import qkv
from qkv.recipes import load_recipe

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
RECIPE = {
    "seed": 1,
    "tokenizer": {"shared": {"kind": "bpe", "vocab": 80}},
    "model": {"width": 48, "feedforward": 96, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "norm": "pre",
    "dropout": 0.0},
    "training": {
        "steps": 240, "batch_tokens": 1024, "schedule": "cosine", "learning_rate": 0.006, "warmup": 40,
        "validate_every": 120, "save_every": 40, "precision": "float32", "device": "cpu",
    },
    "score_dev": 20,
}  # fmt: skip


def spell(digits: str) -> str:
    return " ".join(NAMES[int(digit)] for digit in digits.split())


def write_pairs(path: Path, texts: Iterable[str]) -> None:
    path.write_text("".join(f"{text}\t{spell(text)}\n" for text in texts))


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Write numbers and their spelling, with no number in two of train, dev and test, and a recipe for them."""
    rng = random.Random(1)
    texts: dict[str, None] = {}
    while len(texts) < 3100:
        texts[" ".join(str(rng.randrange(10)) for _ in range(rng.randint(4, 8)))] = None
    every = list(texts)
    files = {"train": every[:3000], "dev": every[3000:3050], "test": every[3050:]}
    for name, part in files.items():
        write_pairs(tmp_path / f"{name}.tsv", part)
    data = {name: str(tmp_path / f"{name}.tsv") for name in files}
    path = tmp_path / "numbers.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, "data": data}))
    return path


def test_a_file_of_pairs_becomes_a_translator(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert qkv.train(load_recipe(str(recipe), []), out) == out
    scores = {score["name"]: score["value"] for score in json.loads((out / "result.json").read_text())["scores"]}
    assert scores["bleu"] > 90
    assert scores["chrf"] > 90
    translator = qkv.load(out)
    texts = ["4 2 0 9", "", "7 7 7 1 3", "1 2 3 4 5 6 7 8"]
    assert translator.translate(texts) == [spell(text) for text in texts]
    assert translator.translate(texts, beam=1) == [spell(text) for text in texts]
    assert [len(outputs) for outputs in translator.n_best(texts, n_best=3)] == [3, 1, 3, 3]
    [[best]] = translator.n_best(["4 2 0 9"])
    links = translator.alignment(best)
    assert [target for _, target in links] == [0, 1, 2, 3]
    assert {source for source, _ in links} <= {0, 1, 2, 3}
