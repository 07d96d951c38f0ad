"""Word vectors to look at: analogies as arrows, t-SNE, and neighbours through training, interrupted or not."""

import json
from pathlib import Path

import numpy as np
import pytest

from qkv.base.errors import ConfigError, DataError
from qkv.base.snapshots import snapshot_files, snapshot_path
from qkv.vectors import hogwild, word2vec
from qkv.vectors.train import METHODS, Method, train_vectors
from qkv.vectors.tsne import joint_probabilities, squared_distances, tsne_2d, tsne_gradient
from qkv.vectors.views import map_words, neighbours_through_training, view_analogy
from qkv.vectors.word_vectors import WordVectors

# Analogies


def countries() -> WordVectors:
    rng = np.random.default_rng(1)
    capital, names = rng.normal(size=6), rng.normal(size=(4, 6))
    matrix = np.concatenate([names, names + capital + rng.normal(size=(4, 6)) / 20])
    return WordVectors(["france", "italy", "spain", "peru", "paris", "rome", "madrid", "lima"], matrix)


def test_both_arrows_are_the_same_and_the_question_keeps_its_distances(tmp_path: Path) -> None:
    vectors = countries()
    seen = view_analogy(vectors, ("france", "paris", "italy"), count=3)
    assert seen.answers == vectors.most_similar(["paris", "italy"], ["france"], topn=3) and seen.answers[0][0] == "rome"
    (a, b), (c, end) = (np.array(arrow) for arrow in seen.arrows)
    np.testing.assert_allclose(b - a, end - c, atol=1e-6)
    for first, second in ((("france", a), ("paris", b)), (("france", a), ("italy", c)), (("paris", b), ("italy", c))):
        far = np.linalg.norm(vectors.unit(first[0]) - vectors.unit(second[0]))
        assert np.linalg.norm(first[1] - second[1]) == pytest.approx(far, rel=1e-5)
    # The best answer is nearer to the corner in the plane than in the whole space.
    corner = vectors.unit("paris") + vectors.unit("italy") - vectors.unit("france")
    assert np.linalg.norm(np.array(seen.points["rome"]) - end) <= np.linalg.norm(vectors.unit("rome") - corner) + 1e-6
    values = json.loads(seen.save(tmp_path / "a.json").read_text())
    assert [one["role"] for one in values["points"]] == ["first", "second", "third", "answer", "answer", "answer"]
    assert 0 < values["explained"] <= 1 and seen.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="are different; change one"):
        view_analogy(vectors, ("france", "paris", "france"))


# t-SNE


def test_the_gradient_is_that_of_the_divergence() -> None:
    rng = np.random.default_rng(2)
    off, step = ~np.eye(9, dtype=bool), 1e-5
    p = joint_probabilities(squared_distances(rng.normal(size=(9, 4))), 3.0).astype(np.float64)
    p, y = p / p[off].sum(), rng.normal(size=(9, 2))

    def divergence(points: np.ndarray) -> float:
        near = 1 / (1 + squared_distances(points))
        np.fill_diagonal(near, 0)
        q = near / near.sum()
        return float((p[off] * np.log(p[off] / q[off])).sum())

    found = tsne_gradient(p, y)
    for word, axis in ((0, 0), (4, 1)):
        more, less = y.copy(), y.copy()
        more[word, axis] += step
        less[word, axis] -= step
        assert found[word, axis] == pytest.approx((divergence(more) - divergence(less)) / (2 * step), rel=1e-4)


def test_each_row_has_the_perplexity_asked_for() -> None:
    turns = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    p = joint_probabilities(squared_distances(np.stack([np.cos(turns), np.sin(turns)], axis=1)), 7.0)
    assert p.sum() == pytest.approx(1, abs=1e-4) and np.allclose(p, p.T)
    row = 40 * np.delete(p[0], 0)  # all points of a circle have the same neighbours, so both directions are alike
    assert np.exp(-(row * np.log(row)).sum()) == pytest.approx(7, rel=1e-3)


def test_clusters_of_a_high_space_stay_together() -> None:
    rng = np.random.default_rng(4)
    vectors = np.concatenate([rng.normal(size=30) * 2 + rng.normal(size=(25, 30)) for _ in range(4)])
    start = rng.normal(size=(100, 2))
    points = tsne_2d(vectors, start, perplexity=10, iterations=500)
    group = np.arange(100) // 25
    distances = squared_distances(points) + np.diag(np.full(100, np.inf))
    assert (group[distances.argmin(axis=1)] == group).all()
    np.testing.assert_array_equal(points, tsne_2d(vectors, start, perplexity=10, iterations=500))


