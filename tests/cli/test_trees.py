"""A tagger with structural positions through the commands: it reads trees, and refuses texts that have none."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkv
from encoder_recipes import SHAPE, TOKENIZER, TRAINING, save_recipe
from qkv.base.errors import DataError
from qkv.text.treebank import TextWithHeads
from workbench import Commands, recipe_values

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
        "model": {"kind": "bert", **SHAPE, "positions": "structural", "max_distance": 3, **model},
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


def look_with_trees(commands: Commands, run: Path, text: str, heads: list[int], folder: Path) -> None:
    given, out = json.dumps({"text": text, "heads": heads}), folder / "numbers.json"
    assert commands.run("look", run, given, "--device", "cpu", "--out", out).code == 0
    view = json.loads(out.read_text(encoding="utf-8"))
    assert view["words"]["source"] == text.split()
    assert view == qkv.look(run, TextWithHeads(text, heads), device="cpu").json()
    other = qkv.look(run, TextWithHeads(text, [0, *[1] * (len(heads) - 1)]), device="cpu").json()
    assert view["maps"][0]["heads"] != other["maps"][0]["heads"]
    says = "the text: not a JSON object with a text and its heads, which this model's structural positions need; give {"
    assert says in commands.run("look", run, text, "--device", "cpu").complaint()


def embeds_with_trees(commands: Commands, run: Path, folder: Path) -> None:
    trees, lines = [("the dog", [2, 0]), ("the dog", [0, 1]), ("Rex", [0])], folder / "lines.jsonl"
    lines.write_text("".join(json.dumps({"text": text, "heads": heads}) + "\n" for text, heads in trees))
    assert commands.run("embed", run, lines, "--device", "cpu", "--out", folder / "a.npy").code == 0
    one, other, _ = found = np.load(folder / "a.npy")
    assert (one != other).any(), "the tree changed nothing"
    texts = [TextWithHeads(*tree) for tree in trees[::-1]]
    np.testing.assert_allclose(qkv.load(run, "cpu").embed(texts), found[::-1], rtol=1e-4, atol=1e-5)


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
    says = "a.txt: lines has no heads, which this model's structural positions need; give conllu or jsonl"
    assert says in commands.run("predict", run, plain, "--device", "cpu").complaint()
    look_with_trees(commands, run, "the dog bit Rex", [2, 3, 0, 3], tmp_path)
    embeds_with_trees(commands, run, tmp_path)
    says = "text 1: not a JSON object with a text and its heads, which this model's structural positions need; give {"
    assert says in commands.run("embed", run, plain, "--device", "cpu").complaint()
    says = "transformers' bert has no model.positions=structural, only learned ones; use qkv itself"
    assert says in commands.run("export", run, "--to", "hf", "--out", tmp_path / "hf").complaint()


def test_data_without_heads(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("the\tDET\ndog\tNOUN\n")
    recipe = save_recipe(tmp_path / "recipe.yaml", values({"train": str(path), "dev": str(path)}))
    complaint = commands.run("train", recipe, "--out", tmp_path / "run").complaint()
    assert "a.conll: conll has no heads, which this model's structural positions need; give conllu or jsonl" in complaint
    assert not (tmp_path / "run").exists()


def test_a_cycle_in_the_treebank(commands: Commands, files: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "bad.conllu"
    path.write_text(treebank(2, 1).replace("\t0\t", "\t4\t", 1))
    recipe = save_recipe(tmp_path / "recipe.yaml", values({**files, "dev": str(path)}))
    complaint = commands.run("train", recipe, "--out", tmp_path / "run").complaint()
    assert "bad.conllu, line 3: the heads form a cycle over the words 3, 4; each must lead to a root, 0" in complaint
    assert not (tmp_path / "run").exists()


# Translators


def write_pairs(path: Path, count: int, seed: int) -> str:
    """Words in any order, with a tree; the target is the word at the root."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        words = rng.sample([*NOUNS, *VERBS, "the", "Rex"], rng.randint(2, 5))
        root = rng.randrange(len(words))
        heads = [0 if word == root else root + 1 for word in range(len(words))]
        lines.append(json.dumps({"source": " ".join(words), "target": words[root], "heads": heads}))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def translation_values(folder: Path) -> dict[str, Any]:
    made = recipe_values(folder)
    made["data"] = {name: write_pairs(folder / f"{name}.jsonl", 60 if name == "train" else 6, 1) for name in made["data"]}
    made["data"]["check"] = {"max_ratio": 100}
    made["model"] |= {"positions": "structural", "max_distance": 2}
    made["training"] |= {"steps": 20}
    return made


