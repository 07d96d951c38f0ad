"""Scores at the end of training are those of `qkv evaluate`, whatever the precision of training."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from encoder_recipes import finetuning_values, pretraining_values, save_recipe, write_examples, write_text
from workbench import Commands, write_recipe


def scores_at_the_end(run: Path) -> dict[str, float]:
    scores: Any = json.loads((run / "result.json").read_text())["scores"]
    if isinstance(scores, list):  # a translator's, with confidence intervals
        scores = {score["name"]: score["value"] for score in scores}
    return {name.removeprefix("dev_"): value for name, value in scores.items()}


def evaluated(commands: Commands, run: Path, *options: object) -> dict[str, float]:
    done = commands.run("evaluate", run, "--json", *options, "--device", "cpu")
    assert done.code == 0, done.err
    scores: Any = json.loads(done.out)["scores"]
    return {score["name"]: score["value"] for score in scores} if isinstance(scores, list) else scores


def trained(commands: Commands, folder: Path, values: dict[str, Any]) -> Path:
    """Train a recipe in bf16."""
    values["training"] |= {"precision": "bf16"}
    done = commands.run("train", save_recipe(folder / "recipe.yaml", values), "--out", folder / "run")
    assert done.code == 0, done.err
    return folder / "run"


def assert_equal(found: dict[str, float], wanted: dict[str, float]) -> None:
    """All scores that both have are the same, but for the order of sums."""
    shared = found.keys() & wanted.keys()
    assert shared and {name: found[name] for name in shared} == pytest.approx({name: wanted[name] for name in shared}, rel=1e-5)


@pytest.mark.parametrize("kind", ["classification", "regression", "tagging"])
def test_a_fine_tuned_encoder(commands: Commands, kind: str, tmp_path: Path) -> None:
    values = finetuning_values(kind, write_examples(tmp_path, kind), None)
    run = trained(commands, tmp_path, values)
    assert_equal(scores_at_the_end(run), evaluated(commands, run))


@pytest.mark.parametrize("kind", ["causal", "bidirectional"])
def test_a_language_model(commands: Commands, kind: str, tmp_path: Path) -> None:
    run = trained(commands, tmp_path, pretraining_values(kind, write_text(tmp_path / "text.txt")))
    found = evaluated(commands, run)
    assert_equal(scores_at_the_end(run), found)
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["training"] |= {"precision": "float32", "device": "cuda"}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert_equal(found, evaluated(commands, run))  # precision and device of training do not matter


def test_a_translator(commands: Commands, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, training={"precision": "bf16", "steps": 40})
    assert commands.run("train", recipe, "--out", tmp_path / "run").code == 0
    assert_equal(scores_at_the_end(tmp_path / "run"), evaluated(commands, tmp_path / "run", "--metrics", "chrf"))