def test_a_map_has_neighbours_to_search(tmp_path: Path) -> None:
    vectors = countries()
    seen = map_words(vectors, [vectors.words[:4], vectors.words[4:]], "tsne")
    values = seen.json()
    assert values["groups"] == [0] * 4 + [1] * 4 and [*values["points"]] == ["pca", "tsne"] and values["counts"] is None
    number, cosine = values["neighbours"][0][0]
    assert (values["words"][number], cosine) == (
        vectors.most_similar("france")[0][0], pytest.approx(vectors.most_similar("france")[0][1], abs=1e-4),
    )  # fmt: skip
    with pytest.raises(ConfigError, match="at most 2,000 words, got 2,001; choose fewer, or pca"):
        map_words(WordVectors([str(n) for n in range(2001)], np.ones((2001, 2))), [[str(n) for n in range(2001)]], "tsne")
    with pytest.raises(ConfigError, match="choose pca or tsne"):
        map_words(vectors, [vectors.words], "umap")


# Neighbours through training


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(word2vec, "CHUNK", 500)
    rng = np.random.default_rng(1)
    sets = (["cat", "dog", "horse", "sheep"], ["hammer", "saw", "drill", "chisel"])
    path = tmp_path / "text.txt"
    path.write_text("\n".join(" ".join(rng.choice(sets[i % 2], 6)) for i in range(1500)) + "\n")
    return path


@pytest.mark.parametrize("method", ["skipgram", "fasttext", "glove"])
def test_snapshots_change_nothing_and_survive_an_interruption(
    method: Method, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"glove": {}, "fasttext": {"buckets": 500, "sample": 0}, "skipgram": {"sample": 0, "result": "sum"}}[method]
    given = {"width": 20, "window": 3, "epochs": 4, "learning_rate": 0.1, "threads": 1, **own}
    plain, kept = (METHODS[method].config.model_validate({**given, "snapshots": count}) for count in (0, 5))
    whole = train_vectors(method, [text], plain, quiet=True).vectors
    train_vectors(method, [text], kept, tmp_path / "whole", quiet=True)
    np.testing.assert_array_equal(WordVectors.load(tmp_path / "whole").matrix, whole.matrix)
    steps = [*snapshot_files(tmp_path / "whole")]
    assert steps[0] == 0 and 2 <= len(steps) <= 5
    if method == "skipgram":
        usual, calls = hogwild.WorkerPool.wait, []

        def interrupted(pool: hogwild.WorkerPool, seconds: float | None = None) -> bool:
            ended = usual(pool, None if seconds is None else 5)
            calls.append(1)
            if len(calls) == 5:
                raise KeyboardInterrupt
            return ended

        with monkeypatch.context() as patch:
            patch.setattr(hogwild.WorkerPool, "wait", interrupted)
            with pytest.raises(hogwild.TrainingInterrupted):
                train_vectors(method, [text], kept, tmp_path / "parts", quiet=True)
        train_vectors(method, [text], kept, tmp_path / "parts", quiet=True)
        assert [*snapshot_files(tmp_path / "parts")] == steps
        for step in steps:
            assert snapshot_path(tmp_path / "parts", step).read_bytes() == snapshot_path(tmp_path / "whole", step).read_bytes()
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    seen = neighbours_through_training(tmp_path / "whole", ["cat", "saw"], 3)
    assert seen.shares[0] == 0 and seen.shares[-1] == 1
    last = WordVectors.load(tmp_path / "whole").most_similar("cat", topn=3)
    assert [word for word, _ in seen.found[-1]["cat"]] == [word for word, _ in last]
    assert [cosine for _, cosine in seen.found[-1]["cat"]] == pytest.approx([cosine for _, cosine in last], abs=2e-3)


def test_neighbours_as_values_and_a_picture(text: Path, tmp_path: Path) -> None:
    config = METHODS["cbow"].config.model_validate({"width": 8, "epochs": 2, "threads": 1, "snapshots": 3})
    train_vectors("cbow", [text], config, tmp_path / "v", quiet=True)
    seen = neighbours_through_training(tmp_path / "v", ["cat"], 2)
    values = json.loads(seen.save(tmp_path / "a.json").read_text())
    assert [len(one["neighbours"]["cat"]) for one in values["snapshots"]] == [2] * len(seen.shares)
    assert seen.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DataError, match="'unicorn' is not in the vocabulary"):
        neighbours_through_training(tmp_path / "v", ["unicorn"])
    WordVectors.load(tmp_path / "v").save(tmp_path / "without")
    with pytest.raises(ConfigError, match="has no snapshots of its training; train vectors with"):
        neighbours_through_training(tmp_path / "without", ["cat"])
