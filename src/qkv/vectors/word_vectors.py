"""Words and their vectors, in memory or mapped from a folder; the everyday calls are those of gensim's KeyedVectors."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_folder
from qkv.text.files import read_text
from qkv.vectors.search import best_rows
from qkv.vectors.subwords import Subwords
from qkv.vectors.tensors import map_tensors, write_tensors

TENSORS, WORDS = "vectors.safetensors", "words.txt"
SMALL = 0.001  # Levy and Goldberg's epsilon, which keeps 3CosMul from dividing by zero

Part = Literal["input", "output", "sum", "mean"]
PARTS = get_args(Part)
Wanted = str | np.ndarray  # a word, or a vector of one's own


class WordVectors:
    """A vector for each word; for unseen words too where there are subwords."""

    def __init__(
        self,
        words: Sequence[str],
        matrix: np.ndarray,  # (V, D) float32: the vectors that are asked for
        output: np.ndarray | None = None,  # (V, D), the other matrix of training: of words as contexts
        subwords: Subwords | None = None,
        counts: np.ndarray | None = None,  # (V,) int64: how often each word was seen
        input: np.ndarray | None = None,  # (V, D), where `matrix` is a sum or mean of both
    ) -> None:
        self.words, self.subwords, self.counts = list(words), subwords, counts
        self.matrix = np.asarray(matrix, dtype=np.float32)
        self.output, self.input = _floats(output), _floats(input)
        if self.matrix.ndim != 2 or len(self.matrix) != len(self.words):
            raise DataError(f"{len(self.words)} words do not fit an array of shape {self.matrix.shape}; give a row for each")

    @classmethod
    def of_both(cls, words: Sequence[str], input: np.ndarray, output: np.ndarray, result: Part, **more: Any) -> "WordVectors":
        """Vectors that are one of the two matrices of training, or both together; both are kept."""
        if result == "input":
            return cls(words, input, output, **more)
        chosen = output if result == "output" else input + output
        return cls(words, chosen / 2 if result == "mean" else chosen, output, input=input, **more)

    def part(self, which: str) -> "WordVectors":
        """The vectors of one matrix of training, or of both together."""
        if which not in PARTS:
            raise ConfigError(f"the part {which!r} is not known; choose {', '.join(PARTS)}")
        first = self.matrix if self.input is None else self.input
        if which == "input":
            return WordVectors(self.words, first, subwords=self.subwords, counts=self.counts)
        if self.output is None:
            raise ConfigError(f"no output matrix is kept with these vectors; {which} needs one")
        chosen = WordVectors.of_both(self.words, first, self.output, cast(Part, which))
        return WordVectors(self.words, chosen.matrix, counts=self.counts)

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word of the vocabulary; of a word that is there twice, the first."""
        return dict(zip(reversed(self.words), range(len(self) - 1, -1, -1), strict=True))

    @cached_property
    def norms(self) -> np.ndarray:
        """The length of each vector, (V,); 1 for zeros, which then are like nothing."""
        lengths = np.sqrt(np.einsum("vd,vd->v", self.matrix, self.matrix))
        return np.where(lengths > 0, lengths, np.float32(1))

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return self.matrix.shape[1]

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"WordVectors({len(self):,} words, {self.width} wide{', subwords' if self.subwords else ''})"

    def __contains__(self, word: object) -> bool:
        """Whether the word has a vector, be it from subwords."""
        return isinstance(word, str) and (word in self.index or self._unseen(word) is not None)

    def __getitem__(self, words: str | Sequence[str]) -> np.ndarray:
        """The vector of a word, (D,), or those of several, (N, D)."""
        if not isinstance(words, str):
            return np.stack([self[word] for word in words])
        if (row := self.index.get(words)) is not None:
            return self.matrix[row]
        if (vector := self._unseen(words)) is None:
            raise MissingWord(words, next((w for w in (words.lower(), words.title()) if w in self.index), None))
        return vector

    def _unseen(self, word: str) -> np.ndarray | None:
        # What n-grams add up to is like the vectors of words, not like those of contexts or of both.
        return self.subwords.vector(word) if self.subwords and self.input is None else None

    def unit(self, word: Wanted) -> np.ndarray:
        """The vector of a word, or one's own, 1 long, (D,); zeros stay zeros."""
        vector = np.asarray(self[word] if isinstance(word, str) else word, dtype=np.float32)
        if vector.shape != (self.width,):
            raise ConfigError(f"a vector of shape {vector.shape} was given; these are {self.width} wide")
        return vector / (np.linalg.norm(vector) or np.float32(1))

    def similarity(self, first: str, second: str) -> float:
        """The cosine between the vectors of two words."""
        return float(self.unit(first) @ self.unit(second))

    def most_similar(
        self,
        positive: Wanted | Iterable[Wanted] = (),
        negative: Wanted | Iterable[Wanted] = (),
        topn: int = 10,
        limit: int | None = None,
    ) -> list[tuple[str, float]]:
        """Words whose vectors have the highest cosine to the positive ones less the negative ones (3CosAdd), best first.

        The words asked about are left out; `limit` looks at the first so many words only.
        """
        plus, minus = _several(positive), _several(negative)
        query = np.zeros(self.width, np.float32)
        for word in plus:
            query += self.unit(word)
        for word in minus:
            query -= self.unit(word)
        return self._best(lambda rows: self.cosines(self.unit(query)[None], rows), [*plus, *minus], topn, limit)

    def most_similar_cosmul(
        self,
        positive: Wanted | Iterable[Wanted] = (),
        negative: Wanted | Iterable[Wanted] = (),
        topn: int = 10,
        limit: int | None = None,
    ) -> list[tuple[str, float]]:
        """The same by 3CosMul (Levy and Goldberg 2014, equation 5): similarities multiplied and divided, not added."""
        plus, minus = _several(positive), _several(negative)
        above, below = ([self.unit(word)[None] for word in words] for words in (plus, minus))

        def scores(rows: slice) -> np.ndarray:
            return cosmul(*([self.cosines(query, rows) for query in queries] for queries in (above, below)))

        return self._best(scores, [*plus, *minus], topn, limit)

    def cosines(self, queries: np.ndarray, rows: slice) -> np.ndarray:
        """Cosines of (Q, D) queries that are 1 long with some rows: (Q, rows)."""
        if len(queries) > self.width:  # fewer numbers to divide
            return queries @ (self.matrix[rows] / self.norms[rows, None]).T
        return queries @ self.matrix[rows].T / self.norms[rows]

    def _best(
        self, scores: Callable[[slice], np.ndarray], asked: list[Wanted], topn: int, limit: int | None
    ) -> list[tuple[str, float]]:
        if not asked:
            raise ConfigError("nothing to be similar to; give at least one word")
        known = {self.index[word] for word in asked if isinstance(word, str) and word in self.index}
        rows, values = best_rows(scores, min(limit or len(self), len(self)), 1, topn + len(known))
        found = [(self.words[row], float(v)) for row, v in zip(rows[0], values[0], strict=True) if row not in known]
        return found[:topn]

    def save(self, folder: Path | str) -> None:
        """Write a folder: the arrays as safetensors, the words a line each."""
        path = Path(folder)
        if path.exists() and not (path / TENSORS).exists():
            raise ConfigError(f"{path} exists already and holds no vectors; choose another name")
        if wrong := next((word for word in self.words if "\n" in word or not word), None):
            raise DataError(f"the word {wrong!r} cannot stand on a line of its own; leave it out")
        notes = {"format": "qkv-vectors-1"}
        tensors = {"matrix": self.matrix, "output": self.output, "input": self.input, "counts": self.counts}
        if self.subwords:
            tensors |= {"own": self.subwords.own, "buckets": self.subwords.buckets}
            notes |= {"shortest": str(self.subwords.shortest), "longest": str(self.subwords.longest)}
        with atomic_folder(path) as aside:
            write_tensors(aside / TENSORS, {name: array for name, array in tensors.items() if array is not None}, notes)
            with (aside / WORDS).open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{word}\n" for word in self.words)

    @classmethod
    def load(cls, folder: Path | str) -> "WordVectors":
        """Open a folder of vectors, by its name or that of the arrays in it; numbers are read from the disk when asked for."""
        path = Path(folder)
        path = path.parent if path.name == TENSORS else path
        if not (path / TENSORS).exists():
            raise DataError(
                f"{path}: no vectors there (no {TENSORS}); `qkv vectors convert` makes such a folder of other formats"
            )
        tensors, notes = map_tensors(path / TENSORS)
        words = read_text(path / WORDS).split("\n")[:-1]
        matrix = tensors.get("matrix")
        if matrix is None or matrix.ndim != 2 or len(matrix) != len(words):
            shape = "none" if matrix is None else f"one of shape {matrix.shape}"
            raise DataError(
                f"{path}: {len(words):,} words in {WORDS} need a matrix with as many rows, got {shape}; save it again"
            )
        return cls(words, matrix, tensors.get("output"), _subwords(tensors, notes), tensors.get("counts"), tensors.get("input"))


