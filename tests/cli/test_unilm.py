"""UniLM through the command: pretrained, fine-tuned to translate, used."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from encoder_recipes import pretraining_values, save_recipe, write_text
from qkv.inference.load import load
from qkv.inference.translator import Translator
from qkv.training.checkpoints import load_weights
from workbench import Commands, write_recipe

SHAPE = {"kind": "unilm", "width": 48, "feedforward": 96, "heads": 4, "layers": 2, "max_positions": 64, "dropout": 0.0}
TOKENIZER = {"shared": {"kind": "words", "vocab": 60, "special_tokens": ["[MASK]"]}}
TRAINING = {
    "steps": 20, "batch_tokens": 200, "learning_rate": 0.01, "save_every": 10, "validate_every": 20, "log_every": 10,
}  # fmt: skip
LINE = "sun rain tree old bird"


def recipe_for(folder: Path, **changes: Any) -> Path:
    recipe = write_recipe(folder, training=TRAINING, tokenizer=TOKENIZER, data={"max_tokens": 20})
    values = {**yaml.safe_load(recipe.read_text()), "model": SHAPE, "objective": {"kind": "masked-translation", "smoothing": 0.0}}
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
    """learns/test_unilm.py tests how well it translates."""
    single, among = (
        commands.run("translate", run, "--beam", 4, stdin=text.encode()) for text in (f"{LINE}\n", f"sun\n\n{LINE}\n")
    )
    assert single.code == 0 and single.out.strip(), single.err
    assert among.out.splitlines()[1:] == ["", single.out.rstrip("\n")]
    best = commands.run("translate", run, "--beam", 4, "--n-best", 3, "--scores", stdin=f"{LINE}\n".encode())
    scores = [float(line.split("\t")[0]) for line in best.out.splitlines()]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    sampled = commands.run("translate", run, "--set", "sampling=true", "--n-best", 2, stdin=f"{LINE}\n".encode())
    assert len(sampled.out.splitlines()) == 2, sampled.err


def test_its_sources_are_framed_as_texts_in_pretraining(run: Path) -> None:
    translator = load(run, "cpu")
    assert isinstance(translator, Translator)
    (part,) = translator.segmenter.cut(LINE)
    ids = part.ids
    tokenizer = translator.tokenizers.source
    assert ids == [tokenizer.bos, *tokenizer.encode(LINE), tokenizer.eos]
    longest = [
        [part.ids for part in translator.segmenter.cut("sun " * count)] for count in (18, 19)
    ]  # of 20, of which the frame takes two
    assert [len(parts) for parts in longest] == [1, 2]


def test_it_is_scored_as_any_other(commands: Commands, run: Path) -> None:
    done = commands.run("evaluate", run)
    assert done.code == 0 and "chrF" in done.out


def test_it_cannot_be_exported_nor_aligned(commands: Commands, run: Path, tmp_path: Path) -> None:
    message = commands.run("export", run, "--to", "onnx", "--out", tmp_path / "out").complaint()
    assert "onnx has no mapping for models of kind unilm; use qkv itself" in message
    message = commands.run("translate", run, "--alignments", stdin=f"{LINE}\n".encode()).complaint()
    assert "has no attention to the source" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"max_positions": 39}}, "model.max_positions 39 is below twice data.max_tokens"),
        ({"model": {"heads": 5}}, "model.width 48 does not split into 5 heads"),
        (
            {"tokenizer": {"shared": {"kind": "words", "vocab": 60}}},
            "masking needs a token [MASK]; set tokenizer.shared.special_tokens",
        ),
        (
            {"tokenizer": {"shared": None, "source": {"vocab": 60}, "target": {"vocab": 60}}},
            "one vocabulary; give tokenizer.shared",
        ),
        ({"objective": {"kind": "masked-translation", "rate": 0}}, "objective.rate"),
    ],
)
def test_mistakes(commands: Commands, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    complaint = commands.run("train", recipe_for(tmp_path, **changes), "--out", tmp_path / "out").complaint()
    assert message in complaint and complaint.count("\n") <= 1


def test_only_a_unilm_hides_words(commands: Commands, tmp_path: Path) -> None:
    message = commands.run(
        "train", write_recipe(tmp_path), "--set", "objective.kind=masked-translation", "--out", tmp_path / "out"
    ).complaint()
    assert "for model.kind=unilm begin with the recipe translate-unilm" in message


@pytest.fixture(scope="module")
def pretrained(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A UniLM of raw text."""
    folder = tmp_path_factory.mktemp("pretrained")
    values = pretraining_values("unilm", write_text(folder / "text.txt"))
    values["training"]["steps"] = 5
    done = commands.run("train", save_recipe(folder / "recipe.yaml", values), "--out", folder / "run")
    assert done.code == 0, done.err
    return folder / "run"


def started(folder: Path, start: Path, **changes: Any) -> Path:
    recipe = recipe_for(folder, model={"kind": "unilm", "dropout": 0.05}, start=str(start), **changes)
    values = yaml.safe_load(recipe.read_text())
    values["model"] = {
        name: value for name, value in values["model"].items() if name in ("kind", "dropout", *changes.get("model", ()))
    }
    del values["tokenizer"]
    return save_recipe(recipe, values)


def test_a_translator_starts_from_a_pretrained_one(commands: Commands, pretrained: Path, tmp_path: Path) -> None:
    recipe = started(tmp_path, pretrained, training={"steps": 1, "learning_rate": 1e-9, "warmup": 1})
    done = commands.run("train", recipe, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    before, after = (load_weights(run / "model.safetensors") for run in (pretrained, tmp_path / "run"))
    assert after.keys() == {name for name in before if not name.startswith(("heads.pooler", "heads.sentence_task"))}
    assert all(torch.allclose(before[name], weight, atol=1e-6) for name, weight in after.items())
    assert (tmp_path / "run" / "tokenizer.json").read_text() == (pretrained / "tokenizer.json").read_text()
    assert commands.run("translate", tmp_path / "run", stdin=b"The old tree.\n").code == 0


def test_what_it_cannot_start_from(commands: Commands, pretrained: Path, tmp_path: Path) -> None:
    recipe = started(tmp_path, pretrained, data={"max_tokens": 33})
    message = commands.run("train", recipe, "--out", tmp_path / "out").complaint()
    assert "model.max_positions 64 is below twice data.max_tokens" in message
    values = pretraining_values("masked", write_text(tmp_path / "text.txt"))
    values["training"]["steps"] = 2
    assert commands.run("train", save_recipe(tmp_path / "bert.yaml", values), "--out", tmp_path / "bert").code == 0
    message = commands.run("train", started(tmp_path, tmp_path / "bert"), "--out", tmp_path / "out").complaint()
    assert "is of model.kind bert, and model.kind unilm starts from a run of its own kind" in message
