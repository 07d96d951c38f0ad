"""Metrics: against brute force, against cases worked by hand, and where they are not defined."""

import itertools

import numpy as np
import pytest

from qkv.base.errors import ConfigError
from qkv.objectives.answering import QuestionAnswering
from qkv.objectives.classification import Classification
from qkv.objectives.regression import Regression
from qkv.objectives.tagging import Tagging
from qkv.text.metrics import (
    accuracy,
    answer_f1,
    entities,
    entity_f1,
    exact_match,
    f1,
    matthews,
    normalise_answer,
    pearson,
    spearman,
    tag_accuracy,
)


def drawn(seed: int, classes: int, size: int = 40) -> tuple[list[int], list[int]]:
    rng = np.random.default_rng(seed)
    wanted = rng.integers(0, classes, size)
    predicted = np.where(rng.random(size) < 0.6, wanted, rng.integers(0, classes, size))
    return predicted.tolist(), wanted.tolist()


def counted_f1(predicted: list[int], wanted: list[int], positive: int) -> float:
    hits = sum(a == b == positive for a, b in zip(predicted, wanted, strict=True))
    precision, recall = hits / predicted.count(positive), hits / wanted.count(positive)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize("seed", range(5))
def test_classes_by_counting(seed: int) -> None:
    predicted, wanted = drawn(seed, 2)
    assert accuracy(predicted, wanted) == sum(a == b for a, b in zip(predicted, wanted, strict=True)) / 40
    assert f1(predicted, wanted) == pytest.approx(counted_f1(predicted, wanted, positive=1))
    predicted, wanted = drawn(seed, 4)
    assert f1(predicted, wanted) == pytest.approx(np.mean([counted_f1(predicted, wanted, label) for label in range(4)]))


@pytest.mark.parametrize("seed", range(5))
def test_matthews_of_two_classes_is_their_correlation(seed: int) -> None:
    predicted, wanted = drawn(seed, 2)
    assert matthews(predicted, wanted) == pytest.approx(np.corrcoef(predicted, wanted)[0, 1])


@pytest.mark.parametrize("seed", range(3))
def test_matthews_of_more_is_the_covariance_of_indicators(seed: int) -> None:
    predicted, wanted = (np.eye(4)[side] for side in drawn(seed, 4))

    def covariance(a: np.ndarray, b: np.ndarray) -> float:
        return sum(np.cov(a[:, k], b[:, k])[0, 1] for k in range(4))

    expected = covariance(predicted, wanted) / np.sqrt(covariance(predicted, predicted) * covariance(wanted, wanted))
    assert matthews(*drawn(seed, 4)) == pytest.approx(expected)


def test_a_class_that_is_nowhere_counts_for_nothing() -> None:
    assert f1([0, 0, 2], [0, 0, 2]) == 1
    assert f1([0, 0], [0, 0]) == 0  # the positive one is never there


def test_three_classes_stay_three_where_two_are_seen() -> None:
    predicted, wanted = [0, 1, 1, 0], [0, 1, 0, 0]
    assert f1(predicted, wanted) == pytest.approx(2 / 3)
    assert f1(predicted, wanted, classes=3) == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert matthews(predicted, wanted, 3) == pytest.approx(matthews(predicted, wanted))
    assert accuracy(predicted, wanted, 3) == accuracy(predicted, wanted)


@pytest.mark.parametrize("seed", range(3))
def test_correlations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=30)
    b = a + rng.normal(size=30)
    assert pearson(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])
    coarse = np.round(a)  # many ties
    ranks = [[np.mean([sum(y < x for y in side) + 1, sum(y <= x for y in side)]) for x in side] for side in (coarse, b)]
    assert spearman(coarse, b) == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert spearman(np.exp(a), a) == pytest.approx(1)


def test_a_constant_prediction_is_worth_nothing() -> None:
    assert matthews([1, 1, 1], [0, 1, 1]) == 0
    assert pearson([0.1, 0.1, 0.1], [1, 2, 3]) == spearman([0.1, 0.1, 0.1], [1, 2, 3]) == 0
    assert pearson(np.full(1000, 2.4871), np.arange(1000)) == 0


