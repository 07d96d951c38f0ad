"""UniLM through the command: pretrained, fine-tuned to translate, used."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from workbench import Commands, write_recipe

SHAPE = {"kind": "unilm", "width": 48, "inner": 96, "heads": 4, "layers": 2, "places": 64, "dropout": 0.0}
TOKENIZER = {"shared": {"kind": "words", "vocab": 60, "extra": ["[MASK]"]}}
TRAINING = {
    "steps": 20, "batch_tokens": 200, "learning_rate": 0.01, "save_every": 10, "validate_every": 20, "log_every": 10,
}  # fmt: skip
LINE = "sun rain tree old bird"


def recipe_for(folder: Path, **changes: Any) -> Path:
    recipe = write_recipe(folder, training=TRAINING, tokenizer=TOKENIZER, data={"max_tokens": 20})
    values = {**yaml.safe_load(recipe.read_text()), "model": SHAPE, "objective": {"smoothing": 0.0}}
    for name, new in changes.items():
        values[name] = {**values.get(name, {}), **new} if isinstance(new, dict) else new
    recipe.write_text(yaml.safe_dump(values))
    return recipe


@pytest.fixture(scope="module")
def run(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unilm")
    done = commands.run("train", recipe_for(folder), "--out", folder / "run")
    assert done.code == 0, done.err
    return folder / "run"


def test_it_is_searched_as_any_other(commands: Commands, run: Path) -> None:
    """What it has learned is told in learns/test_unilm.py."""
    alone, among = (
        commands.run("translate", run, "--beam", 4, stdin=text.encode()) for text in (f"{LINE}\n", f"sun\n\n{LINE}\n")
    )
    assert alone.code == 0 and alone.out.strip(), alone.err
    assert among.out.splitlines()[1:] == ["", alone.out.rstrip("\n")]
    best = commands.run("translate", run, "--beam", 4, "--n-best", 3, "--scores", stdin=f"{LINE}\n".encode())
    scores = [float(line.split("\t")[0]) for line in best.out.splitlines()]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    sampled = commands.run("translate", run, "--set", "sampling=true", "--n-best", 2, stdin=f"{LINE}\n".encode())
    assert len(sampled.out.splitlines()) == 2, sampled.err


def test_it_is_scored_as_any_other(commands: Commands, run: Path) -> None:
    done = commands.run("evaluate", run)
    assert done.code == 0 and "chrF" in done.out


def test_it_cannot_be_exported_nor_aligned(commands: Commands, run: Path, tmp_path: Path) -> None:
    told = commands.run("export", run, "--to", "onnx", "--out", tmp_path / "out").complaint()
    assert "a translator of kind unilm has no other format" in told
    told = commands.run("translate", run, "--alignments", stdin=f"{LINE}\n".encode()).complaint()
    assert "has no attention to the source" in told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": {"places": 39}}, "model.places 39 is below twice data.max_tokens"),
        ({"model": {"heads": 5}}, "model.width 48 does not split into 5 heads"),
        ({"tokenizer": {"shared": {"kind": "words", "vocab": 60}}}, "a unilm needs a token [MASK]"),
        (
            {"tokenizer": {"shared": None, "source": {"vocab": 60}, "target": {"vocab": 60}}},
            "one vocabulary; give tokenizer.shared",
        ),
        ({"objective": {"hide": 0}}, "objective.hide"),
    ],
)
def test_mistakes(commands: Commands, tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    complaint = commands.run("train", recipe_for(tmp_path, **changes), "--out", tmp_path / "out").complaint()
    assert told in complaint and complaint.count("\n") <= 1


def test_only_a_unilm_hides_words(commands: Commands, tmp_path: Path) -> None:
    told = commands.run("train", write_recipe(tmp_path), "--set", "objective.hide=0.5", "--out", tmp_path / "out").complaint()
    assert "objective.hide is for model.kind unilm, which is taught by masking, not transformer; leave it out" in told
