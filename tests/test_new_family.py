"""A family from outside the package: it trains, resumes, loads, is evaluated and used, and what it cannot do is refused
clearly.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import averaging_encoder
import qkv
from encoder_recipes import finetuning_values, pretraining_values, write_examples, write_text
from qkv.base.config import read_yaml
from qkv.base.errors import CheckpointError, ConfigError, QkvError
from qkv.models import FAMILIES
from qkv.training.checkpoints import folders, load_weights


@pytest.fixture(autouse=True)
def family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "averaging", averaging_encoder.FAMILY)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A pretrained run and a classifier that starts from it."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAMILIES, "averaging", averaging_encoder.FAMILY)
        pretrained = qkv.train(recipe_of(folder), out=folder / "pretrained")
        values = finetuning_values("classification", write_examples(folder, "classification"), pretrained)
        yield pretrained, qkv.train(values, out=folder / "classifier")


def recipe_of(folder: Path) -> dict[str, Any]:
    values = pretraining_values("masked", write_text(folder / "text.txt"))
    return {**values, "model": {"kind": "averaging", "size": "tiny"}}


def test_it_is_loaded_and_used(runs: tuple[Path, Path]) -> None:
    encoder: Any = qkv.load(runs[0], "cpu")
    assert encoder.loads_as == "encoder" and "averaging" in repr(encoder)
    assert encoder.embed(["the old tree", "a house"]).shape == (2, 32)
    assert len(encoder.fill(["The [MASK] tree."], top=3)[0][0]) == 3
    likely, unlikely = encoder.score(["The old tree grows.", "grows The tree old ."])
    assert likely < 0 and unlikely < 0


def test_it_is_fine_tuned_and_evaluated(runs: tuple[Path, Path]) -> None:
    classifier: Any = qkv.load(runs[1], "cpu")
    predictions = classifier.predict(["The small tree grows."])
    assert len(predictions) == 1 and predictions[0].label in classifier.run.network.label_names
    before, after = (load_weights(run / "model.safetensors") for run in runs)
    name = "encoder.embedding.token_embedding.weight"
    assert before[name].shape == after[name].shape


def test_packing_changes_nothing() -> None:
    torch.manual_seed(1)
    from qkv.base.rows import Rows, padded_rows

    network = averaging_encoder.AveragingNetwork(averaging_encoder.AveragingConfig(width=8, feedforward=16), 30).eval()
    first, second = torch.tensor([[5, 6, 7]]), torch.tensor([[8, 9]])
    alone = [network(padded_rows(ids, torch.ones_like(ids).bool()))[0] for ids in (first, second)]
    text, position = torch.tensor([[1, 1, 1, 2, 2, 0]]), torch.tensor([[0, 1, 2, 0, 1, 0]])
    packed = network(Rows(torch.tensor([[5, 6, 7, 8, 9, 0]]), text, position))[0, :5]
    torch.testing.assert_close(packed, torch.cat(alone))


def test_a_resumed_run_is_the_uninterrupted_one(runs: tuple[Path, Path], tmp_path: Path) -> None:
    values = recipe_of(tmp_path)
    values["training"] |= {"schedule": "inverse-sqrt", "warmup": 3}  # learning rates that do not depend on the last step
    values["training"]["keep_checkpoints"] = True
    qkv.train(values, out=tmp_path / "run", settings={"training.steps": 10})
    assert folders(tmp_path / "run")
    resumed = qkv.train(values, out=tmp_path / "run")
    whole = load_weights(qkv.train(values, out=tmp_path / "whole") / "model.safetensors")
    for name, weight in load_weights(resumed / "model.safetensors").items():
        assert torch.equal(weight, whole[name]), name


def test_what_it_cannot_do_is_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    from qkv.interop.export import export

    for to in ("hf", "onnx", "ctranslate2"):
        with pytest.raises(ConfigError, match="averaging") as refused:
            export(runs[0], to, tmp_path / to)
        assert "\n" not in str(refused.value) and not (tmp_path / to).exists()
    with pytest.raises(ConfigError, match="model.kind averaging learns by masked".replace(".", r"\.")):
        qkv.train({**recipe_of(tmp_path), "objective": {"kind": "causal"}}, out=tmp_path / "gpt")


@pytest.mark.parametrize(
    ("recipe", "settings", "complaint"),
    [
        (5, None, "a recipe is a name, a YAML file or a dict, got int"),
        ("bert-mini", 5, "settings must be a dict"),
        ("bert-mini", {"data": {"text": {"a.txt"}}}, "settings: data.text is or has a set; give a text, a number, a path"),
        ("bert-mini", {"data.text": Path("none.txt")}, "none.txt: no such file"),
        ("bert-mimi", None, "no recipe 'bert-mimi'"),
    ],
)
def test_wrong_types_get_one_line(recipe: Any, settings: Any, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(QkvError, match=complaint):
        qkv.train(recipe, out=tmp_path / "run", settings=settings)
    assert not (tmp_path / "run").exists()


def test_sections_in_settings_set_single_keys(tmp_path: Path) -> None:
    values = recipe_of(tmp_path)
    run = qkv.train(values, out=tmp_path / "run", settings={"training": {"steps": 2}, "seed": 5})
    saved = read_yaml(run / "recipe.yaml")
    assert saved["training"]["steps"] == 2 and saved["seed"] == 5
    assert saved["training"]["batch_tokens"] == values["training"]["batch_tokens"]


def test_a_folder_of_another_layout_is_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs[0], tmp_path / "old"))
    for config in ({"model": {}}, {"layout": 1}, {}):
        (run / "config.json").write_text(json.dumps(config))
        with pytest.raises(CheckpointError, match="made by another version of qkv"):
            qkv.load(run, "cpu")
