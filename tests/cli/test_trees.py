"""A tagger with structural positions through the commands: it reads trees, and refuses texts that have none."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from encoder_recipes import SHAPE, TOKENIZER, TRAINING, save_recipe
from workbench import Commands

NOUNS, VERBS = ["cat", "dog", "fox"], ["saw", "bit", "fed"]


def treebank(sentences: int, seed: int) -> str:
    rng = random.Random(seed)
    made = []
    for _ in range(sentences):
        words = [("the", "DET", 2), (rng.choice(NOUNS), "NOUN", 3), (rng.choice(VERBS), "VERB", 0), ("Rex", "PROPN", 3)]
        rows = [f"{n}\t{word}\t_\t{tag}\t_\t_\t{head}\t_\t_\t_" for n, (word, tag, head) in enumerate(words, 1)]
        made.append("\n".join(rows))
    return "\n\n".join(made) + "\n"


def values(files: dict[str, str], **model: Any) -> dict[str, Any]:
    return {
        "data": {**files, "length": 32},
        "model": {"kind": "bert", **SHAPE, "positions": "structural", "distance": 3, **model},
        "tokenizer": TOKENIZER,
        "objective": {"kind": "tagging"},
        "metrics": ["tag_accuracy"],
        "training": {**TRAINING, "epochs": 8},
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("trees")
    paths = {name: folder / f"{name}.conllu" for name in ("train", "dev")}
    for seed, path in enumerate(paths.values()):
        path.write_text(treebank(60 if not seed else 10, seed))
    return {name: str(path) for name, path in paths.items()}


def test_a_tagger_reads_trees_and_refuses_texts_without(commands: Commands, files: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    recipe = save_recipe(tmp_path / "recipe.yaml", values(files))
    assert commands.run("train", recipe, "--out", run).code == 0
    assert json.loads((run / "result.json").read_text())["scores"]["tag_accuracy"] > 0.9
    assert commands.run("evaluate", run, "--data", files["dev"], "--device", "cpu").code == 0

    examples = tmp_path / "a.jsonl"
    examples.write_text('{"words": ["the", "dog", "bit", "Rex"], "heads": [2, 3, 0, 3]}\n')
    said = commands.run("predict", run, examples, "--device", "cpu")
    assert said.out.splitlines() == ["the\tDET", "dog\tNOUN", "bit\tVERB", "Rex\tPROPN", ""]

    plain = tmp_path / "a.txt"
    plain.write_text("the\ndog\n")
    says = "a.txt: conll holds no heads, and this model's positions are structural; give conllu or jsonl"
    assert says in commands.run("predict", run, plain, "--device", "cpu").complaint()
    says = "this model's positions are structural: it reads texts with heads, and these have none"
    assert says in commands.run("embed", run, plain, "--device", "cpu").complaint()
    says = "model.positions=structural cannot be written for transformers, whose bert has learned ones alone"
    assert says in commands.run("export", run, "--to", "hf", "--out", tmp_path / "hf").complaint()


def test_data_without_heads(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("the\tDET\ndog\tNOUN\n")
    recipe = save_recipe(tmp_path / "recipe.yaml", values({"train": str(path), "dev": str(path)}))
    complaint = commands.run("train", recipe, "--out", tmp_path / "run").complaint()
    assert "a.conll: conll holds no heads, and this model's positions are structural; give conllu or jsonl" in complaint


def test_a_circle_in_the_treebank(commands: Commands, files: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "bad.conllu"
    path.write_text(treebank(2, 1).replace("\t0\t", "\t4\t", 1))
    recipe = save_recipe(tmp_path / "recipe.yaml", values({**files, "dev": str(path)}))
    complaint = commands.run("train", recipe, "--out", tmp_path / "run").complaint()
    assert "bad.conllu, line 3: the heads lead in a circle, over the words 3, 4; all must lead to a root, 0" in complaint