SENTENCES = {
    "B-x I-x O B-y": [("x", 0, 2), ("y", 3, 4)],
    "B-x B-x I-x": [("x", 0, 1), ("x", 1, 3)],
    "I-x I-x O I-y": [("x", 0, 2), ("y", 3, 4)],  # inside without a beginning
    "B-x I-y I-y": [("x", 0, 1), ("y", 1, 3)],  # the type changes
    "O O": [],
    "B-x E-x S-x I-x S-y E-x": [("x", 0, 2), ("x", 2, 3), ("x", 3, 4), ("y", 4, 5), ("x", 5, 6)],
    "B-creative-work I-creative-work": [("creative-work", 0, 2)],
    "x x O y": [("x", 0, 2), ("y", 3, 4)],
    "": [],
}


@pytest.mark.parametrize("tags", SENTENCES)
def test_entities(tags: str) -> None:
    assert list(entities(tags.split())) == SENTENCES[tags]


def test_entities_of_well_formed_tags_by_brute_force() -> None:
    for tags in itertools.product(["O", "B-x", "I-x", "B-y", "I-y"], repeat=4):
        before = ("O", *tags)
        if any(tag[0] == "I" and old[1:] != tag[1:] for old, tag in itertools.pairwise(before)):
            continue
        spans = [
            (tags[a][2:], a, b)
            for a, b in itertools.combinations(range(5), 2)
            if tags[a][0] == "B" and all(tag[0] == "I" for tag in tags[a + 1 : b]) and (b == 4 or tags[b][0] != "I")
        ]
        assert list(entities(tags)) == spans


def test_entity_f1() -> None:
    wanted = [["B-x", "I-x", "O", "B-y"], ["B-x"]]
    assert entity_f1(wanted, wanted) == 1
    predicted = [["B-x", "O", "O", "B-y"], ["B-x"]]  # one with a wrong end: 2 of 3 and 2 of 3
    assert entity_f1(predicted, wanted) == pytest.approx(2 / 3)
    assert entity_f1([["O"] * 4, ["O"]], wanted) == entity_f1([[]], [[]]) == 0
    assert entity_f1([["B-x"], ["O"]], [["O"], ["B-x"]]) == 0  # the same words of another sentence
    assert tag_accuracy(predicted, wanted) == 0.8


def test_answers_are_compared_as_squad_does() -> None:
    assert normalise_answer(" The  Denver-Broncos, an (A) team! ") == "denverbroncos team"
    assert exact_match(["the Broncos", "Panthers", ""], [["broncos."], ["Bears", "panthers"], []]) == 1
    assert exact_match(["Broncos"], [[]]) == answer_f1(["Broncos"], [[]]) == answer_f1([""], [["Broncos"]]) == 0
    # two of the three words said are among the four wanted: 2/3 and 2/4
    assert answer_f1(["in the big city"], [["big city of London", "x"]]) == pytest.approx(2 * 2 / 7)
    assert answer_f1(["a b b", "c"], [["b b b"], ["c"]]) == pytest.approx((2 * 2 / 5 + 1) / 2)


def test_each_kind_has_its_metrics() -> None:
    tasks = (Classification, Regression, Tagging, QuestionAnswering)
    assert [next(iter(task.metrics)) for task in tasks] == ["accuracy", "spearman", "entity_f1", "answer_f1"]
    assert Classification.find_metric("f1") is f1
    with pytest.raises(ConfigError, match="no metric 'acuracy' of classification; did you mean 'accuracy'"):
        Classification.find_metric("acuracy")
    with pytest.raises(ConfigError, match="no metric 'f1' of regression; choose from spearman, pearson"):
        Regression.find_metric("f1")


def test_spearman_with_ties() -> None:
    # Ranks 1, 2.5, 2.5, 4 against 1, 3, 2, 4: covariance 4.5, variances 4.5 and 5.
    assert spearman(np.array([1.0, 5, 5, 9]), np.array([0.1, 0.3, 0.2, 0.4])) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert spearman(np.arange(5.0), -np.arange(5.0)) == pytest.approx(-1)
    assert np.isnan(spearman(np.ones(3), np.arange(3.0), undefined=np.nan))
    assert np.isnan(spearman(np.ones(1), np.ones(1), undefined=np.nan)) and np.isnan(spearman([], [], undefined=np.nan))
