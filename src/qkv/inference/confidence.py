"""Confidence: the probability that a translation is good, from what the model says about its tokens.

A translation is good if its sentence chrF against the nearest reference is at least GOOD_CHRF: it needs little or no editing.
A logistic regression learns this on dev texts, and `confidence.json` in the run's folder holds it. A text of several parts is one
text: its features are those of all its tokens.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from qkv.base.config import Config
from qkv.base.errors import CheckpointError, ConfigError, DataError
from qkv.base.files import atomic_file
from qkv.decoding.scoring import TokenStatistics
from qkv.folder.run import find_weights, is_exported, read_recipe
from qkv.inference.logistic import LogisticRegression, Reliability, predict_out_of_fold
from qkv.training.checkpoints import digest_weights

CONFIDENCE = "confidence.json"  # in a run's folder
GOOD_CHRF = 70.0
MIN_TEXTS, MIN_OF_EACH = 100, 20  # texts that a calibration needs, and how many of them good, and how many not
CALIBRATE = "qkv evaluate RUN --data dev.tsv --calibrate makes one"

# Each from a text's statistics and the mean logarithm of target length / source length in dev.
FEATURES: dict[str, Callable[[TokenStatistics, float], float]] = {
    "mean log-probability": lambda s, _: s.logprob / s.target_length,
    "lowest log-probability": lambda s, _: s.lowest,
    "mean entropy": lambda s, _: s.entropy / s.target_length,
    "probability of the end": lambda s, _: math.exp(s.end),
    "log length": lambda s, _: math.log(s.target_length),
    "deviation from the usual length": lambda s, usual: abs(_log_ratio(s) - usual),
    "share of unknown tokens": lambda s, _: s.unknown / (s.source_length + s.target_length),
}
# Only for models with cross-attention.
COVERAGE: dict[str, Callable[[TokenStatistics, float], float]] = {
    "coverage of the source": lambda s, _: (s.covered or 0.0) / max(1, s.source_length),
}


def _log_ratio(s: TokenStatistics) -> float:
    return math.log(s.target_length / (s.source_length + 1))


class Feature(Config):
    """A feature of the regression: its mean and standard deviation in dev, and the weight of the standardised one."""

    mean: float
    scale: float
    weight: float


class ConfidenceModel(Config):
    """The contents of confidence.json."""

    good_chrf: float  # a translation with this sentence chrF is good
    log_length_ratio: float  # mean in dev
    features: dict[str, Feature]
    bias: float
    reliability: Reliability  # on dev, each text predicted by a regression on the others
    weights: str  # digest of the model's weights

    @classmethod
    def fit(cls, statistics: Sequence[TokenStatistics], chrf: Sequence[float], weights: str) -> "ConfidenceModel":
        """Fit to the translations of dev texts: their statistics and their sentence chrF."""
        scores = np.asarray(chrf)
        good = (scores >= GOOD_CHRF).astype(float)
        count = int(good.sum())
        require_texts_to_calibrate(len(scores))
        if min(count, len(scores) - count) < MIN_OF_EACH:
            raise DataError(
                f"{count:,} of {len(scores):,} translations are good (chrF of at least {GOOD_CHRF:g}), and learning confidence "
                f"takes {MIN_OF_EACH} that are and {MIN_OF_EACH} that are not; give more texts, or others"
            )
        usual = float(np.mean([_log_ratio(s) for s in statistics]))
        names = [*FEATURES, *(COVERAGE if all(s.covered is not None for s in statistics) else ())]
        values = _feature_matrix(names, statistics, usual)
        fitted = LogisticRegression.fit(values, good)
        columns = zip(fitted.mean.tolist(), fitted.scale.tolist(), fitted.weights.tolist(), strict=True)
        return cls(
            good_chrf=GOOD_CHRF,
            log_length_ratio=usual,
            features={
                name: Feature(mean=mean, scale=scale, weight=weight)
                for name, (mean, scale, weight) in zip(names, columns, strict=True)
            },
            bias=fitted.bias,
            reliability=Reliability.measure(predict_out_of_fold(values, good), good, scores),
            weights=weights,
        )

    def predict(self, statistics: Sequence[TokenStatistics]) -> list[float]:
        """Return the probability that each translation is good."""
        if not statistics:
            return []
        mean, scale, weight = np.array([(f.mean, f.scale, f.weight) for f in self.features.values()]).T
        values = _feature_matrix(list(self.features), statistics, self.log_length_ratio)
        return LogisticRegression(mean, scale, weight, self.bias).predict(values).tolist()

    def measure(self, statistics: Sequence[TokenStatistics], chrf: Sequence[float]) -> Reliability:
        """Return how well the probabilities rank these translations, and how well they are calibrated."""
        scores = np.asarray(chrf)
        return Reliability.measure(np.array(self.predict(statistics)), (scores >= self.good_chrf).astype(float), scores)

    def save(self, run: Path) -> Path:
        """Write confidence.json into a run's folder."""
        with atomic_file(run / CONFIDENCE) as path:
            path.write_text(self.model_dump_json(indent=1), encoding="utf-8")
        return run / CONFIDENCE


def require_texts_to_calibrate(count: int) -> None:
    """Raise DataError for fewer texts than confidence can be learned from."""
    if count < MIN_TEXTS:
        raise DataError(
            f"learning confidence takes translations of at least {MIN_TEXTS} different texts, got {count:,}; give more"
        )


def _feature_matrix(names: Sequence[str], statistics: Sequence[TokenStatistics], usual: float) -> np.ndarray:
    """Return the features of each text. -> (N, F)."""
    known = FEATURES | COVERAGE
    return np.array([[known[name](one, usual) for name in names] for one in statistics])


def weights_digest(run: Path) -> str:
    """Return the digest of the weights that a run is used with."""
    return digest_weights(find_weights(run, read_recipe(run)).path)


def read_confidence(run: Path) -> ConfidenceModel:
    """Read the calibration of a run; refuse one that belongs to other weights."""
    path = run / CONFIDENCE
    if is_exported(run):
        raise ConfigError(f"{run} is an exported folder, which has no calibration of confidence; use the run itself")
    if not path.exists():
        raise ConfigError(f"{run} has no calibration of confidence; {CALIBRATE}")
    try:
        model = ConfidenceModel.model_validate_json(path.read_bytes())
        known = model.features.keys() <= (FEATURES | COVERAGE).keys()
    except (OSError, ValueError):
        known = False
    if not known:
        raise CheckpointError(f"{path}: damaged, or made by another version of qkv; move it away, and {CALIBRATE}")
    if model.weights != weights_digest(run):
        raise CheckpointError(f"{path}: made for other weights than those of this run; move it away, and {CALIBRATE}")
    return model
