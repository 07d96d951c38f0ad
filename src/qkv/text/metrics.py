"""How good predictions are, by the measures that each task is reported in; all are fractions, correlations from -1 to 1.

Classes are given as numbers of labels (`labelled.labels_of`), tags as lists of strings, one for each sentence, answers as texts.
A measure that is not defined, such as the correlation with predictions that are all the same, is 0.
"""

import difflib
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from qkv.base.errors import ConfigError

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def accuracy(predicted: Sequence[int], wanted: Sequence[int]) -> float:
    """The share of texts whose class is right."""
    return float(np.mean(np.asarray(predicted) == np.asarray(wanted)))


def f1(predicted: Sequence[int], wanted: Sequence[int], classes: int = 2) -> float:
    """Of two classes the F1 of the second, which is the positive one; of more the mean of each one's F1 (macro).

    `classes` is how many the model tells apart: of three, two may be all that are among some examples.
    """
    table = _confusion(predicted, wanted, classes)
    right, there = np.diag(table), table.sum(0) + table.sum(1)
    each = np.divide(2 * right, there, out=np.zeros(len(table)), where=there > 0)
    return float(each[1] if len(table) == 2 else each[there > 0].mean())


def matthews(predicted: Sequence[int], wanted: Sequence[int]) -> float:
    """The correlation of predicted and wanted classes (Matthews 1975), for more than two in the form of Gorodkin (2004)."""
    table = _confusion(predicted, wanted)
    right, total = np.trace(table), table.sum()
    guessed, there = table.sum(1), table.sum(0)
    spread = (total**2 - guessed @ guessed) * (total**2 - there @ there)
    return float((right * total - guessed @ there) / np.sqrt(spread)) if spread else 0.0


def _confusion(predicted: Sequence[int], wanted: Sequence[int], fewest: int = 2) -> np.ndarray:
    """How often each class was predicted for each wanted one. -> (C, C), C at least `fewest`."""
    pairs = np.asarray([predicted, wanted], dtype=np.int64)
    classes = max(fewest, int(pairs.max(initial=0)) + 1)
    counts = np.bincount(pairs[0] * classes + pairs[1], minlength=classes**2)
    return counts.reshape(classes, classes).astype(float)


def pearson(predicted: Sequence[float], wanted: Sequence[float], undefined: float = 0.0) -> float:
    """Return the linear correlation of two lists of numbers; `undefined` where either of them does not vary."""
    a, b = (np.asarray(side, dtype=float) for side in (predicted, wanted))
    if len(a) == 0 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return undefined
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def spearman(predicted: Sequence[float], wanted: Sequence[float], undefined: float = 0.0) -> float:
    """Return the correlation of ranks; equal numbers share the mean of their ranks."""
    return pearson(_ranks(predicted), _ranks(wanted), undefined)


def _ranks(numbers: Sequence[float]) -> Any:
    _, which, counts = np.unique(np.asarray(numbers), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]


def tag_accuracy(predicted: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> float:
    """The share of words whose tag is right."""
    pairs = [pair for sentence in zip(predicted, wanted, strict=True) for pair in zip(*sentence, strict=True)]
    return sum(a == b for a, b in pairs) / max(1, len(pairs))


def entity_f1(predicted: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> float:
    """F1 of whole entities, type and both ends right, counted over all sentences, as conlleval does."""
    sides = [{(n, *found) for n, tags in enumerate(side) for found in entities(tags)} for side in (predicted, wanted)]
    return 2 * len(sides[0] & sides[1]) / max(1, len(sides[0]) + len(sides[1]))


def entities(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Type, first word and the word after the last of each entity, from BIO tags of any kind (IOB1, IOB2, BIOES).

    One begins at B- or S-, and at a tag that does not go on with the entity before it, such as I- after O or after another type.
    Equal tags side by side that have no such letter are one entity.
    """
    begun, before = 0, "O"
    for place, tag in enumerate([*tags, "O"]):
        if tag == "O" or _begins(before, tag):
            if before != "O":
                yield _parts(before)[1], begun, place
            begun = place
        before = tag


def _begins(before: str, tag: str) -> bool:
    (last, old), (letter, new) = _parts(before), _parts(tag)
    return letter in "BS" or last in "ESO" or old != new


def _parts(tag: str) -> tuple[str, str]:
    """The letter and the type of a tag; one without a letter counts as inside."""
    letter, hyphen, kind = tag.partition("-")
    if tag == "O" or (hyphen and letter in {"B", "I", "E", "S"}):
        return letter, kind
    return "I", tag


def exact_match(predicted: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    """The share of answers that are, normalised, one of those wanted; where none is wanted, "" is right."""
    return _best(lambda a, b: float(normalise_answer(a) == normalise_answer(b)), predicted, wanted)


def answer_f1(predicted: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    """The mean over questions of the F1 of an answer's words, against the wanted answer that is nearest."""
    return _best(_overlap, predicted, wanted)


def _best(score: Callable[[str, str], float], predicted: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    # An answer that is nothing but articles and signs is left out where there are others, as SQuAD's own script does.
    right = [[answer for answer in answers if normalise_answer(answer)] or [""] for answers in wanted]
    each = [max(score(said, answer) for answer in answers) for said, answers in zip(predicted, right, strict=True)]
    return sum(each) / max(1, len(each))


def _overlap(said: str, wanted: str) -> float:
    a, b = normalise_answer(said).split(), normalise_answer(wanted).split()
    if not a or not b:
        return float(a == b)
    return 2 * sum((Counter(a) & Counter(b)).values()) / (len(a) + len(b))


def normalise_answer(answer: str) -> str:
    """An answer as SQuAD compares it: lower case, without punctuation and articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(NO_PUNCTUATION)).split())


class TaskMetric(NamedTuple):
    """A measure of predictions against what is wanted."""

    function: Callable[..., float]  # of predictions and what is wanted
    higher_is_better: bool
    kinds: tuple[str, ...]  # of the objectives whose predictions it takes


METRICS = {
    "accuracy": TaskMetric(accuracy, True, ("classification",)),
    "f1": TaskMetric(f1, True, ("classification",)),
    "matthews": TaskMetric(matthews, True, ("classification",)),
    "spearman": TaskMetric(spearman, True, ("regression",)),
    "pearson": TaskMetric(pearson, True, ("regression",)),
    "entity_f1": TaskMetric(entity_f1, True, ("tagging",)),
    "tag_accuracy": TaskMetric(tag_accuracy, True, ("tagging",)),
    "answer_f1": TaskMetric(answer_f1, True, ("answering",)),
    "exact_match": TaskMetric(exact_match, True, ("answering",)),
}


def metrics_for(kind: str) -> tuple[str, ...]:
    """The measures of an objective; the first is the one it is judged by unless another is asked for."""
    return tuple(name for name, metric in METRICS.items() if kind in metric.kinds)


def find_metric(name: str, kind: str) -> TaskMetric:
    """The measure of that name, which must be one of the objective's."""
    known = metrics_for(kind)
    if name not in known:
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
        raise ConfigError(f"no metric {name!r} of {kind}; {hint}")
    return METRICS[name]
