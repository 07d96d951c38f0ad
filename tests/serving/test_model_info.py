"""What GET /models says of models: facts that runs record, examples that fit, and sensible ones where nothing is recorded."""

import json
from pathlib import Path
from typing import Any

import pytest
from service_runs import Running, write_translator

from encoder_runs import write_run
from qkv.folder.run import RESULT
from qkv.folder.summary import RunSummary, choose_examples, summarise_run
from qkv.serving.registry import ModelRegistry, load_models

RESULTS = {
    "training time": "7 min", "steps": "2,500", "trained on": "29,000 pairs", "scored on": "test, 1,000 texts",
    "scores": [{"name": "bleu", "value": 31.47}, {"name": "chrf", "value": 55.64}], "examples": ["A dog runs.", "It rains."],
}  # fmt: skip


def infos(models: ModelRegistry) -> dict[str, Any]:
    with Running(models) as running:
        return {one["id"]: one for one in running.client.get("/models").json()}


def test_a_run_says_what_it_was_trained_on_and_how_good_it_is(tmp_path: Path) -> None:
    run = write_translator(tmp_path / "en-la")
    (run / RESULT).write_text(json.dumps(RESULTS))
    told = infos(load_models([str(run)], "cpu"))["en-la"]
    assert told["examples"] == RESULTS["examples"]
    assert told["description"].pop("text") == (
        "Translator from en to la (transformer, translation), trained for 7 min on 29,000 pairs. "
        "BLEU 31.5, chrF 55.6 on test, 1,000 texts."
    )
    assert told["description"] == {
        "architecture": "transformer", "task": "translation", "trained_on": "29,000 pairs", "training_time": "7 min",
        "steps": "2,500", "scored_on": "test, 1,000 texts", "scores": {"BLEU": 31.47, "chrF": 55.64},
    }  # fmt: skip


def test_a_run_that_records_nothing_has_examples_of_its_kind(models: ModelRegistry, running: Running) -> None:
    told = {one["id"]: one for one in running.client.get("/models").json()}
    assert all(1 <= len(one["examples"]) <= 3 and one["description"]["text"].endswith(".") for one in told.values())
    assert all("[MASK]" in text for name in ("bert", "t5") for text in told[name]["examples"])
    for text in told["bert"]["examples"]:
        assert running.said("/fill", model="bert", text=text)["masks"]
    for name in ("classes", "tags", "answers"):
        assert len(running.said("/predict", model=name, texts=told[name]["examples"])["predictions"]) >= 2
    for word in told["words"]["examples"]:
        assert running.said("/neighbours", word=word)["neighbours"]


@pytest.mark.parametrize("content", ["", "[]", '{"scores": {"dev_loss": 2.0, "dev_perplexity": 7.4, "f1": 0.5}}'])
def test_figures_of_other_runs_and_damaged_results(content: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "bert")
    (run / RESULT).write_text(content)
    found = summarise_run(run)
    if content.startswith("{"):
        assert found.scores == {"perplexity": 7.4, "f1": 0.5} and found.architecture == "bert"
    else:
        assert found == RunSummary()
    assert summarise_run(None) == summarise_run(tmp_path / "nothing") == RunSummary()


def test_recorded_examples_are_the_first_short_ones() -> None:
    texts: list[Any] = ["Too long " * 20, "A short text.", "x", ["A pair of", "two texts"], "Another text.", "One more text."]
    assert choose_examples(texts) == ["A short text.", ["A pair of", "two texts"], "Another text."]
