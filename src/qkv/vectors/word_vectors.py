"""Words and their vectors, in memory or memory-mapped from a folder; lookups are called as in gensim's KeyedVectors.

V words, D width, Q queries.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_folder
from qkv.text.files import read_text
from qkv.vectors.search import top_rows
from qkv.vectors.subwords import Subwords
from qkv.vectors.tensors import map_tensors, write_tensors

TENSORS, WORDS = "vectors.safetensors", "words.txt"
EPSILON = 0.001  # of 3CosMul (Levy and Goldberg 2014), against division by zero

Part = Literal["input", "output", "sum", "mean"]
PARTS = get_args(Part)
Query = str | np.ndarray  # a word, or a vector of the caller's


class WordVectors:
    """A vector for each word of a vocabulary; with subwords, for out-of-vocabulary words too.

    >>> vectors = WordVectors.load("runs/skipgram")
    >>> vectors.most_similar(positive=["king", "woman"], negative=["man"], topn=1)
    """

    def __init__(
        self,
        words: Sequence[str],
        matrix: np.ndarray,  # (V, D) float32: the vectors that lookups use
        output: np.ndarray | None = None,  # (V, D): the output matrix of training, vectors of words as contexts
        subwords: Subwords | None = None,
        counts: np.ndarray | None = None,  # (V,) int64: how often each word occurred
        input: np.ndarray | None = None,  # (V, D): the input matrix of training, where it is not `matrix` itself
    ) -> None:
        self.words, self.subwords, self.counts = list(words), subwords, counts
        self.matrix = np.asarray(matrix, dtype=np.float32)
        self.output = None if output is None else np.asarray(output, dtype=np.float32)
        self.input = None if input is None else np.asarray(input, dtype=np.float32)
        if self.matrix.ndim != 2 or len(self.matrix) != len(self.words):
            raise DataError(f"{len(self.words)} words do not fit an array of shape {self.matrix.shape}; give a row for each")

    @classmethod
    def combine(cls, words: Sequence[str], input: np.ndarray, output: np.ndarray, result: Part, **more: Any) -> "WordVectors":
        """Build vectors from the input matrix, the output matrix, or their sum or mean; keep both matrices."""
        if result == "input":
            return cls(words, input, output, **more)
        chosen = output if result == "output" else input + output
        return cls(words, chosen / 2 if result == "mean" else chosen, output, input=input, **more)

    def part(self, which: str) -> "WordVectors":
        """Return the vectors of the input matrix, the output matrix, or their sum or mean."""
        if which not in PARTS:
            raise ConfigError(f"part {which!r} is not known; choose {', '.join(PARTS)}")
        inputs = self.matrix if self.input is None else self.input
        if which == "input":
            return WordVectors(self.words, inputs, subwords=self.subwords, counts=self.counts)
        if self.output is None:
            raise ConfigError(f"these vectors have no output matrix, which part {which} needs; choose input")
        chosen = WordVectors.combine(self.words, inputs, self.output, cast(Part, which))
        return WordVectors(self.words, chosen.matrix, counts=self.counts)

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word of the vocabulary; the first one of a repeated word."""
        return dict(zip(reversed(self.words), range(len(self) - 1, -1, -1), strict=True))

    @cached_property
    def norms(self) -> np.ndarray:
        """The norm of each vector, (V,); 1 for zero vectors, so that their cosines are 0."""
        norms = np.sqrt(np.einsum("vd,vd->v", self.matrix, self.matrix))
        return np.where(norms > 0, norms, np.float32(1))

    @property
    def width(self) -> int:
        """The dimension of a vector."""
        return self.matrix.shape[1]

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"WordVectors({len(self):,} words, {self.width} wide{', subwords' if self.subwords else ''})"

    def __contains__(self, word: object) -> bool:
        """Return whether the word has a vector, from the vocabulary or from subwords."""
        return isinstance(word, str) and (word in self.index or self._oov_vector(word) is not None)

    def __getitem__(self, words: str | Sequence[str]) -> np.ndarray:
        """Return the vector of a word, (D,), or of several words, (N, D)."""
        if not isinstance(words, str):
            return np.stack([self[word] for word in words])
        if (row := self.index.get(words)) is not None:
            return self.matrix[row]
        if (vector := self._oov_vector(words)) is None:
            raise MissingWord(words, next((w for w in (words.lower(), words.title()) if w in self.index), None))
        return vector

    def _oov_vector(self, word: str) -> np.ndarray | None:
        # Sums of n-grams are comparable with input vectors only, not with output vectors or combinations.
        return self.subwords.vector(word) if self.subwords and self.input is None else None

    def unit(self, query: Query) -> np.ndarray:
        """Return the vector of a word, or a given vector, at norm 1, (D,); zeros stay zeros."""
        vector = np.asarray(self[query] if isinstance(query, str) else query, dtype=np.float32)
        if vector.shape != (self.width,):
            raise ConfigError(f"got a vector of shape {vector.shape}; these are {self.width} wide")
        return vector / (np.linalg.norm(vector) or np.float32(1))

    def similarity(self, first: str, second: str) -> float:
        """Return the cosine similarity of two words."""
        return float(self.unit(first) @ self.unit(second))

    def most_similar(
        self,
        positive: Query | Iterable[Query] = (),
        negative: Query | Iterable[Query] = (),
        topn: int = 10,
        limit: int | None = None,
    ) -> list[tuple[str, float]]:
        """Return the words nearest to the positive queries minus the negative ones (3CosAdd) with their cosines, best first.

        The query words themselves are left out; `limit` searches the first `limit` words of the vocabulary only.
        """
        plus, minus = _as_list(positive), _as_list(negative)
        total = np.zeros(self.width, np.float32)
        for query in plus:
            total += self.unit(query)
        for query in minus:
            total -= self.unit(query)
        return self._search(lambda rows: self.cosines(self.unit(total)[None], rows), [*plus, *minus], topn, limit)

    def most_similar_cosmul(
        self,
        positive: Query | Iterable[Query] = (),
        negative: Query | Iterable[Query] = (),
        topn: int = 10,
        limit: int | None = None,
    ) -> list[tuple[str, float]]:
        """Search as `most_similar` does, by 3CosMul (Levy and Goldberg 2014, equation 5): a ratio of products of cosines."""
        plus, minus = _as_list(positive), _as_list(negative)
        above, below = ([self.unit(query)[None] for query in queries] for queries in (plus, minus))

        def score_rows(rows: slice) -> np.ndarray:
            return cosmul(*([self.cosines(unit, rows) for unit in units] for units in (above, below)))

        return self._search(score_rows, [*plus, *minus], topn, limit)

    def cosines(self, queries: np.ndarray, rows: slice) -> np.ndarray:
        """Return the cosines of unit queries (Q, D) with some rows of the matrix: (Q, rows)."""
        if len(queries) > self.width:  # fewer divisions this way
            return queries @ (self.matrix[rows] / self.norms[rows, None]).T
        return queries @ self.matrix[rows].T / self.norms[rows]

    def _search(
        self, score_rows: Callable[[slice], np.ndarray], queries: list[Query], topn: int, limit: int | None
    ) -> list[tuple[str, float]]:
        if not queries:
            raise ConfigError("nothing to be similar to; give at least one word")
        excluded = {self.index[query] for query in queries if isinstance(query, str) and query in self.index}
        rows, values = top_rows(score_rows, min(limit or len(self), len(self)), 1, topn + len(excluded))
        found = [(self.words[row], float(v)) for row, v in zip(rows[0], values[0], strict=True) if row not in excluded]
        return found[:topn]

    def save(self, folder: Path | str) -> None:
        """Write a folder: the arrays as safetensors, the words one per line."""
        path = Path(folder)
        if path.exists() and not (path / TENSORS).exists():
            raise ConfigError(f"{path} exists already and holds no vectors; choose another name")
        if wrong := next((word for word in self.words if "\n" in word or not word), None):
            raise DataError(f"the word {wrong!r} cannot stand on a line of its own; leave it out")
        metadata = {"format": "qkv-vectors-1"}
        tensors = {"matrix": self.matrix, "output": self.output, "input": self.input, "counts": self.counts}
        if self.subwords:
            tensors |= {"own": self.subwords.word_rows, "buckets": self.subwords.bucket_rows}
            metadata |= {"shortest": str(self.subwords.min_n), "longest": str(self.subwords.max_n)}
        with atomic_folder(path) as aside:
            write_tensors(aside / TENSORS, {name: array for name, array in tensors.items() if array is not None}, metadata)
            with (aside / WORDS).open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{word}\n" for word in self.words)

    @classmethod
    def load(cls, folder: Path | str) -> "WordVectors":
        """Open a folder of vectors, or the safetensors file in it; arrays are memory-mapped."""
        path = Path(folder)
        path = path.parent if path.name == TENSORS else path
        if not (path / TENSORS).exists():
            raise DataError(
                f"{path}: holds no vectors (no {TENSORS}); `qkv vectors convert` makes such a folder from other formats"
            )
        tensors, metadata = map_tensors(path / TENSORS)
        words = read_text(path / WORDS).split("\n")[:-1]
        matrix = tensors.get("matrix")
        if matrix is None or matrix.ndim != 2 or len(matrix) != len(words):
            shape = "none" if matrix is None else f"one of shape {matrix.shape}"
            raise DataError(
                f"{path}: {len(words):,} words in {WORDS} need a matrix with as many rows, got {shape}; save it again"
            )
        subwords = None
        if "buckets" in tensors:
            subwords = Subwords(tensors["own"], tensors["buckets"], int(metadata["shortest"]), int(metadata["longest"]))
        return cls(words, matrix, tensors.get("output"), subwords, tensors.get("counts"), tensors.get("input"))


class MissingWord(DataError, KeyError):
    """A word without a vector."""

    def __init__(self, word: str, like: str | None = None) -> None:
        advice = f"; did you mean {like!r}?" if like else ", and there are no subwords to build a vector from"
        super().__init__(f"{word!r} is not in the vocabulary{advice}")

    __str__ = Exception.__str__  # KeyError would print the message in quotes


def cosmul(above: list[np.ndarray], below: list[np.ndarray]) -> np.ndarray:
    """Return 3CosMul: the product of the cosines above, shifted to [0, 1], divided by the product of those below."""
    top, bottom = (np.prod([(1 + part) / 2 for part in parts], axis=0) for parts in (above, below))
    return np.asarray(top / (bottom + np.float32(EPSILON)), dtype=np.float32)


def _as_list(queries: Query | Iterable[Query]) -> list[Query]:
    if isinstance(queries, str) or (isinstance(queries, np.ndarray) and queries.ndim == 1):
        return [queries]
    return [*queries]
