"""What vectors know: similarity sets by Spearman's correlation, analogy sets by the share of right answers.

Words of a set are looked up as written, then in lower case. What is not among the words is left out and counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qkv.base.errors import DataError
from qkv.text.files import read_lines
from qkv.text.metrics import spearman
from qkv.vectors.search import best_rows
from qkv.vectors.word_vectors import WordVectors, cosmul

TOGETHER = 1024  # questions answered at once

Pair = tuple[str, str, float]
Question = tuple[str, str, str, str]  # as b is to a, so d is to c


@dataclass(frozen=True)
class Similarity:
    """How far cosines rank pairs of words as people do."""

    name: str
    spearman: float
    found: int
    pairs: int


@dataclass(frozen=True)
class Section:
    """Answers to one kind of question."""

    name: str
    right: int
    asked: int
    questions: int

    @property
    def accuracy(self) -> float:
        """The share of right answers; 0 where nothing could be asked."""
        return self.right / self.asked if self.asked else 0.0


def read_set(path: Path) -> list[Pair] | dict[str, list[Question]]:
    """A similarity set, two words and a number a line, or an analogy set, four words a line, in sections after a colon."""
    lines = [*_lines(path)]
    if not lines:
        raise DataError(f"{path}: empty; two words and a number a line, or four words, were expected")
    first = lines[0][1]
    return _questions(path, lines) if first.startswith(":") or len(first.split()) == 4 else _pairs(path, lines)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(read_lines(path), 1):
        if line is None:
            raise DataError(f"{path}, line {number}: not UTF-8; convert the file, for example with iconv")
        if line.strip() and not line.startswith("#"):
            yield number, line.strip()


def _pairs(path: Path, lines: list[tuple[int, str]]) -> list[Pair]:
    found = []
    for number, line in lines:
        fields = next((line.split(sign) for sign in "\t," if sign in line), line.split())
        try:
            found.append((fields[0].strip(), fields[1].strip(), float(fields[2])))
        except (IndexError, ValueError):
            if number == lines[0][0]:  # the names of the columns
                continue
            raise DataError(f"{path}, line {number}: two words and a number were expected, got {line[:60]!r}") from None
    if not found:
        raise DataError(f"{path}: no pairs; two words and a number a line were expected")
    return found


def _questions(path: Path, lines: list[tuple[int, str]]) -> dict[str, list[Question]]:
    sections: dict[str, list[Question]] = {}
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
        raise DataError(f"{path}: no questions; four words a line were expected")
    return sections


def judge_similarity(vectors: WordVectors, pairs: list[Pair], name: str) -> Similarity:
    """Spearman's correlation between cosines and people's scores."""
    cosines, scores = [], []
    for first, second, score in pairs:
        a, b = (_spelled(vectors, word) for word in (first, second))
        if a is not None and b is not None:
            cosines.append(vectors.similarity(a, b))
            scores.append(score)
    return Similarity(name, spearman(cosines, scores, undefined=float("nan")), len(scores), len(pairs))


def _spelled(vectors: WordVectors, word: str) -> str | None:
    """The word as the vectors have it; one that only subwords know comes last."""
    for known in (vectors.index, vectors):
        for spelling in (word, word.lower()):
            if spelling in known:
                return spelling
    return None


def judge_analogies(vectors: WordVectors, sections: dict[str, list[Question]], method: str, limit: int | None) -> list[Section]:
    """For each section, how many questions are answered with the very word expected, out of the first `limit` words."""
    size = min(limit or len(vectors), len(vectors))
    return [_section(vectors, name, questions, method, size) for name, questions in sections.items()]


def _section(vectors: WordVectors, name: str, questions: list[Question], method: str, size: int) -> Section:
    rows = [[_row(vectors, word) for word in question] for question in questions]
    asked = np.array([four for four in rows if all(0 <= row < size for row in four)], np.int64).reshape(-1, 4)
    right = sum(
        int((_answers(vectors, some[:, :3], method, size) == some[:, 3]).sum())
        for some in (asked[i : i + TOGETHER] for i in range(0, len(asked), TOGETHER))
    )
    return Section(name, right, len(asked), len(questions))


def _row(vectors: WordVectors, word: str) -> int:
    return vectors.index.get(word, vectors.index.get(word.lower(), -1))


def _answers(vectors: WordVectors, asked: np.ndarray, method: str, size: int) -> np.ndarray:
    """The best row for each question, (Q, 3) -> (Q,); never one of the question's own words."""
    a, b, c = (vectors.matrix[rows] / vectors.norms[rows, None] for rows in asked.T)
    sums = b - a + c  # its length changes no ranking

    def scores(rows: slice) -> np.ndarray:
        if method == "mul":
            found = cosmul([vectors.cosines(b, rows), vectors.cosines(c, rows)], [vectors.cosines(a, rows)])
        else:
            found = vectors.cosines(sums, rows)
        question, which = np.nonzero((asked >= rows.start) & (asked < rows.stop))
        found[question, asked[question, which] - rows.start] = -np.inf
        return found

    return best_rows(scores, size, len(asked), 1)[0][:, 0]


def totals(sections: list[Section]) -> list[Section]:
    """Sections taken together: of meaning, of grammar (their names begin with gram, as in questions-words), and all."""
    grammar = [section for section in sections if section.name.startswith("gram")]
    meaning = [section for section in sections if not section.name.startswith("gram")]
    parts = {"semantic": meaning, "syntactic": grammar} if grammar and meaning else {}
    return [_total(name, some) for name, some in {**parts, "all": sections}.items()]


def _total(name: str, sections: list[Section]) -> Section:
    right, asked, questions = (sum(getattr(s, field) for s in sections) for field in ("right", "asked", "questions"))
    return Section(name, right, asked, questions)