class MissingWord(DataError, KeyError):
    """A word without a vector, where one was asked for."""

    def __init__(self, word: str, like: str | None = None) -> None:
        advice = f"; did you mean {like!r}?" if like else ", and there are no subwords to make a vector of"
        super().__init__(f"{word!r} is not among the words{advice}")

    __str__ = Exception.__str__  # a KeyError would show the line in quotes


def cosmul(above: list[np.ndarray], below: list[np.ndarray]) -> np.ndarray:
    """3CosMul of cosines, brought between 0 and 1: the product of those above by the product of those below."""
    top, bottom = (np.prod([(1 + part) / 2 for part in parts], axis=0) for parts in (above, below))
    return np.asarray(top / (bottom + np.float32(SMALL)), dtype=np.float32)


def _subwords(tensors: dict[str, np.ndarray], notes: dict[str, str]) -> Subwords | None:
    if "buckets" not in tensors:
        return None
    return Subwords(tensors["own"], tensors["buckets"], int(notes["shortest"]), int(notes["longest"]))


def _several(words: Wanted | Iterable[Wanted]) -> list[Wanted]:
    if isinstance(words, str) or (isinstance(words, np.ndarray) and words.ndim == 1):
        return [words]
    return [*words]


def _floats(array: np.ndarray | None) -> np.ndarray | None:
    return None if array is None else np.asarray(array, dtype=np.float32)