def test_a_translator_reads_trees_and_refuses_texts_without(commands: Commands, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = commands.run("train", save_recipe(tmp_path / "recipe.yaml", translation_values(tmp_path)), "--out", run)
    assert done.code == 0, done.err
    assert commands.run("evaluate", run, "--device", "cpu").code == 0
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text": "the cat", "heads": [2, 0]}\n\n{"text": "Rex bit the dog", "heads": [2, 0, 4, 2]}\n')
    said = commands.run("translate", run, lines, "--device", "cpu", "--alignments")
    assert said.code == 0 and len(said.out.splitlines()) == 3 and not said.out.splitlines()[1].strip()

    lines.write_text('{"text": "the cat", "heads": [2, 0]}\nthe cat\n')
    says = "line 2: not a JSON object with a text and its heads, which this model's structural positions need; give {"
    assert says in commands.run("translate", run, lines, "--device", "cpu").complaint()
    lines.write_text('{"text": "the cat", "heads": [2, 3]}\n')
    assert "line 1: word 2 has the head 3" in commands.run("translate", run, lines, "--device", "cpu").complaint()
    translator: Any = qkv.load(run, device="cpu")
    assert len(translator.translate([TextWithHeads("the cat", [2, 0])])) == 1
    with pytest.raises(DataError, match="these texts have no heads"):
        translator.translate(["the cat"])
    with pytest.raises(DataError, match="'the cat': 1 heads for 2 words"):
        translator.translate([TextWithHeads("the cat", [0])])
    look_with_trees(commands, run, "Rex bit the dog", [2, 0, 4, 2], tmp_path)
    says = "rotary; use onnx or qkv itself"
    message = commands.run("export", run, "--to", "ctranslate2", "--out", tmp_path / "out").complaint()
    assert "ctranslate2 has no model.positions=structural, only " in message and says in message


def test_its_copy_in_onnx_reads_trees(commands: Commands, tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    assert commands.run("train", save_recipe(tmp_path / "recipe.yaml", translation_values(tmp_path)), "--out", run).code == 0
    done = commands.run("export", run, "--to", "onnx", "--out", copy)
    assert done.code == 0 and done.err == "", done.err
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text": "the cat", "heads": [2, 0]}\n\n{"text": "Rex bit the dog", "heads": [2, 0, 4, 2]}\n')
    for options in (["--beam", 1], ["--beam", 4, "--n-best", 2, "--scores"], ["--alignments"]):
        own, theirs = (commands.run("translate", folder, lines, *options) for folder in (run, copy))
        assert (theirs.code, theirs.out) == (0, own.out) and own.out.strip(), theirs.err
    assert "chrF" in commands.run("evaluate", copy).out
    lines.write_text("the cat\n")
    says = "line 1: not a JSON object with a text and its heads, which this model's structural positions need; give {"
    assert says in commands.run("translate", copy, lines).complaint()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "a.tsv",
            "the cat\tcat\n",
            "a.tsv: the file has no heads, which this model's structural positions need; give pairs: in JSON Lines",
        ),
        ("a.jsonl", '{"source": "the cat", "target": "x"}', "a.jsonl, line 1: no 'heads', a list of heads, one for each word"),
        ("a.jsonl", '{"source": "a b", "target": "x", "heads": [2, 1]}', "a.jsonl, line 1: the heads form a cycle over the"),
        ("a.jsonl", '["a b", "x"]', "a.jsonl, line 1: no 'heads', a list of heads"),
    ],
)
def test_pairs_without_good_heads(commands: Commands, tmp_path: Path, name: str, content: str, says: str) -> None:
    values = translation_values(tmp_path)
    (tmp_path / name).write_text(content + "\n")
    values["data"]["train"] = str(tmp_path / name)
    recipe = save_recipe(tmp_path / "recipe.yaml", values)
    assert says in commands.run("train", recipe, "--out", tmp_path / "run").complaint()
