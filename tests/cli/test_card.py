"""Model cards say what a run records, and nothing else; every export has one."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from encoder_runs import own_tokenizer, write_run
from qkv.folder.model_card import CardOptions, model_card
from qkv.folder.run import RESULT
from qkv.interop.export import export
from translator_runs import TRANSFORMER, write_pairs_run
from unfinished_runs import unfinish
from workbench import Commands


def front_matter(card: str) -> dict[str, Any]:
    begin, front, body = card.split("---\n", 2)
    assert begin == "" and body.startswith("\n# ")
    return yaml.safe_load(front)


@pytest.fixture(scope="module")
def card(commands: Commands, run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("card") / "card.md"
    done = commands.run("card", run, "--license", "cc-by-4.0", "--out", path)
    assert done.code == 0 and done.out.strip() == str(path), done.err
    assert "exists already" in commands.run("card", run, "--out", path).complaint()
    return path.read_text()


def test_the_figures_are_those_of_the_result(card: str, run: Path) -> None:
    result, front = json.loads((run / RESULT).read_text()), front_matter(card)
    assert front["license"] == "cc-by-4.0" and front["pipeline_tag"] == "translation"
    (found,) = front["model-index"][0]["results"]
    assert {one["type"]: one["value"] for one in found["metrics"]} == {one["name"]: one["value"] for one in result["scores"]}
    for score in result["scores"]:
        assert f"| {score['value']:.4g} | {score['low']:.2f} to {score['high']:.2f} |" in card
    training, counts = result["training"], result["data"]
    assert training["updates"] == 120 and f"| tokens | {training['tokens']:,} |" in card
    assert f"qkv {training['qkv']}, torch {training['torch']}" in card
    assert f"train.tsv: {counts['train']['pairs']:,} pairs" in card and counts["train"]["source tokens"] > 0
    assert all(f"- {warning}" in card for warning in result["warnings"])
    assert str(run.parent) not in card  # folders of this machine


def test_the_card_of_an_unfinished_run_says_so(run: Path, tmp_path: Path) -> None:
    part = Path(shutil.copytree(run, tmp_path / "part"))
    unfinish(part, 60)
    card = model_card(part)
    assert "still in training: these are the weights of step 60 of 120." in card
    assert "No scores on held-out text are recorded." in card and "95 %" not in card
    assert not {"license", "model-index"} & set(front_matter(card))


def test_nothing_is_said_of_a_training_that_is_not_recorded(tmp_path: Path) -> None:
    card = model_card(write_run(tmp_path / "bert"))
    assert "records no training" in card and "## Training" not in card and "text.txt" not in card
    assert front_matter(card) == {"library_name": "qkv", "pipeline_tag": "fill-mask", "tags": ["qkv", "bert", "masked"]}


def test_languages_are_codes(tmp_path: Path) -> None:
    own, data = own_tokenizer("bpe", False), {"train": "x", "dev": "x", "max_tokens": 200}
    for names, codes in ((["en", "zh-Hans"], ["en", "zh-Hans"]), (["letters", "phones"], None)):
        run = write_pairs_run(tmp_path / names[0], TRANSFORMER, own, own, data={**data, "languages": names})
        assert front_matter(model_card(run, CardOptions())).get("language") == codes


@pytest.mark.parametrize(
    ("to", "library", "package"),
    [("hf", "transformers", "transformers"), ("ctranslate2", "ctranslate2", "ctranslate2"), ("onnx", "onnx", "onnxscript")],
)
def test_every_export_has_a_card(to: str, library: str, package: str, tmp_path: Path) -> None:
    pytest.importorskip(package)
    own = own_tokenizer("bpe", False)
    run = write_pairs_run(tmp_path / "run", TRANSFORMER, own, own)
    card = (export(run, to, tmp_path / "out", license_name="mit") / "README.md").read_text()
    assert front_matter(card)["library_name"] == library and front_matter(card)["license"] == "mit"
    assert card.count("```python") == 1 and "## Use with" in card
