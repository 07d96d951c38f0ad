"""Word vectors to look at: analogies as arrows, neighbours through training, and a map to search in; as values and pictures."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.base.stepwise import Stepwise, complete
from qkv.vectors.plot import pca_2d, plot_points
from qkv.vectors.snapshots import read_snapshots, require_frequent
from qkv.vectors.tsne import MAX_WORDS, tsne_in_steps
from qkv.vectors.word_vectors import WordVectors

NEIGHBOURS = 8  # of each word of a map
METHODS = ("pca", "tsne")


@dataclass(frozen=True, repr=False)
class AnalogyView:
    """An analogy in the plane: the arrow from the first word to the second, and the same arrow from the third."""

    question: tuple[str, str, str]
    method: str  # add or mul
    answers: list[tuple[str, float]]  # best first
    points: dict[str, tuple[float, float]]  # of the question's words and of the answers
    end: tuple[float, float]  # of the second arrow
    explained: float  # share of the squared distances from the first word that lies in the plane

    @property
    def arrows(self) -> list[tuple[tuple[float, float], tuple[float, float]]]:
        """Both arrows, each from where to where; they are parallel."""
        first, second, third = (self.points[word] for word in self.question)
        return [(first, second), (third, self.end)]

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, rounded to four digits."""
        roles = dict(zip(self.question, ("first", "second", "third"), strict=True))
        return {
            "view": "analogy",
            "question": list(self.question),
            "method": self.method,
            "answers": [{"word": word, "score": round(score, 4)} for word, score in self.answers],
            "points": [
                {"word": word, "x": round(x, 4), "y": round(y, 4), "role": roles.get(word, "answer")}
                for word, (x, y) in self.points.items()
            ],
            "arrows": [{"from": _rounded(start), "to": _rounded(end)} for start, end in self.arrows],
            "explained": round(self.explained, 4),
        }

    def save(self, path: Path) -> Path:
        """Write the values as .json, or a picture as .png."""
        if path.suffix == ".json":
            return write_json(self.json(), path)
        first, second, third = self.question
        rest = [word for word in self.points if word not in self.question]
        corner = f"{third} + {second} − {first}"
        groups = [[first, second], [third, corner], rest]
        positions = {**self.points, corner: self.end}
        points = np.array([positions[word] for group in groups for word in group])
        title = f"{first} : {second} = {third} : {self.answers[0][0] if self.answers else '?'}"
        plot_points(points, groups, title, path, self.arrows)
        return path

    def __repr__(self) -> str:
        first, second, third = self.question
        return f"AnalogyView({first} : {second} = {third} : {', '.join(word for word, _ in self.answers[:3])})"


def view_analogy(
    vectors: WordVectors, question: tuple[str, str, str], count: int = 5, method: str = "add", limit: int | None = None
) -> AnalogyView:
    """Answer "first is to second as third is to which words?", and project all words to the plane of the question.

    >>> view_analogy(vectors, ("man", "king", "woman")).save(Path("arrows.png"))
    """
    first, second, third = question
    if len({*question}) < 3:
        raise ConfigError(f"{' '.join(question)}: the three words of an analogy are different; change one")
    search = vectors.most_similar_cosmul if method == "mul" else vectors.most_similar
    answers = search([second, third], [first], topn=count, limit=limit)
    words = [*question, *(word for word, _ in answers)]
    unit = np.stack([vectors.unit(word) for word in words])
    # The plane of the question: its words, and the corner that completes them to a parallelogram, have their true distances.
    axes = np.linalg.qr(np.stack([unit[1] - unit[0], unit[2] - unit[0]], axis=1))[0].T
    axes *= np.sign([[axes[0] @ (unit[1] - unit[0])], [axes[1] @ (unit[2] - unit[0])]])
    points = (unit - unit[0]) @ axes.T
    end = points[1] + points[2]
    total = float(((unit - unit[0]) ** 2).sum()) or 1.0
    positions = {word: (float(x), float(y)) for word, (x, y) in zip(words, points, strict=True)}
    return AnalogyView(question, method, answers, positions, (float(end[0]), float(end[1])), float((points**2).sum()) / total)


