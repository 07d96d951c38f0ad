"""The classifier: one update equals the formula, it learns, and its files are fastText's."""

from pathlib import Path

import numpy as np
import pytest

from qkv.base.errors import DataError
from qkv.vectors.classifier import ClassifierConfig, FastTextClassifier, encode_texts, train_classifier
from qkv.vectors.fasttext_format import write_fasttext
from qkv.vectors.kernels.classifier import find_input_rows, hash_words, train_texts

GOOD, BAD, EITHER = ["good", "fine", "lovely"], ["bad", "awful", "poor"], ["film", "plot", "actor", "scene"]


def few(**more: object) -> ClassifierConfig:
    return ClassifierConfig.model_validate({"width": 10, "buckets": 1000, "threads": 1, "learning_rate": 0.5, **more})


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    lines = []
    for i in range(400):
        words = [*rng.choice(GOOD if i % 2 else BAD, 2), *rng.choice(EITHER, 4)]
        lines.append(f"__label__{'up' if i % 2 else 'down'} " + " ".join(rng.permutation(words)))
    path = tmp_path / "reviews.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("label_ids", [[1], [0, 3]])
def test_an_update_is_the_gradient_of_the_cross_entropy(label_ids: list[int]) -> None:
    rng = np.random.default_rng(1)
    inputs, outputs = np.zeros((7, 16), np.float32), np.zeros((6, 16), np.float32)
    inputs[:, :10], outputs[:4, :10] = rng.normal(size=(7, 10)), rng.normal(size=(4, 10))
    ids = np.array([2, 0, -1, 2], np.int32)
    hidden = inputs[[2, 0, 2]].mean(axis=0, dtype=np.float64)
    scores = np.exp(outputs[:4].astype(np.float64) @ hidden)
    share = np.zeros(4)
    share[label_ids] = 1 / len(label_ids)
    error = 0.3 * (share - scores / scores.sum())
    wanted_outputs, wanted_inputs = outputs.copy(), inputs.copy()
    wanted_outputs[:4] += np.outer(error, hidden)
    np.add.at(wanted_inputs, [2, 0, 2], (error @ outputs[:4] / 3).astype(np.float32))
    starts, labels = np.array([0, 4]), np.array([0, len(label_ids)])
    text = (ids, np.zeros(4, np.int32), starts, np.array(label_ids, np.int32), labels, np.array([0]))
    train_texts(*text, inputs, outputs, (7, 1, 1, 4), 0.3, 0.3)
    np.testing.assert_allclose(outputs, wanted_outputs, atol=1e-6)
    np.testing.assert_allclose(inputs, wanted_inputs, atol=1e-6)


def test_ngrams_of_words_are_hashed_in_order() -> None:
    rows = np.zeros(9, np.int32)
    hashes = np.array([5, -7, 11], np.int32)
    count = find_input_rows(np.array([0, -1, 1], np.int32), hashes, 0, 3, 2, 100, 3, rows)
    mask = (1 << 64) - 1
    two = (5 * 116049371 - 7) & mask
    codes = [two, (two * 116049371 + 11) & mask, ((-7 & mask) * 116049371 + 11) & mask]
    assert rows[:count].tolist() == [0, 1, *(2 + code % 100 for code in codes)]


def test_words_are_hashed_by_fnv_1a() -> None:
    letters = np.frombuffer("aé".encode(), np.uint8)
    first = (2166136261 ^ ord("a")) * 16777619 % 2**32
    second = 2166136261
    for byte in "é".encode():
        second = (second ^ (byte | 0xFFFFFF00 if byte > 127 else byte)) * 16777619 % 2**32
    assert hash_words(letters, np.array([1, 3])).astype(np.uint32).tolist() == [first, second]


