"""The service returns the confidence that the translator itself gives, where the run has a calibration."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from service_runs import Running, write_translator

from qkv.decoding.scoring import TokenStatistics
from qkv.inference.confidence import CONFIDENCE, ConfidenceModel, weights_digest
from qkv.inference.load import load_translator
from qkv.inference.translator import Translator
from qkv.serving.registry import load_models

LONG = "red bird sings " * 8 + ". " + "old tree falls " * 8  # more than max_tokens


def write_calibrated(folder: Path) -> Path:
    write_translator(folder)
    rng = np.random.default_rng(1)
    statistics = [
        TokenStatistics(5, 6, logprob, logprob / 3, 10.0, -0.5, float(rng.uniform(2, 5))) for logprob in rng.uniform(-30, -1, 200)
    ]
    chrf = [90.0 if one.logprob + rng.normal(0, 5) > -15 else 20.0 for one in statistics]
    ConfidenceModel.fit(statistics, chrf, weights_digest(folder)).save(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("confidence")
    write_calibrated(folder / "calibrated")
    write_translator(folder / "plain")
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Running]:
    with Running(load_models([str(folder / "calibrated"), str(folder / "plain")], "cpu")) as running:
        yield running


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return load_translator(folder / "calibrated", "cpu")


def test_it_is_the_translators_own(served: Running, translator: Translator) -> None:
    texts = ["red bird", "", LONG]
    found = served.said("/translate", q=texts, alternatives=1, confidence=True)
    outputs = translator.n_best(texts, n_best=2, beam=2, confidence=True)
    assert len(outputs[2][0].pieces) > 1
    for told, wanted in zip(found["confidences"], outputs, strict=True):
        assert told == pytest.approx([output.confidence for output in wanted], abs=1e-5)
    assert found["confidences"][1] == [None]
    assert [len(each) for each in found["scores"]] == [len(each) for each in found["confidences"]]
    plain = served.said("/translate", q=texts, alternatives=1)
    assert plain == {name: value for name, value in found.items() if name != "confidences"}


def test_one_text_has_one_list_and_lines_are_judged_together(served: Running, translator: Translator) -> None:
    found = served.said("/translate", q="red bird\n\nold tree", confidence=True)
    [first], _, [second] = translator.n_best(["red bird", "", "old tree"])
    assert found["confidences"] == pytest.approx(translator.confidences([(*first.pieces, *second.pieces)]), abs=1e-5)
    form = served.client.post("/translate", data={"q": "red bird\n\nold tree", "confidence": "true"})
    assert form.json() == found


def test_a_run_without_a_calibration_refuses(served: Running) -> None:
    refused = served.post("/translate", q="red bird", model="plain", confidence=True)
    assert refused.status_code == 400 and refused.json()["code"] == "no_confidence"
    assert "confidences" not in served.said("/translate", q="red bird", model="plain")
    assert served.refused("/translate", q="red bird", confidence="perhaps")[0] == 400


def test_a_calibration_of_other_weights_is_left_out_with_a_warning(folder: Path, tmp_path: Path) -> None:
    write_translator(tmp_path / "other", width=8)
    (tmp_path / "other" / CONFIDENCE).write_bytes((folder / "calibrated" / CONFIDENCE).read_bytes())
    with pytest.warns(match="made for other weights"):
        models = load_models([str(tmp_path / "other")], "cpu")
    assert not models.all[0].handler.has_confidence  # type: ignore[attr-defined]
