"""qkv train, embed, export and import for an XLNet, and its fine-tuning."""

from pathlib import Path

import numpy as np
import pytest

from encoder_recipes import finetuning_values, pretraining_values, save_recipe, write_examples, write_text
from workbench import Commands


@pytest.fixture(scope="module")
def xlnet(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An XLNet that knows a text a little; tests must not change it."""
    folder = tmp_path_factory.mktemp("xlnet")
    values = pretraining_values("permutation", write_text(folder / "text.txt"))
    values["tokenizer"] = {"kind": "unigram", "vocab": 120}  # it needs no [MASK]
    values["training"] |= {"steps": 60, "validate_every": 60, "save_every": 60}
    done = commands.run("train", save_recipe(folder / "xlnet.yaml", values), "--out", folder / "run")
    assert done.code == 0, done.err
    return folder / "run"


@pytest.mark.parametrize(("kind", "metric"), [("pair", "accuracy"), ("tagging", "f1"), ("answering", "exact")])
def test_it_can_be_fine_tuned(commands: Commands, xlnet: Path, tmp_path: Path, kind: str, metric: str) -> None:
    files = write_examples(tmp_path, kind)
    values = finetuning_values(kind, files, xlnet)
    values["training"] |= {"epochs": 1}
    if kind == "answering":
        values["objective"]["all_answerable"] = False  # the summary token decides, which attends to everything
    done = commands.run("train", save_recipe(tmp_path / "recipe.yaml", values), "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert metric in commands.run("evaluate", tmp_path / "run").out
    assert commands.run("export", tmp_path / "run", "--to", "hf", "--out", tmp_path / "hf").code == 0
    assert commands.run("import", tmp_path / "hf", "--out", tmp_path / "back").code == 0


def test_vectors_there_and_back(commands: Commands, xlnet: Path, tmp_path: Path) -> None:
    assert commands.run("export", xlnet, "--to", "hf", "--out", tmp_path / "hf").code == 0
    done = commands.run("import", tmp_path / "hf", "--out", tmp_path / "back")
    assert done.code == 0 and "xlnet, " in done.out and "heads: language_model" in done.out, done.err
    text = b"The old tree grows.\n" + b"The red ship floats. " * 20 + b"\n"  # longer than any it was trained on
    for more in ([], ["--pooling", "cls"], ["--layer", "1"]):
        one, other = (commands.run("embed", run, "-", *more, stdin=text) for run in (xlnet, tmp_path / "back"))
        assert one.code == 0, one.err
        vectors = [np.loadtxt(done.out.splitlines(), delimiter="\t") for done in (one, other)]
        assert vectors[0].shape == (2, 16)
        np.testing.assert_allclose(*vectors, atol=1e-4)


def test_a_word_is_guessed_without_a_mask(commands: Commands, xlnet: Path) -> None:
    done = commands.run("fill", xlnet, "The old [MASK] grows, the [MASK] ship.", "--top", 3)
    assert done.code == 0, done.err
    found = [line.split("\t") for line in done.out.splitlines()]
    assert [number for number, *_ in found] == ["1"] * 3 + ["2"] * 3
    assert all(0 < float(chance) < 1 and word for _, chance, word in found)


def test_what_it_does_not_do(commands: Commands, xlnet: Path, tmp_path: Path) -> None:
    message = commands.run("generate", xlnet, "The").complaint()
    assert "is an encoder (xlnet, trained for permutation), not a language model; use qkv fill" in message
    other = commands.run("train", "bert-mini", "--set", "data.text=x.txt", "--set", f"start={xlnet}", "--out", tmp_path / "run")
    assert "is of model.kind xlnet, and model.kind bert starts from a run of its own kind" in other.complaint()
