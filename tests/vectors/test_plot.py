"""The map: PCA's plane, and labels that do not overlap."""

from pathlib import Path

import numpy as np
import pytest

from qkv.vectors import plot
from qkv.vectors.plot import pca_2d, plot_words
from qkv.vectors.word_vectors import WordVectors


def test_the_plane_holds_the_most_variance() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(40, 6)) * [1, 5, 1, 1, 9, 1]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    largest = np.linalg.eigvalsh(np.cov(unit.T, bias=True))[-2:]
    assert np.sort(pca_2d(vectors).var(axis=0)) == pytest.approx(largest)
    assert pca_2d(np.ones((1, 3))).tolist() == [[0, 0]]


def test_labels_do_not_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[plot.Box] = []
    room = plot._free_box
    monkeypatch.setattr(plot, "_free_box", lambda *args: (placed.append(box), box)[1] if (box := room(*args)) else None)
    rng = np.random.default_rng(1)
    words = [f"word{i}$" for i in range(60)]
    vectors = WordVectors(words, rng.normal(size=(60, 3)))
    left_out = plot_words(vectors, [words[:30], words[30:]], "a map", tmp_path / "map.png")
    assert len(placed) + left_out == 60 and left_out < 10
    for i, box in enumerate(placed):
        assert not plot._overlaps(box, np.array([other for j, other in enumerate(placed) if j != i]))
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["map.png"]


def test_words_without_room_are_counted(tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(200)]
    assert plot_words(WordVectors(words, np.ones((200, 3))), [words], "all in one place", tmp_path / "map.png") > 100
