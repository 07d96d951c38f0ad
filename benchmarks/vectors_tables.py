"""Quality of word vectors by test set, by matrix and by word frequency, and the tables of benchmarks/vectors.py.

A pair or a question counts as rare as its rarest word. With an out-of-vocabulary word it can be answered only by vectors with
n-grams, and only if it is about similarity: the answer to an analogy has to be in the vocabulary.
"""

import itertools
import statistics
from pathlib import Path
from typing import Any

from qkv.vectors.evaluation import Analogy, RatedPair, evaluate_analogies, evaluate_similarity, read_test_set, totals
from qkv.vectors.word_vectors import WordVectors

LIMIT = 30_000  # words among which answers to analogies are searched, as in word2vec's own evaluation
SPEED = ("words per second", "entries per second", "seconds", "training seconds", "MiB")
Figures = dict[str, float]
Results = dict[str, list[dict[str, Any]]]  # for each system, one per seed


def evaluate(vectors: WordVectors, sets: list[Path], rare: list[int]) -> dict[str, Any]:
    """Return all figures of vectors: in all, by matrix if they combine two, and by frequency if counts are known."""
    given = {path.stem: read_test_set(path) for path in sets}
    found: dict[str, Any] = {"quality": quality(vectors, given)}
    if vectors.input is not None:
        found["matrices"] = {part: quality(vectors.part(part), given) for part in ("input", "output", "sum")}
    if vectors.counts is not None:
        found["rarity"] = {name: by_rarity(vectors, test_set, name, rare) for name, test_set in given.items()}
    return found


def quality(vectors: WordVectors, sets: dict[str, Any]) -> Figures:
    """Return Spearman's correlation or the accuracy for each set, times 100."""
    found: Figures = {}
    for name, test_set in sets.items():
        if isinstance(test_set, dict):
            for section in totals(evaluate_analogies(vectors, test_set, "add", LIMIT)):
                found[f"{name} {section.name}"] = 100 * section.accuracy
        else:
            found[name] = 100 * evaluate_similarity(vectors, test_set, name).spearman
    return found


def by_rarity(vectors: WordVectors, test_set: Any, name: str, rare: list[int]) -> dict[str, list[float]]:
    """Return the score for each band of word counts, and the number of pairs or questions in it."""
    flat = list(itertools.chain(*test_set.values())) if isinstance(test_set, dict) else test_set
    found = {}
    for band, (low, high) in bands(rare).items():
        items = [item for item in flat if low <= rarest(vectors, item) < high]
        if isinstance(test_set, dict):
            section = evaluate_analogies(vectors, {name: items}, "add", None)[0]
            found[band] = [100 * section.accuracy, section.asked]
        else:
            similarity = evaluate_similarity(vectors, items, name)
            found[band] = [100 * similarity.spearman, similarity.found]
    return {band: [value, count] for band, (value, count) in found.items() if count > 1}


def bands(ends: list[int]) -> dict[str, tuple[float, float]]:
    """Return ranges of counts by their names."""
    between = {f"{low:,} to {high - 1:,}": (low, high) for low, high in itertools.pairwise(ends)}
    last = f"{ends[-1]:,} and more"
    return {"not seen": (0, 1), f"under {ends[0]:,}": (1, ends[0]), **between, last: (ends[-1], float("inf"))}


def rarest(vectors: WordVectors, item: RatedPair | Analogy) -> int:
    """Return the count of the rarest word of a pair or a question."""
    assert vectors.counts is not None
    rows = [vectors.index.get(word, vectors.index.get(word.lower(), -1)) for word in item if isinstance(word, str)]
    return min(int(vectors.counts[row]) if row >= 0 else 0 for row in rows)


def tables(results: Results) -> str:
    """Return the table of all figures, and those that answer the three questions; mean and standard deviation."""
    main = {system: [run["speed"] | run["quality"] for run in runs] for system, runs in results.items()}
    parts = [table("system", main)]
    if glove := results.get("qkv glove"):
        matrices = {part: [run["matrices"][part] for run in glove] for part in glove[0]["matrices"]}
        parts.append("Is the sum of GloVe's two matrices better than either?\n\n" + table("matrix", matrices))
    if {"qkv glove", "qkv cbow"} <= {*results}:
        both = {system: main[system] for system in ("qkv cbow", "qkv glove")}
        parts.append("Does CBOW or GloVe train faster?\n\n" + table("system", both))
    if counted := {system: runs for system, runs in results.items() if "rarity" in runs[0]}:
        parts.append("What do n-grams gain on rare words? By the count of the rarest word.\n\n" + _rare_words(counted))
    return "\n".join(parts)


def _rare_words(results: Results) -> str:
    """Return a table with a column for each set and band that any system has a score for, with the number of items."""
    runs = {
        system: [
            {f"{name}, {band} ({count:,.0f})": value for name, by in run["rarity"].items() for band, (value, count) in by.items()}
            for run in runs
        ]
        for system, runs in results.items()
    }
    return table("system", runs)


def table(what: str, results: dict[str, list[Figures]]) -> str:
    """Return a Markdown table with a row per result and a column for each figure that any result has."""
    names = list(dict.fromkeys(name for runs in results.values() for run in runs for name in run))
    names.sort(key=lambda name: SPEED.index(name) if name in SPEED else len(SPEED))
    lines = [f"| {what} | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row, runs in results.items():
        cells = [_cell([run[name] for run in runs if name in run], 0 if name in SPEED else 1) for name in names]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(values: list[float], digits: int) -> str:
    if not values:
        return "-"
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):,.{digits}f} ± {spread:,.{digits}f}"
