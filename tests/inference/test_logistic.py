"""The logistic regression finds its optimum, its probabilities are calibrated, and the figures of reliability are right."""

import itertools
import math

import numpy as np
import pytest

from qkv.inference.logistic import CLIP, RIDGE, LogisticRegression, Reliability, predict_out_of_fold
from qkv.text.metrics import roc_auc

TRUTH = np.array([1.5, -0.7, 0.0])


def draw(count: int, seed: int, truth: np.ndarray = TRUTH) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, the true probability of each example, and labels drawn from it."""
    rng = np.random.default_rng(seed)
    features = rng.normal(2, 3, (count, len(truth)))
    probability = 1 / (1 + np.exp(-((features - 2) / 3 @ truth - 0.5)))
    return features, probability, (rng.random(count) < probability).astype(float)


def gradient(model: LogisticRegression, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the derivative of the penalised loss by the weights and the bias, example by example."""
    total = np.append(RIDGE * model.weights, 0.0)
    for row, label, p in zip(features, labels, model.predict(features), strict=True):
        z = np.clip((row - model.mean) / model.scale, -CLIP, CLIP)
        total += (p - label) * np.append(z, 1.0)
    return total


def test_the_gradient_vanishes_at_the_optimum() -> None:
    features, _, labels = draw(300, seed=1)
    model = LogisticRegression.fit(features, labels)
    assert np.abs(gradient(model, features, labels)).max() < 1e-6
    moved = model._replace(weights=model.weights + 0.1)
    assert np.abs(gradient(moved, features, labels)).max() > 0.1
    assert model.mean == pytest.approx(features.mean(0)) and model.scale == pytest.approx(features.std(0))


def test_plain_gradient_descent_finds_the_same_weights() -> None:
    features, _, labels = draw(150, seed=2)
    model = LogisticRegression.fit(features, labels)
    slow = model._replace(weights=np.zeros(3), bias=0.0)
    for _ in range(2000):
        down = gradient_at_once(slow, features, labels)
        slow = slow._replace(weights=slow.weights - 0.02 * down[:-1], bias=slow.bias - 0.02 * down[-1])
    assert slow.weights == pytest.approx(model.weights, abs=1e-6)
    assert slow.bias == pytest.approx(model.bias, abs=1e-6)


def gradient_at_once(model: LogisticRegression, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    z = np.column_stack([np.clip((features - model.mean) / model.scale, -CLIP, CLIP), np.ones(len(features))])
    return z.T @ (model.predict(features) - labels) + np.append(RIDGE * model.weights, 0.0)


def test_probabilities_are_those_that_labels_were_drawn_from() -> None:
    features, _, labels = draw(20_000, seed=3)
    others, probability, truth = draw(20_000, seed=4)
    predicted = LogisticRegression.fit(features, labels).predict(others)
    assert np.abs(predicted - probability).mean() < 0.01
    found = Reliability.measure(predicted, truth, 100 * truth)
    assert found.calibration_error < 0.02
    assert found.auc == pytest.approx(roc_auc(probability.tolist(), truth.tolist()), abs=0.005)
    # Overconfident ones rank alike and are calibrated worse.
    sharp = Reliability.measure((predicted > 0.5) * 0.98 + 0.01, truth, 100 * truth)
    assert sharp.calibration_error > 0.1


def test_separable_classes_and_features_that_do_not_vary_stay_finite() -> None:
    features = np.column_stack([np.arange(40.0), np.full(40, 7.0), np.append(np.zeros(39), 1e9)])
    labels = (np.arange(40) >= 20).astype(float)
    model = LogisticRegression.fit(features, labels)
    assert np.abs(gradient(model, features, labels)).max() < 1e-6
    assert model.weights[1] == 0 and np.abs(model.weights).max() < 10
    predicted = model.predict(features)
    assert (predicted[20:] > 0.5).all() and (predicted[:20] < 0.5).all()
    far = np.array([[1e12, 7, 0], [-1e12, 7, 0]])
    assert np.isfinite(model.predict(far)).all()


def test_a_fold_is_predicted_from_the_others() -> None:
    rng = np.random.default_rng(5)
    features, labels = rng.normal(size=(100, 20)), rng.integers(0, 2, 100).astype(float)
    inside = roc_auc(LogisticRegression.fit(features, labels).predict(features).tolist(), labels.tolist())
    outside = roc_auc(predict_out_of_fold(features, labels).tolist(), labels.tolist())
    assert inside > 0.7 and abs(outside - 0.5) < 0.15  # labels are noise


@pytest.mark.parametrize("seed", range(5))
def test_auc_against_a_count_of_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    predicted, wanted = rng.integers(0, 6, 40).tolist(), rng.integers(0, 2, 40).tolist()
    positive = [p for p, w in zip(predicted, wanted, strict=True) if w]
    negative = [p for p, w in zip(predicted, wanted, strict=True) if not w]
    wins = sum((a > b) + 0.5 * (a == b) for a, b in itertools.product(positive, negative))
    assert roc_auc(predicted, wanted) == pytest.approx(wins / (len(positive) * len(negative)))


def test_reliability_by_hand() -> None:
    probabilities = np.array([0.05, 0.95, 1.0, 0.55, 0.45])
    good = np.array([0.0, 1.0, 0.0, 1.0, 0.0])
    found = Reliability.measure(probabilities, good, np.array([10.0, 90.0, 60.0, 80.0, 20.0]))
    assert [(b.low, b.high, b.count) for b in found.bins] == [(0, 0.1, 1), (0.4, 0.5, 1), (0.5, 0.6, 1), (0.9, 1, 2)]
    assert [b.observed for b in found.bins] == [0, 0, 1, 0.5]
    assert found.bins[-1].predicted == pytest.approx(0.975)
    assert found.calibration_error == pytest.approx((0.05 + 0.45 + 0.45 + 2 * 0.475) / 5)
    assert found.auc == pytest.approx(4 / 6)  # 1.0 of a bad text is above both good ones
    assert found.confident_half == pytest.approx((60 + 90 + 80) / 3) and found.other_half == pytest.approx(15)
    assert sum(row["texts"] for row in found.rows()) == found.texts == 5


def test_one_class_has_no_auc() -> None:
    found = Reliability.measure(np.array([0.2, 0.9]), np.ones(2), np.array([80.0, 90.0]))
    assert found.auc is None and "not defined" in str(found)
    assert found.good == 1 and math.isclose(found.calibration_error, 0.45)
    assert Reliability.measure(np.array([0.2]), np.ones(1), np.array([80.0])).other_half == 80
