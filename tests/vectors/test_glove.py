"""GloVe: counts equal brute force at any memory; an update equals the formula in NumPy; a full disk leaves one line of error."""

import errno
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from qkv.base.errors import DataError, QkvError
from qkv.base.files import atomic_folder
from qkv.vectors import cooccurrence
from qkv.vectors.cooccurrence import PAIR, count_cooccurrences, open_cooccurrences
from qkv.vectors.corpus import open_corpus
from qkv.vectors.glove import GloVeConfig, GloVeTrainer
from qkv.vectors.kernels.glove import train_pairs
from qkv.vectors.train import train_vectors
from qkv.vectors.word_vectors import WordVectors


class Toy:
    """A corpus in memory: numbers of words, -1 between lines."""

    def __init__(self, ids: np.ndarray) -> None:
        self.all_ids, self.length = ids.astype(np.int32), len(ids)

    def ids(self, start: int, stop: int) -> np.ndarray:
        return self.all_ids[start:stop]


@pytest.fixture
def corpus() -> Toy:
    rng = np.random.default_rng(1)
    return Toy(np.minimum(rng.geometric(0.08, 4000) - 2, 60))  # -1 between lines


def brute_force(corpus: Toy, size: int, window: int) -> dict[tuple[int, int], float]:
    counts: Counter[tuple[int, int]] = Counter()
    for line in " ".join(map(str, corpus.all_ids)).split("-1"):
        words = [int(word) for word in line.split() if int(word) < size]
        for i, word in enumerate(words):
            for j, other in enumerate(words):
                if 0 < abs(i - j) <= window:
                    counts[word, other] += 1 / abs(i - j)
    return counts


def both_ways(pairs: cooccurrence.CooccurrenceCounts) -> dict[tuple[int, int], float]:
    found = {}
    for number in range(len(pairs.sizes)):
        for first, second, count in pairs.bucket(number).tolist():
            assert (first, second) not in found
            found[first, second] = found[second, first] = count
    return found


@pytest.mark.parametrize(("slots", "threads"), [(1 << 20, 1), (128, 1), (256, 2)])
def test_counts_equal_brute_force(slots: int, threads: int, corpus: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "CHUNK", 100)
    monkeypatch.setattr(cooccurrence, "MERGE_SIZE", 128)
    monkeypatch.setattr(cooccurrence, "BUCKET_PAIRS", 4000)
    spill, spilled = cooccurrence._write_run, []
    monkeypatch.setattr(cooccurrence, "_write_run", lambda *args: (spilled.append(1), spill(*args))[1])
    pairs = count_cooccurrences(corpus, 40, 5, tmp_path, slots * cooccurrence.SLOT_BYTES * threads / 2**30, threads)
    found, expected = both_ways(pairs), brute_force(corpus, 40, 5)
    assert found == pytest.approx(expected, rel=1e-6)
    assert len(spilled) == 1 if slots == 1 << 20 else len(spilled) > 2 * threads
    assert len(pairs.sizes) > 1 and len(pairs) == sum(first <= second for first, second in expected)
    assert pairs.entries == len(expected)
    assert {path.name for path in tmp_path.iterdir()} == {*(f"bucket-{n:03}" for n in range(len(pairs.sizes))), "pairs.json"}
    assert open_cooccurrences(tmp_path) == pairs
    whole = count_cooccurrences(corpus, 40, 5, tmp_path)
    assert whole.sizes == pairs.sizes and both_ways(whole) == found  # to the last bit


def test_a_corpus_without_pairs(tmp_path: Path) -> None:
    assert len(count_cooccurrences(Toy(np.array([1, -1, 2, -1, -1])), 9, 5, tmp_path)) == 0


def test_how_much_was_counted_is_shown(corpus: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "CHUNK", 1000)
    monkeypatch.setattr(cooccurrence, "POLL_EVERY", 0.01)
    ids, shown = corpus.ids, list[float]()

    def slowly(start: int, stop: int) -> np.ndarray:
        time.sleep(0.05)
        return ids(start, stop)

    monkeypatch.setattr(corpus, "ids", slowly)
    count_cooccurrences(corpus, 40, 5, tmp_path, show=shown.append)
    assert {1000, 2000, 3000} <= {*shown} <= {0, 1000, 2000, 3000, 4000}


