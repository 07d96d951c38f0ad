"""Similarity and analogy sets: results equal those by hand, coverage is reported, mistakes name their line."""

from pathlib import Path

import numpy as np
import pytest

from qkv.base.errors import DataError
from qkv.vectors import evaluation, search
from qkv.vectors.evaluation import AnalogyResult, evaluate_analogies, evaluate_similarity, read_test_set, totals
from qkv.vectors.word_vectors import WordVectors


@pytest.mark.parametrize(
    "content", ["King\tqueen\t9\nking\tman\t5\nking\tPrince\t7\n", "Word 1,Word 2,Mean\nKing,queen,9\nking,man,5\nking,x,1"]
)
def test_similarity_counts_what_it_found(content: str, vectors: WordVectors, tmp_path: Path) -> None:
    (tmp_path / "set.tsv").write_text(content)
    found = evaluate_similarity(vectors, read_test_set(tmp_path / "set.tsv"), "set")
    nearer = vectors.similarity("king", "queen") > vectors.similarity("king", "man")
    assert (found.spearman, found.found, found.pairs) == (pytest.approx(1 if nearer else -1), 2, 3)


def grid() -> WordVectors:
    """Animals in singular and plural, and one distractor."""
    matrix = [[1, 0, 0, 0], [1, 0, 0, 0.9], [0, 1, 0, 0], [0, 1, 0, 0.9], [0, 0, 1, 0], [0, 0, 1, 0.9], [0, 1, 0.1, 0.1]]
    return WordVectors(["cat", "cats", "dog", "dogs", "Cow", "cows", "hound"], np.array(matrix))


@pytest.mark.parametrize("method", ["add", "mul"])
def test_analogies_by_section(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_SCORES", 8)
    monkeypatch.setattr(evaluation, "BATCH", 3)
    lines = [": animals", "cat cats dog dogs", "cat cats Cow cows", "Dog dogs cat cats", "dog dogs cat cow", "cat cats bee bees"]
    (tmp_path / "set.txt").write_text("\n".join([*lines, ": gram1", "cats cat DOGS dog", "cats cat dogs hound", ""]))
    sections = evaluate_analogies(grid(), read_test_set(tmp_path / "set.txt"), method, None)
    # One of five has out-of-vocabulary words; cow is unknown, Cow is not; one question expects the wrong animal.
    assert sections == [AnalogyResult("animals", 3, 3, 5), AnalogyResult("gram1", 1, 2, 2)]
    assert [(t.name, t.right, t.asked) for t in totals(sections)] == [("semantic", 3, 3), ("syntactic", 1, 2), ("all", 4, 5)]


def test_a_limit_takes_words_out_of_the_questions_too() -> None:
    questions = {"s": [("cat", "cats", "dog", "dogs"), ("cat", "cats", "Cow", "cows")]}
    assert evaluate_analogies(grid(), questions, "add", 4) == [AnalogyResult("s", 1, 1, 2)]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "empty"),
        (b"a b 1\nc d\n", "line 2: two words and a number were expected, got 'c d'"),
        (b"words and more words here\n", "no pairs"),
        (b": s\na b c d\na b c\n", "line 3: four words were expected, got 3"),
        (b": s\n", "no questions"),
        (b"a b 1\n\xff b 2\n", "line 2: not UTF-8"),
    ],
)
def test_mistakes_in_sets(content: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "set.txt").write_bytes(content)
    with pytest.raises(DataError, match=complaint):
        read_test_set(tmp_path / "set.txt")
