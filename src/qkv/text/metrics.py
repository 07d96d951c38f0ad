"""Metrics of fine-tuning tasks, as the literature reports them: fractions, or correlations from -1 to 1.

Higher is better for all of them. Classes are indices of labels (`examples.find_labels`), tags are lists of strings, one per
sentence, and answers are texts. A metric that is not defined, such as the correlation with constant predictions, is 0.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def accuracy(predicted: Sequence[int], wanted: Sequence[int], classes: int = 2) -> float:
    """Return the share of right classes, however many `classes` the model has."""
    return float(np.mean(np.asarray(predicted) == np.asarray(wanted)))


def f1(predicted: Sequence[int], wanted: Sequence[int], classes: int = 2) -> float:
    """Return the F1 of the second class, the positive one, if there are two classes; else the mean F1 of all classes (macro).

    `classes` is the number of classes of the model; the examples may have fewer.
    """
    table = _confusion(predicted, wanted, classes)
    right, total = np.diag(table), table.sum(0) + table.sum(1)
    each = np.divide(2 * right, total, out=np.zeros(len(table)), where=total > 0)
    return float(each[1] if len(table) == 2 else each[total > 0].mean())


def matthews(predicted: Sequence[int], wanted: Sequence[int], classes: int = 2) -> float:
    """Return the correlation of predicted and wanted classes (Matthews 1975; Gorodkin 2004 for more than two).

    It does not change with `classes` that never occur.
    """
    table = _confusion(predicted, wanted, classes)
    right, total = np.trace(table), table.sum()
    guesses, truths = table.sum(1), table.sum(0)
    spread = (total**2 - guesses @ guesses) * (total**2 - truths @ truths)
    return float((right * total - guesses @ truths) / np.sqrt(spread)) if spread else 0.0


def _confusion(predicted: Sequence[int], wanted: Sequence[int], fewest: int = 2) -> np.ndarray:
    """Count how often each class was predicted for each wanted one. -> (C, C), C at least `fewest`."""
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


def roc_auc(predicted: Sequence[float], wanted: Sequence[float]) -> float:
    """Return the probability that a positive example (`wanted` is 1) is predicted higher than a negative one; ties count half.

    This is the area under the ROC curve, from the ranks of the positive examples (Mann and Whitney 1947).
    """
    truth = np.asarray(wanted, dtype=bool)
    positive, negative = int(truth.sum()), int((~truth).sum())
    if not positive or not negative:
        return 0.0
    return float((_ranks(predicted)[truth].sum() - positive * (positive + 1) / 2) / (positive * negative))


def _ranks(numbers: Sequence[float]) -> Any:
    _, index, counts = np.unique(np.asarray(numbers), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[index]


def tag_accuracy(predicted: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> float:
    """Return the share of words with the right tag."""
    pairs = [pair for sentence in zip(predicted, wanted, strict=True) for pair in zip(*sentence, strict=True)]
    return sum(a == b for a, b in pairs) / max(1, len(pairs))


def entity_f1(predicted: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> float:
    """Return the F1 of whole entities (type and both ends right) over all sentences, as conlleval does."""
    sides = [{(n, *found) for n, tags in enumerate(side) for found in entities(tags)} for side in (predicted, wanted)]
    return 2 * len(sides[0] & sides[1]) / max(1, len(sides[0]) + len(sides[1]))


def entities(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the type, the first word and the end of each entity, from BIO tags of any scheme (IOB1, IOB2, BIOES).

    An entity begins at B- or S-, and at a tag that does not continue the entity before it, such as I- after O or another type.
    Neighbouring equal tags without such a letter are one entity.
    """
    start, before = 0, "O"
    for word, tag in enumerate([*tags, "O"]):
        (last_letter, last_kind), (letter, kind) = _split_tag(before), _split_tag(tag)
        if tag == "O" or letter in "BS" or last_letter in "ESO" or last_kind != kind:
            if before != "O":
                yield last_kind, start, word
            start = word
        before = tag


def _split_tag(tag: str) -> tuple[str, str]:
    """Return the letter and the type of a tag; without a letter it counts as inside."""
    letter, hyphen, kind = tag.partition("-")
    if tag == "O" or (hyphen and letter in {"B", "I", "E", "S"}):
        return letter, kind
    return "I", tag


def exact_match(predicted: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    """Return the share of answers that equal, normalised, one of those wanted; for an unanswerable question "" is right."""
    return _best(lambda a, b: float(normalise_answer(a) == normalise_answer(b)), predicted, wanted)


def answer_f1(predicted: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    """Return the mean over questions of the F1 of an answer's words, against the nearest wanted answer."""
    return _best(_word_f1, predicted, wanted)


def _best(score: Callable[[str, str], float], predicted: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    """Return the mean score against the best wanted answer."""
    # An answer of articles and signs only is left out if there are others, as SQuAD's own script does.
    right = [[answer for answer in answers if normalise_answer(answer)] or [""] for answers in wanted]
    each = [max(score(guess, answer) for answer in answers) for guess, answers in zip(predicted, right, strict=True)]
    return sum(each) / max(1, len(each))


def _word_f1(predicted: str, wanted: str) -> float:
    a, b = normalise_answer(predicted).split(), normalise_answer(wanted).split()
    if not a or not b:
        return float(a == b)
    return 2 * sum((Counter(a) & Counter(b)).values()) / (len(a) + len(b))


def normalise_answer(answer: str) -> str:
    """Normalise an answer as SQuAD's script does: lower case, no punctuation, no articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(NO_PUNCTUATION)).split())
