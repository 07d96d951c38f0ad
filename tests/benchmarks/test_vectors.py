"""The comparison of word vectors: bands of rare words, and tables where some figures are missing."""

import importlib
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from qkv.vectors.word_vectors import WordVectors


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("vectors_tables")


@pytest.fixture
def vectors() -> WordVectors:
    rng = np.random.default_rng(1)
    words = ["cat", "cats", "dog", "dogs", "cow", "cows"]
    return WordVectors(words, rng.normal(size=(6, 4)), counts=np.array([900, 800, 60, 50, 9, 5]))


def test_pairs_and_questions_fall_into_bands_by_their_rarest_word(tables: ModuleType, vectors: WordVectors) -> None:
    assert tables.bands([50, 500]) == {
        "not seen": (0, 1),
        "under 50": (1, 50),
        "50 to 499": (50, 500),
        "500 and more": (500, math.inf),
    }
    assert [tables.rarest(vectors, item) for item in (("Cat", "cows", 3.0), ("cat", "cats", 1.0), ("cat", "emu", 2.0))] == [
        5,
        800,
        0,
    ]
    pairs = [("cat", "cats", 9.0), ("Cats", "cat", 8.0), ("cat", "dogs", 4.0), ("dog", "cat", 3.0), ("cat", "emu", 1.0)]
    found = tables.by_rarity(vectors, pairs, "pairs", [50, 500])
    assert {band: count for band, (_, count) in found.items()} == {"50 to 499": 2, "500 and more": 2}  # none for one pair
    questions = {"a": [("cat", "cats", "dog", "dogs")] * 2, "b": [("cat", "cats", "cow", "cows")] * 3}
    found = tables.by_rarity(vectors, questions, "questions", [50, 500])
    assert {band: count for band, (_, count) in found.items()} == {"under 50": 3, "50 to 499": 2}


def test_vectors_of_two_matrices_have_figures_for_each(tables: ModuleType, vectors: WordVectors, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("cat cats 9\ncat dogs 1\ncow dog 3\n")
    both = WordVectors.combine(vectors.words, vectors.matrix, vectors.matrix[::-1], "sum", counts=vectors.counts)
    measured = tables.evaluate(both, [tmp_path / "pairs.txt"], [50])
    assert measured["matrices"]["sum"] == measured["quality"] and {*measured["matrices"]} == {"input", "output", "sum"}
    assert "matrices" not in tables.evaluate(vectors, [tmp_path / "pairs.txt"], [50])
    results = {
        "qkv glove": [{"speed": {"entries per second": 5.0}, **measured}] * 2,
        "gensim cbow": [{"speed": {}, "quality": {}}],
    }
    text = tables.tables(results)
    assert "| gensim cbow | - | - |" in text and "5 ± 0" in text and "sum of GloVe" in text and "rare words" in text


def test_a_table_has_a_column_for_each_figure_of_any_row(tables: ModuleType) -> None:
    text = tables.table("system", {"a": [{"set": 10.04}, {"set": 12.0}], "b": [{"MiB": 1234.0}]})
    assert text.splitlines() == ["| system | MiB | set |", "|---|---|---|", "| a | - | 11.0 ± 1.4 |", "| b | 1,234 ± 0 | - |"]