@pytest.mark.parametrize("ngrams", [1, 2])
def test_it_learns_and_is_saved(reviews: Path, tmp_path: Path, ngrams: int) -> None:
    trained = train_classifier([reviews], few(word_ngrams=ngrams), quiet=True)
    made = trained.classifier
    texts = ["a lovely film with a fine plot", "poor actor and awful scene"]
    assert [found[0][0] for found in made.predict(texts)] == ["up", "down"] and trained.speed > 0
    made.save(tmp_path / "model.bin")
    loaded = FastTextClassifier.load(tmp_path / "model.bin")
    np.testing.assert_array_equal(loaded.probabilities(texts), made.probabilities(texts))
    np.testing.assert_allclose(made.probabilities(texts).sum(axis=1), 1, atol=1e-6)


def test_word_ngrams_make_order_matter(tmp_path: Path) -> None:
    path = tmp_path / "order.txt"
    path.write_text("__label__a one two\n__label__b two one\n" * 200)
    made = train_classifier([path], few(word_ngrams=2, epochs=10), quiet=True).classifier
    assert [found[0][0] for found in made.predict(["one two", "two one"])] == ["a", "b"]
    single = train_classifier([path], few(epochs=10), quiet=True).classifier
    assert abs(single.probabilities(["one two"]) - single.probabilities(["two one"])).max() < 1e-6


def test_one_thread_and_a_seed_decide_everything(reviews: Path) -> None:
    one, two, other = (train_classifier([reviews], few(seed=seed), quiet=True).classifier.inputs for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", "0 label"),
        ("__label__a x\n", "1 label; at least two"),
        ("__label__a x\n\nhello\n", "line 3: no label"),
    ],
)
def test_texts_that_cannot_be_trained_from_are_refused(content: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(DataError, match=line):
        train_classifier([tmp_path / "a.txt"], few(), quiet=True)


def test_lowercase_is_passed_again_and_bytes_that_are_not_utf8_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"__label__A Good\xff FINE\n__label__B Bad poor\n" * 100)
    trained = train_classifier([tmp_path / "a.txt"], few(lowercase=True), quiet=True)
    assert trained.skipped == 100 and trained.classifier.labels == ["A", "B"]
    assert set(trained.classifier.model.words) == {"good", "fine", "bad", "poor", "</s>"}
    trained.classifier.save(tmp_path / "model.bin")
    with_it, without = (FastTextClassifier.load(tmp_path / "model.bin", lowercase) for lowercase in (True, False))
    found = trained.classifier.probabilities(["GOOD fine"])
    assert np.array_equal(with_it.probabilities(["GOOD fine"]), found)
    assert not np.array_equal(without.probabilities(["GOOD fine"]), found)


def test_word_vectors_are_no_classifier(reviews: Path, tmp_path: Path) -> None:
    model = train_classifier([reviews], few(), quiet=True).classifier.model
    model.arguments.model = 2
    write_fasttext(model, tmp_path / "model.bin")
    with pytest.raises(DataError, match="not a classifier"):
        FastTextClassifier.load(tmp_path / "model.bin")


def test_unknown_words_have_no_row() -> None:
    encoded = encode_texts([["x"], []], {"</s>": 0})
    assert encoded.ids.tolist() == [-1, 0, 0] and encoded.starts.tolist() == [0, 2, 3]


@pytest.mark.parametrize("ngrams", [1, 2])
def test_fasttext_gives_the_same_probabilities(reviews: Path, tmp_path: Path, ngrams: int) -> None:
    fasttext = pytest.importorskip("fasttext")
    made = train_classifier([reviews], few(word_ngrams=ngrams), quiet=True).classifier
    made.save(tmp_path / "model.bin")
    theirs = fasttext.load_model(str(tmp_path / "model.bin"))
    for text in ("a lovely film with a fine plot", "poor actor and awful scene"):
        expected = [(label, share) for share, label in theirs.f.predict(f"{text}\n", 2, 0.0, "strict")]
        found = [(f"__label__{label}", share) for label, share in made.predict([text], 2)[0]]
        assert [label for label, _ in found] == [label for label, _ in expected]
        assert [share for _, share in found] == pytest.approx([share for _, share in expected], abs=1e-4)
