"""Logistic regression on a few features, and how well its probabilities rank and how reliable they are.

N examples, F features.
"""

from typing import Any, NamedTuple

import numpy as np

from qkv.base.config import Config
from qkv.text.metrics import roc_auc

RIDGE = 1.0  # penalty on the squared coefficients of standardised features, halved; keeps them finite where classes are separable
CLIP = 4.0  # standard deviations: a feature further from its mean counts as this far
FOLDS = 5
BINS = 10  # of equal width
NEWTON_STEPS, TOLERANCE = 50, 1e-9


class LogisticRegression(NamedTuple):
    """The probability of an example: the logistic function of its standardised features, weighted and summed."""

    mean: np.ndarray  # (F,)
    scale: np.ndarray  # (F,)
    weights: np.ndarray  # (F,)
    bias: float

    @classmethod
    def fit(cls, features: np.ndarray, labels: np.ndarray) -> "LogisticRegression":
        """Maximise the likelihood of labels (N,) of 0 and 1, less a ridge on the weights, by Newton's method. features (N, F)."""
        mean, scale = features.mean(0), features.std(0)
        scale = np.where(scale > 1e-12, scale, 1.0)  # a feature that does not vary gets the weight 0
        x = np.column_stack([_standardise(features, mean, scale), np.ones(len(features))])
        ridge = np.append(np.full(features.shape[1], RIDGE), 0.0)  # the bias is free

        def loss(at: np.ndarray) -> float:
            z = x @ at
            return float(np.logaddexp(0, z).sum() - labels @ z + 0.5 * ridge @ at**2)

        found = np.zeros(x.shape[1])
        for _ in range(NEWTON_STEPS):
            p = _sigmoid(x @ found)
            gradient = x.T @ (p - labels) + ridge * found
            if np.abs(gradient).max() < TOLERANCE * len(x):
                break
            step = np.linalg.solve(x.T * (p * (1 - p)) @ x + np.diag(ridge), gradient)
            size = 1.0
            while loss(found - size * step) > loss(found) and size > 1e-6:  # far from the optimum a full step may overshoot
                size /= 2
            found = found - size * step
        return cls(mean, scale, found[:-1], float(found[-1]))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the probability of each example, (N, F) -> (N,)."""
        return _sigmoid(_standardise(features, self.mean, self.scale) @ self.weights + self.bias)


def predict_out_of_fold(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the probability of each example by a regression that was fitted to the other folds. (N, F), (N,) -> (N,)."""
    fold, found = np.arange(len(labels)) % FOLDS, np.zeros(len(labels))
    for number in range(FOLDS):
        held_out = fold == number
        found[held_out] = LogisticRegression.fit(features[~held_out], labels[~held_out]).predict(features[held_out])
    return found


def _standardise(features: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.clip((features - mean) / scale, -CLIP, CLIP)


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -z))  # does not overflow


class ReliabilityBin(Config):
    """The examples whose probability lies in one interval."""

    low: float
    high: float
    predicted: float  # mean probability
    observed: float  # share of positive examples
    count: int


class Reliability(Config):
    """How well probabilities rank examples, and how well they agree with what is observed."""

    texts: int
    good: float  # share of positive examples
    auc: float | None  # probability that a positive example ranks above a negative one; None where one of them is missing
    calibration_error: float  # mean distance between predicted and observed over the bins, weighted by count (ECE)
    bins: tuple[ReliabilityBin, ...]  # without empty ones
    confident_half: float  # mean score of the half with the higher probabilities
    other_half: float

    @classmethod
    def measure(cls, probabilities: np.ndarray, good: np.ndarray, scores: np.ndarray) -> "Reliability":
        """Compare probabilities (N,) with what is true, `good` (N,), and with the scores (N,) of the same texts."""
        number = np.minimum((probabilities * BINS).astype(int), BINS - 1)
        bins = []
        for i in np.unique(number).tolist():
            inside = number == i
            means = {"predicted": float(probabilities[inside].mean()), "observed": float(good[inside].mean())}
            bins.append(ReliabilityBin(low=i / BINS, high=(i + 1) / BINS, **means, count=int(inside.sum())))
        ranked = scores[np.argsort(-probabilities, kind="stable")]
        half = (len(ranked) + 1) // 2
        return cls(
            texts=len(good),
            good=float(good.mean()),
            auc=roc_auc(probabilities.tolist(), good.tolist()) if 0 < good.sum() < len(good) else None,
            calibration_error=sum(b.count * abs(b.predicted - b.observed) for b in bins) / len(good),
            bins=tuple(bins),
            confident_half=float(ranked[:half].mean()),
            other_half=float(ranked[half:].mean()) if len(ranked) > half else float(ranked.mean()),
        )

    def __str__(self) -> str:
        auc = "not defined, all texts are of one class" if self.auc is None else f"{self.auc:.3f}"
        return f"AUC {auc}, expected calibration error {self.calibration_error:.3f} on {self.texts:,} texts, {self.good:.0%} good"

    def rows(self) -> list[dict[str, Any]]:
        """Return the bins as rows of a table."""
        return [
            {"confidence": f"{b.low:.1f} to {b.high:.1f}", "predicted": round(b.predicted, 3), "observed": round(b.observed, 3),
             "texts": b.count}
            for b in self.bins
        ]  # fmt: skip
