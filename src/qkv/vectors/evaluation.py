"""Evaluation of word vectors: Spearman's correlation on similarity sets, accuracy on analogy sets.

Words of a set are looked up as written, then in lower case. Items with out-of-vocabulary words are skipped and counted.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qkv.base.errors import DataError
from qkv.text.files import read_lines
from qkv.text.metrics import spearman
from qkv.vectors.search import top_rows
from qkv.vectors.word_vectors import WordVectors, cosmul

BATCH = 1024  # analogies answered at once

RatedPair = tuple[str, str, float]  # two words and their similarity as people rate it
Analogy = tuple[str, str, str, str]  # a is to b as c is to d
Lines = list[tuple[int, str]]  # lines with their numbers


@dataclass(frozen=True)
class SimilarityResult:
    """Agreement of cosines with people's ratings of word pairs."""

    name: str
    spearman: float
    found: int  # pairs whose words have vectors
    pairs: int


@dataclass(frozen=True)
class AnalogyResult:
    """Accuracy on one section of an analogy set."""

    name: str
    right: int
    asked: int  # questions whose words are in the vocabulary
    questions: int

    @property
    def accuracy(self) -> float:
        """The share of right answers; 0 if no question could be asked."""
        return self.right / self.asked if self.asked else 0.0


def read_test_set(path: Path) -> list[RatedPair] | dict[str, list[Analogy]]:
    """Read a similarity set (two words and a number per line) or an analogy set (four words per line, in sections after
    a colon).
    """
    lines: Lines = []
    for number, line in enumerate(read_lines(path), 1):
        if line is None:
            raise DataError(f"{path}, line {number}: not UTF-8; convert the file, for example with iconv")
        if line.strip() and not line.startswith("#"):
            lines.append((number, line.strip()))
    if not lines:
        raise DataError(f"{path}: empty; two words and a number per line, or four words, were expected")
    first = lines[0][1]
    is_analogy_set = first.startswith(":") or len(first.split()) == 4
    return _parse_analogies(path, lines) if is_analogy_set else _parse_rated_pairs(path, lines)


def _parse_rated_pairs(path: Path, lines: Lines) -> list[RatedPair]:
    pairs = []
    for number, line in lines:
        fields = next((line.split(sign) for sign in "\t," if sign in line), line.split())
        try:
            pairs.append((fields[0].strip(), fields[1].strip(), float(fields[2])))
        except (IndexError, ValueError):
            if number == lines[0][0]:  # column names
                continue
            raise DataError(f"{path}, line {number}: two words and a number were expected, got {line[:60]!r}") from None
    if not pairs:
        raise DataError(f"{path}: no pairs; two words and a number per line were expected")
    return pairs


def _parse_analogies(path: Path, lines: Lines) -> dict[str, list[Analogy]]:
    sections: dict[str, list[Analogy]] = {}
    name = path.stem
    for number, line in lines:
        words = line.split()
        if line.startswith(":"):
            name = line[1:].strip()
        elif len(words) == 4:
            sections.setdefault(name, []).append((words[0], words[1], words[2], words[3]))
        else:
            raise DataError(f"{path}, line {number}: four words were expected, got {len(words)}")
    if not sections:
        raise DataError(f"{path}: no questions; four words per line were expected")
    return sections


def evaluate_similarity(vectors: WordVectors, pairs: list[RatedPair], name: str) -> SimilarityResult:
    """Return Spearman's correlation between cosines and ratings."""
    cosines, ratings = [], []
    for first, second, rating in pairs:
        a, b = (_known_spelling(vectors, word) for word in (first, second))
        if a is not None and b is not None:
            cosines.append(vectors.similarity(a, b))
            ratings.append(rating)
    return SimilarityResult(name, spearman(cosines, ratings, undefined=float("nan")), len(ratings), len(pairs))


def _known_spelling(vectors: WordVectors, word: str) -> str | None:
    """Return the word or its lower case, whichever has a vector; the vocabulary comes before subwords."""
    for known in (vectors.index, vectors):
        for spelling in (word, word.lower()):
            if spelling in known:
                return spelling
    return None


def evaluate_analogies(
    vectors: WordVectors, sections: dict[str, list[Analogy]], method: str, limit: int | None
) -> list[AnalogyResult]:
    """Count the exact right answers of each section, by 3CosAdd (add) or 3CosMul (mul) over the first `limit` words."""
    size = min(limit or len(vectors), len(vectors))
    results = []
    for name, questions in sections.items():
        rows = [[vectors.index.get(word, vectors.index.get(word.lower(), -1)) for word in question] for question in questions]
        asked = np.array([four for four in rows if all(0 <= row < size for row in four)], np.int64).reshape(-1, 4)
        right = 0
        for start in range(0, len(asked), BATCH):
            batch = asked[start : start + BATCH]
            right += int((_answer_analogies(vectors, batch[:, :3], method, size) == batch[:, 3]).sum())
        results.append(AnalogyResult(name, right, len(asked), len(questions)))
    return results


def _answer_analogies(vectors: WordVectors, asked: np.ndarray, method: str, size: int) -> np.ndarray:
    """Return the best row for each question, never one of its own words: (Q, 3) -> (Q,)."""
    a, b, c = (vectors.matrix[rows] / vectors.norms[rows, None] for rows in asked.T)
    offsets = b - a + c  # not scaled to norm 1, which would not change the ranking

    def score_rows(rows: slice) -> np.ndarray:
        if method == "mul":
            scores = cosmul([vectors.cosines(b, rows), vectors.cosines(c, rows)], [vectors.cosines(a, rows)])
        else:
            scores = vectors.cosines(offsets, rows)
        question, column = np.nonzero((asked >= rows.start) & (asked < rows.stop))
        scores[question, asked[question, column] - rows.start] = -np.inf
        return scores

    return top_rows(score_rows, size, len(asked), 1)[0][:, 0]


def totals(sections: list[AnalogyResult]) -> list[AnalogyResult]:
    """Sum sections: semantic, syntactic (names begin with gram, as in questions-words) and all."""
    syntactic = [section for section in sections if section.name.startswith("gram")]
    semantic = [section for section in sections if not section.name.startswith("gram")]
    groups = {"semantic": semantic, "syntactic": syntactic} if syntactic and semantic else {}
    sums = []
    for name, group in {**groups, "all": sections}.items():
        right, asked, questions = (sum(getattr(s, field) for s in group) for field in ("right", "asked", "questions"))
        sums.append(AnalogyResult(name, right, asked, questions))
    return sums