def test_an_error_of_one_thread_ends_the_others(corpus: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "CHUNK", 10)
    ids, later = corpus.ids, list[int]()

    def failing(start: int, stop: int) -> np.ndarray:
        if start > corpus.length // 2:
            raise ValueError("cannot be read")
        later.append(start)
        time.sleep(0.01)
        return ids(start, stop)

    monkeypatch.setattr(cooccurrence, "_part_bounds", lambda *_: [0, corpus.length // 2 + 1, corpus.length])
    monkeypatch.setattr(corpus, "ids", failing)
    with pytest.raises(ValueError, match="cannot be read"):
        count_cooccurrences(corpus, 40, 5, tmp_path, threads=2)
    assert len(later) < 100


def test_a_full_disk_leaves_one_line_and_nothing_else(corpus: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for step in ("_write_run", "_append_to_buckets"):
        with monkeypatch.context() as during, pytest.raises(QkvError, match="the disk is full") as caught:
            during.setattr(cooccurrence, step, full)
            with atomic_folder(tmp_path / "pairs") as aside:
                count_cooccurrences(corpus, 40, 5, aside)
        assert "\n" not in str(caught.value)
        assert not [*tmp_path.iterdir()]


def objective(w: np.ndarray, c: np.ndarray, x: np.ndarray, x_max: float) -> float:
    """Equation 8 of the paper; biases are the last columns."""
    weights = np.where(x < x_max, (x / x_max) ** 0.75, 1)
    errors = w[:, :-1] @ c[:, :-1].T + w[:, -1:] + c[:, -1] - np.log(np.where(x > 0, x, 1))
    return float((np.where(x > 0, weights, 0) * errors**2).sum())


def slope(function, at: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    """A gradient by differences."""
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[place] = 1e-5
        found[place] = (function(at + step) - function(at - step)) / 2e-5
    return found


@pytest.mark.parametrize("count", [3.5, 100.0, 700.0])
def test_one_update_is_the_formula(count: float) -> None:
    rng = np.random.default_rng(1)
    w, c = (rng.normal(size=(4, 7)) for _ in range(2))
    w_squares, c_squares = (1 + rng.random((4, 7)) for _ in range(2))
    arrays = [a.astype(np.float32) for a in (w, w_squares, c, c_squares)]
    w, w_squares, c, c_squares = (a.astype(np.float64) for a in arrays)
    x = np.zeros((4, 4))
    x[2, 2] = count  # one entry, so one step
    g_w = 0.05 * slope(lambda a: objective(a, c, x, 100) / 2, w)
    g_c = 0.05 * slope(lambda a: objective(w, a, x, 100) / 2, c)
    cost = train_pairs(np.array([(2, 2, count)], PAIR), *arrays, 6, *map(np.float32, (0.05, 100, 0.75)))
    assert cost == pytest.approx(objective(w, c, x, 100), rel=1e-5)
    expected = [w - g_w / np.sqrt(w_squares), w_squares + g_w**2, c - g_c / np.sqrt(c_squares), c_squares + g_c**2]
    for found, wanted in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_a_pair_is_updated_both_ways() -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.random((4, 16)).astype(np.float32) for _ in range(4)]
    apart = [array.copy() for array in arrays]
    options = [np.float32(n) for n in (0.05, 100, 0.75)]
    train_pairs(np.array([(1, 3, 5.0)], PAIR), *arrays, 6, *options)
    # X_13 touches row 1 of the words and row 3 of the contexts; the same with both exchanged is X_31.
    for i, j in ((1, 3), (3, 1)):
        one = [apart[k][[i if k < 2 else j]] for k in range(4)]
        train_pairs(np.array([(0, 0, 5.0)], PAIR), *one, 6, *options)
        for k in range(4):
            np.testing.assert_allclose(arrays[k][i if k < 2 else j], one[k][0], rtol=1e-6)
    assert np.array_equal(arrays[0][[0, 2]], apart[0][[0, 2]])


@pytest.fixture
def text(corpus: Toy, tmp_path: Path) -> Path:
    lines = " ".join("\n" if number < 0 else f"w{number}" for number in corpus.all_ids)
    (tmp_path / "text.txt").write_text(lines)
    return tmp_path / "text.txt"


CONFIG = GloVeConfig(width=8, window=5, epochs=20, threads=1)


def cost(trainer: GloVeTrainer) -> float:
    """The objective, by steps at a rate of 0."""
    buckets = [trainer.counts.bucket(number) for number in range(len(trainer.counts.sizes))]
    numbers = [np.float32(number) for number in (0, trainer.config.x_max, trainer.config.alpha)]
    return sum(train_pairs(bucket, *trainer.arrays.values(), trainer.config.width, *numbers) for bucket in buckets)


def test_training_is_deterministic_and_lowers_the_objective(text: Path) -> None:
    first, again, other = (
        GloVeTrainer(open_corpus([text], CONFIG, quiet=True), config)
        for config in (CONFIG, CONFIG, CONFIG.model_copy(update={"seed": 2}))
    )
    before = cost(first)
    for trainer in (first, again, other):
        for number in range(trainer.task.chunks):
            trainer.train_chunk(number)
    assert np.array_equal(first.arrays["words"], again.arrays["words"])
    assert not np.array_equal(first.arrays["words"], other.arrays["words"])
    assert cost(first) < 0.2 * before


@pytest.mark.parametrize("result", ["sum", "output"])
def test_learned_vectors_are_those_of_words_and_contexts(result: str, text: Path, tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"result": result, "threads": 2})
    trained = train_vectors("glove", [text], config, tmp_path / "v", quiet=True)
    found = WordVectors.load(tmp_path / "v")
    assert found.words == trained.vectors.words and np.isfinite(found.matrix).all()
    assert found.counts[0] == open_corpus([text], CONFIG, quiet=True).counts[0]
    inputs, outputs = found.part("input").matrix, found.part("output").matrix
    assert not np.array_equal(inputs, outputs)
    assert np.array_equal(found.matrix, inputs + outputs if result == "sum" else outputs)


def test_lines_of_one_word_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one\ntwo\n" * 9)
    with pytest.raises(DataError, match="no line has two words"):
        train_vectors("glove", [tmp_path / "text.txt"], CONFIG, quiet=True)
