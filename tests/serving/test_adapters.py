"""Several adapters over one base in a service: each is a model of its own, and the base's weights are there once."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from service_runs import Running, texts_of, write_translator, write_vectors

from qkv.base.config import dump_yaml
from qkv.base.errors import QkvError
from qkv.data.corpora import Tokenizers
from qkv.folder.adapters import BASE, weights_digest
from qkv.folder.networks import read_translator_run
from qkv.folder.run import WEIGHTS, save_config, save_tokenizers
from qkv.inference.adapters import load_adapters
from qkv.inference.load import load_translator
from qkv.parts.adapters import with_adapters
from qkv.recipes import RECIPE, parse_recipe
from qkv.serving.handlers import count_parameters
from qkv.serving.registry import TRANSLATE, ModelRegistry, load_models
from qkv.training.checkpoints import named_weights, save_weights


def write_adapter(folder: Path, base: Path, seed: int) -> Path:
    """Write the run of an adapter with random weights, as training writes it."""
    run = read_translator_run(base)
    values = run.recipe.model_dump(mode="json") | {"start": str(base), "tokenizer": None}
    recipe: Any = parse_recipe({**values, "model": {**values["model"], "adapter": {"rank": 2, "alpha": 2}}}, "here")
    tokenizers = Tokenizers(*run.tokenizers)
    model = with_adapters(run.model(), recipe.model.adapter)
    torch.manual_seed(seed)
    folder.mkdir()
    save_tokenizers(folder, tokenizers)
    save_config(folder, recipe, tokenizers, [], **{BASE: weights_digest(base)})
    (folder / RECIPE).write_text(dump_yaml(recipe), encoding="utf-8")
    save_weights(folder / WEIGHTS, {name: torch.randn_like(weight) for name, weight in named_weights(model).items()})
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two translators, vectors, and two adapters of the second translator."""
    folder = tmp_path_factory.mktemp("adapters")
    write_vectors(folder / "words")
    write_translator(folder / "other", ("en", "de"), width=8)
    base = write_translator(folder / "general")
    write_adapter(folder / "legal", base, 1)
    write_adapter(folder / "drugs", base, 2)
    return folder


@pytest.fixture(scope="module")
def models(runs: Path) -> ModelRegistry:
    served = [str(runs / name) for name in ("words", "other", "general")]
    return load_models(served, "cpu", adapters=[f"medical={runs / 'drugs'}", str(runs / "legal")])


def test_a_request_names_the_adapter(models: ModelRegistry, runs: Path) -> None:
    assert [model.name for model in models.all] == ["words", "other", "general", "medical", "legal"]
    texts = list(texts_of(6))
    wanted = {"general": load_translator(runs / "general").translate(texts)}
    wanted["medical"] = load_translator(runs / "drugs").translate(texts)
    wanted["legal"] = load_translator(runs / "general", adapter=runs / "legal").translate(texts)
    assert len({*map(tuple, wanted.values())}) == 3
    with Running(models) as running:
        for name, translations in wanted.items():
            assert running.said("/translate", q=texts, model=name)["translatedText"] == translations
        both = running.said("/translate", q=texts, source="en", target="la")["translatedText"]
        assert both == wanted["general"], "without a name the base translates"
        assert running.refused("/translate", q=texts, model="drugs") == (404, "model_not_found")
        assert running.said("/look", text="red bird", model="legal")["maps"]
        assert {"legal", "medical"} <= {model["id"] for model in running.client.get("/models").json()}


def test_the_base_is_in_memory_once(models: ModelRegistry) -> None:
    base, *adapted = (models.find(name, TRANSLATE).handler.translator.engine.model for name in ("general", "legal", "medical"))
    for model in adapted:
        own = {*model.parameters()} - {*base.parameters()}
        assert {*base.parameters()} <= {*model.parameters()} and own == {*named_weights(model).values()}


def test_of_two_names_of_a_folder_the_first_has_the_adapters(runs: Path) -> None:
    models = load_models([f"a={runs / 'general'}", f"b={runs / 'general'}"], "cpu", adapters=[str(runs / "legal")])
    assert [model.name for model in models.all] == ["a", "legal", "b"]


def test_other_engines_get_a_merged_copy(runs: Path) -> None:
    pytest.importorskip("ctranslate2")
    models = load_models([str(runs / "general")], "cpu", "ctranslate2", adapters=[str(runs / "legal")])
    texts = list(texts_of(3))
    found = models.find("legal", TRANSLATE).handler.translator.translate(texts)
    assert found == load_translator(runs / "legal").translate(texts)


def test_an_engine_is_for_translators_alone(folders: list[str], caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("ctranslate2")
    caplog.set_level(logging.INFO, "qkv.serving")
    served = [folder for folder in folders if Path(folder).name in ("en-la", "gpt", "words")]
    models = load_models(served, "cpu", "ctranslate2")
    assert {model.name: model.handler.parameters is None for model in models.all} == {"en-la": True, "gpt": False, "words": False}
    assert count_parameters(object()) is None  # onnxruntime's model has no parameters either, and takes long to export
    assert [line for line in caplog.messages if "gpt, words" in line]
    with pytest.raises(QkvError, match="there is none among gpt, words"):
        load_models(served[1:], "cpu", "ctranslate2")


@pytest.mark.parametrize(
    ("served", "adapters", "message"),
    [
        (["other"], ["a=legal"], r"legal is an adapter of .*general, whose weights none of .*other has; give .*general too"),
        (["general"], ["a=legal", "a=drugs"], "two runs are called 'a'"),
        (["general"], ["general=legal"], "two runs are called 'general'"),
        (["general"], ["a=general"], "general is a complete run, not an adapter"),
        (["general"], ["a=nowhere"], "nowhere: no such run folder"),
        (["general"], ["=legal"], "legal: no such run folder"),
    ],
)
def test_bad_names_and_folders_are_refused(
    runs: Path, served: list[str], adapters: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    with pytest.raises(QkvError, match=message):
        load_models(served, "cpu", adapters=adapters)


def test_adapters_share_a_base_in_python_too(runs: Path) -> None:
    general, (legal,) = load_adapters(runs / "general", [runs / "legal"], "cpu")
    texts = list(texts_of(4))
    assert general.translate(texts) == load_translator(runs / "general").translate(texts)
    assert legal.translate(texts) == load_translator(runs / "legal").translate(texts)
