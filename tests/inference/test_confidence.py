"""Statistics of token probabilities for every family, and the model of confidence that is fitted to them."""

from pathlib import Path

import numpy as np
import pytest

from inspected_models import TEXT, TRANSLATORS, TREE, translator
from qkv.base.errors import ConfigError, DataError
from qkv.decoding.scoring import TokenStatistics
from qkv.inference.confidence import COVERAGE, FEATURES, GOOD_CHRF, ConfidenceModel


@pytest.mark.parametrize("name", TRANSLATORS)
def test_the_search_and_the_statistics_agree_on_every_family(name: str) -> None:
    loaded = translator(name)
    texts = [TREE] if loaded.trees else [TEXT, "The lazy dog.", "fox", "ξ dog"]
    parts = [part for text in texts for part in loaded.segmenter.cut(text)]
    sources = [part.ids for part in parts]
    found = [best for best, *_ in loaded.engine.decode(sources, loaded.decoding())]
    statistics = loaded.statistics([[(source, best.ids)] for source, best in zip(sources, found, strict=True)])
    for source, best, one in zip(sources, found, statistics, strict=True):
        logprob = best.logprob + (0 if best.finished else one.end)  # a hypothesis without its end has no probability of one
        assert one.logprob == pytest.approx(logprob, abs=1e-3)
        assert (one.source_length, one.target_length) == (len(source), len(best.ids) + 1)
        assert one.logprob - 1e-4 <= one.lowest <= one.end <= 0
        assert one.unknown == source.count(1) + best.ids.count(1)
        if one.covered is not None:
            assert 0 < one.covered <= len(source) + 1e-4
        assert (one.covered is None) == (name == "unilm")  # which attends to source and target at once
    assert any(one.unknown for one in statistics) or loaded.trees


def test_a_translator_in_memory_says_how_to_calibrate() -> None:
    with pytest.raises(ConfigError, match="no calibration of confidence; qkv evaluate RUN"):
        translator("transformer").n_best([TEXT], confidence=True)


def examples(count: int, seed: int, covered: bool = True) -> tuple[list[TokenStatistics], list[float]]:
    """Return statistics of translations whose chrF follows their log-probability and coverage, with noise."""
    rng = np.random.default_rng(seed)
    statistics, chrf = [], []
    for _ in range(count):
        length, mean, share = int(rng.integers(2, 20)), -rng.gamma(2.0, 0.4), rng.uniform(0.4, 1)
        statistics.append(
            TokenStatistics(
                length, length + 1, mean * (length + 1), 3 * mean, -mean * length, -0.1, share * length if covered else None
            )
        )
        chrf.append(float(np.clip(100 + 40 * mean + 30 * (share - 0.7) + rng.normal(0, 12), 0, 100)))
    return statistics, chrf


def test_what_was_fitted_ranks_and_is_calibrated_on_other_texts() -> None:
    model = ConfidenceModel.fit(*examples(1000, seed=1), "digest")
    assert set(model.features) == {*FEATURES, *COVERAGE} and model.good_chrf == GOOD_CHRF
    assert model.reliability.auc is not None and model.reliability.auc > 0.85
    found = model.measure(*examples(1000, seed=2))
    assert found.auc == pytest.approx(model.reliability.auc, abs=0.04)
    assert found.calibration_error < 0.07
    assert model.features["mean log-probability"].weight > 0 and model.features["coverage of the source"].weight > 0
    again = ConfidenceModel.fit(*examples(1000, seed=1), "digest")
    assert again == model  # nothing is drawn
    assert ConfidenceModel.model_validate_json(model.model_dump_json()) == model
    assert model.predict([]) == []


def test_without_cross_attention_there_is_no_coverage(tmp_path: Path) -> None:
    model = ConfidenceModel.fit(*examples(300, seed=1, covered=False), "digest")
    assert set(model.features) == set(FEATURES)
    assert model.save(tmp_path).name == "confidence.json"


def test_too_few_texts_or_one_class_are_refused() -> None:
    statistics, chrf = examples(300, seed=1)
    with pytest.raises(DataError, match="at least 100 different texts, got 99"):
        ConfidenceModel.fit(statistics[:99], chrf[:99], "digest")
    with pytest.raises(DataError, match=r"300 of 300 translations are good \(chrF of at least 70\)"):
        ConfidenceModel.fit(statistics, [90.0] * 300, "digest")
    with pytest.raises(DataError, match="0 of 300 translations are good"):
        ConfidenceModel.fit(statistics, [10.0] * 300, "digest")


def test_texts_far_from_all_in_dev_get_a_probability() -> None:
    model = ConfidenceModel.fit(*examples(300, seed=1), "digest")
    far = [
        TokenStatistics(1, 10**6, -1e9, -1e5, 1e9, -50.0, 0.0, 10**6),
        TokenStatistics(1, 1, 0.0, 0.0, 0.0, 0.0, 1.0),
    ]
    worst, best = model.predict(far)
    assert 0 < worst < 0.05 < best <= 1


@pytest.mark.parametrize("name", ["transformer", "convolution", "unilm"])
def test_a_translation_that_fills_all_positions_is_judged(name: str) -> None:
    loaded = translator(name)
    longest = loaded.engine.longest or 40
    full, shorter = loaded.statistics([[([5, 6], [7] * longest)], [([5, 6], [7] * (longest - 1))]])
    if loaded.engine.longest is not None:  # there is no room for its end, so that the last token gives way
        assert full == shorter and full.target_length == longest
    assert np.isfinite(full.logprob)
