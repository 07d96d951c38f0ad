"""The handler of word vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.snapshots import snapshot_files
from qkv.base.stepwise import Stepwise
from qkv.serving.base_handler import Handler
from qkv.serving.batching import BatchItem, PreparedRequest, RunningItems
from qkv.serving.errors import invalid
from qkv.serving.views import VIEWS, RunningViews, View, view_at_once, view_in_steps, write_view
from qkv.vectors.plot import pca_2d
from qkv.vectors.tsne import ITERATIONS
from qkv.vectors.views import WordMap, map_in_steps, neighbours_through_training, view_analogy
from qkv.vectors.word_vectors import WordVectors

KEPT = 4  # maps of frequent words, which all visitors see
PAIRS = 100  # of words in an update of t-SNE, that cost as much as a token


@dataclass(frozen=True)
class ProjectedWords:
    """A map of words, and the words that have no vector."""

    map: WordMap
    missing: list[str]

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers."""
        return {**self.map.json(), "missing": self.missing}


class VectorsHandler(Handler):
    """Finds the neighbours of words and maps words to a plane; an item is a request."""

    kind = "vectors"

    def __init__(self, vectors: WordVectors, folder: Path | None = None):
        """`folder` holds the vectors, and may hold snapshots of their training."""
        self.vectors, self.folder = vectors, folder
        self.parameters = int(vectors.matrix.size)
        self.snapshots = 0 if folder is None else len(snapshot_files(folder))
        self.abilities = ["neighbours", "map", "analogy", "projector"]
        self.abilities += ["neighbours_through_training"] if self.snapshots else []
        self.maps: dict[tuple[int, str], View] = {}  # of the most frequent words, by their number and the method

    def try_out(self) -> bool:
        return bool(np.isfinite(self.vectors.norms).all())

    def neighbours(self, word: str, top: int) -> PreparedRequest:
        """Prepare the words most similar to a word, with their similarity."""
        return PreparedRequest(("neighbours", top), [BatchItem(word, 1, 1)], lambda results: results[0])

    def map(self, words: Sequence[str]) -> PreparedRequest:
        """Prepare the first two principal components of the words' vectors, and the words that have no vector."""
        return PreparedRequest(("map",), [BatchItem(list(words), len(words), len(words))], lambda results: results[0])

    def analogy(self, question: tuple[str, str, str], top: int, method: str) -> PreparedRequest:
        """Prepare the answers to an analogy, in a plane."""
        return view_at_once("analogy", lambda: view_analogy(self.vectors, question, top, method), 3, 3 + top)

    def follow(self, words: Sequence[str], top: int) -> PreparedRequest:
        """Prepare the neighbours of words at each snapshot."""
        folder, distinct = self.folder, list(dict.fromkeys(words))
        assert folder is not None
        cost = self.snapshots * len(distinct)
        return view_at_once("follow", lambda: neighbours_through_training(folder, distinct, top), len(distinct), cost)

    def project(self, words: Sequence[str] | None, count: int, method: str) -> PreparedRequest:
        """Prepare a map of words, or of the most frequent ones."""
        chosen = self.vectors.words[:count] if words is None else list(dict.fromkeys(words))
        known = [word for word in chosen if word in self.vectors]
        if len(known) < 2:
            raise invalid("fewer than two of these words have vectors; send others", "words", "unsuitable")
        missing = [word for word in chosen if word not in self.vectors]
        key = (count, method) if words is None else None

        def begin(piece: int) -> Stepwise[View]:
            if key in self.maps:
                return self.maps[key]
            found = ProjectedWords((yield from map_in_steps(self.vectors, [known], method)), missing)
            if key is not None:
                self.maps = {**dict([*self.maps.items()][1 - KEPT :]), key: found}
            return found

        pairs = len(known) ** 2 / PAIRS
        steps = 1 if method == "pca" or key in self.maps else ITERATIONS
        return view_in_steps("projector", begin, len(known), max(1.0, pairs * steps), max(1.0, pairs))

    def compute(self, key: Any, items: Sequence[BatchItem]) -> Sequence[Any]:
        if key[0] == VIEWS:
            return [write_view(item.value()) for item in items]
        if key[0] == "neighbours":
            return [self.vectors.most_similar(item.value, topn=key[1]) for item in items]
        return [self._points(item.value) for item in items]

    def begin(self, items: Sequence[BatchItem], piece: int) -> RunningItems:
        return RunningViews(items, piece)

    def _points(self, words: list[str]) -> tuple[list[tuple[str, float, float]], list[str]]:
        known = [word for word in dict.fromkeys(words) if word in self.vectors]
        missing = [word for word in dict.fromkeys(words) if word not in self.vectors]
        points = pca_2d(self.vectors[known]).tolist() if known else []
        return [(word, x, y) for word, (x, y) in zip(known, points, strict=True)], missing