@dataclass(frozen=True, repr=False)
class NeighboursThroughTraining:
    """The nearest words of some words at each snapshot of the training of their vectors."""

    words: list[str]
    shares: list[float]  # of the training that was done
    found: list[dict[str, list[tuple[str, float]]]]  # for each snapshot, the neighbours of each word with their cosines

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, rounded to four digits."""
        snapshots = [
            {
                "share": round(share, 4),
                "neighbours": {word: [{"word": w, "cosine": round(c, 4)} for w, c in near] for word, near in found.items()},
            }
            for share, found in zip(self.shares, self.found, strict=True)
        ]
        return {"view": "neighbours", "words": self.words, "snapshots": snapshots}

    def save(self, path: Path) -> Path:
        """Write the values as .json, or a picture as .png: the cosines of the last neighbours at each snapshot."""
        if path.suffix == ".json":
            return write_json(self.json(), path)
        from qkv.vectors.training_plot import plot_neighbours

        plot_neighbours(self, path)
        return path

    def __repr__(self) -> str:
        return f"NeighboursThroughTraining({', '.join(self.words)}: {len(self.shares)} snapshots)"


def neighbours_through_training(folder: Path, words: Sequence[str], count: int = 10) -> NeighboursThroughTraining:
    """Find the nearest words of each word at each snapshot of a folder of vectors, among the most frequent words."""
    vectors = WordVectors.load(folder)
    snapshots = read_snapshots(folder, vectors)
    for word in words:
        require_frequent(word, vectors)
    found = [{word: then.most_similar(word, topn=count) for word in words} for _, then in snapshots]
    return NeighboursThroughTraining([*words], [share for share, _ in snapshots], found)


@dataclass(frozen=True, repr=False)
class WordMap:
    """Words in two dimensions, by PCA and, if asked for, by t-SNE, with their neighbours: to be searched in a page."""

    groups: list[list[str]]
    points: dict[str, np.ndarray]  # (N, 2) for each method
    neighbours: list[list[tuple[int, float]]]  # of each word, among these words: number and cosine
    counts: list[int] | None  # how often each word occurred

    @property
    def words(self) -> list[str]:
        return [word for group in self.groups for word in group]

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, rounded to four digits."""
        return {
            "view": "map",
            "words": self.words,
            "groups": [number for number, group in enumerate(self.groups) for _ in group],
            "points": {method: [_rounded(point) for point in points.tolist()] for method, points in self.points.items()},
            "neighbours": [[[number, round(cosine, 4)] for number, cosine in near] for near in self.neighbours],
            "counts": self.counts,
        }

    def __repr__(self) -> str:
        return f"WordMap({len(self.words):,} words by {' and '.join(self.points)})"


def map_words(vectors: WordVectors, groups: list[list[str]], method: str = "pca") -> WordMap:
    """Project words to a plane by PCA, and also by t-SNE if that is the method."""
    return complete(map_in_steps(vectors, groups, method))


def map_in_steps(vectors: WordVectors, groups: list[list[str]], method: str = "pca") -> Stepwise[WordMap]:
    """Compute the same, one update of t-SNE in each step."""
    if method not in METHODS:
        raise ConfigError(f"no method {method!r} of projection; choose {' or '.join(METHODS)}")
    words = [word for group in groups for word in group]
    if method == "tsne" and len(words) > MAX_WORDS:
        raise ConfigError(f"t-SNE is for at most {MAX_WORDS:,} words, got {len(words):,}; choose fewer, or pca")
    chosen = np.asarray(vectors[words], dtype=np.float32)
    points = {"pca": pca_2d(chosen)}
    if method == "tsne":
        points["tsne"] = (yield from tsne_in_steps(chosen, points["pca"])) if len(words) > 3 else points["pca"]
    among = WordVectors(words, chosen)
    rows = {word: number for number, word in enumerate(words)}
    near = [[(rows[other], cosine) for other, cosine in among.most_similar(word, topn=NEIGHBOURS)] for word in words]
    counts = None
    if vectors.counts is not None and all(word in vectors.index for word in words):
        counts = [int(vectors.counts[vectors.index[word]]) for word in words]
    return WordMap(groups, points, near, counts)


def write_json(values: dict[str, Any], path: Path) -> Path:
    """Write plain values as a JSON file, atomically."""
    with atomic_file(path) as aside:
        aside.write_text(json.dumps(values, ensure_ascii=False, allow_nan=False), encoding="utf-8")
    return path


def _rounded(point: Sequence[float]) -> list[float]:
    return [round(float(number), 4) for number in point]
