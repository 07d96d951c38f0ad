"""Vectors trained on small texts: what goes together is alike; one thread and a seed decide everything, interrupted or not."""

import gzip
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from qkv.base.errors import CheckpointError, ConfigError, DataError
from qkv.vectors import corpus as corpora
from qkv.vectors import hogwild, word2vec
from qkv.vectors.corpus import WordCorpusConfig, open_corpus
from qkv.vectors.train import METHODS, Method, train_vectors
from qkv.vectors.word2vec import FastTextConfig, FastTextTrainer, Word2VecConfig, Word2VecTrainer, drop_padding
from qkv.vectors.word_vectors import WordVectors

ANIMALS, TOOLS = ["cat", "dog", "horse", "sheep"], ["hammer", "saw", "drill", "chisel"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    lines = [" ".join(rng.choice(ANIMALS if i % 2 else TOOLS, 6)) for i in range(1500)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join([*lines, "once"]) + "\n")
    return path


def config(method: str, **more: object) -> Word2VecConfig:
    few = {"buckets": 500} if method == "fasttext" else {}
    given = {"width": 20, "window": 3, "sample": 0, "epochs": 4, "learning_rate": 0.1, "threads": 1, **few, **more}
    return METHODS[method].config.model_validate(given)


@pytest.mark.parametrize("negatives", [5, 0])
@pytest.mark.parametrize("method", ["skipgram", "cbow", "fasttext"])
def test_words_of_like_company_become_alike(method: Method, negatives: int, text: Path) -> None:
    trained = train_vectors(method, [text], config(method, negatives=negatives), quiet=True)
    assert trained.amount == 4 * (6 * 1500 + 1)
    assert trained.vectors.counts is not None and len(trained.vectors) == 8 and "once" not in trained.vectors.index
    for word in ANIMALS:
        assert {near for near, _ in trained.vectors.most_similar(word, topn=3)} == set(ANIMALS) - {word}


def test_fasttext_over_contexts_gives_unseen_words_vectors(text: Path, tmp_path: Path) -> None:
    made = train_vectors("fasttext", [text], config("fasttext", architecture="cbow"), tmp_path / "out", quiet=True).vectors
    loaded = WordVectors.load(tmp_path / "out")
    np.testing.assert_array_equal(loaded["horses"], made["horses"])
    assert {word for word, _ in loaded.most_similar("hammers", topn=4)} == set(TOOLS)


def test_two_threads_learn_the_same_words_apart(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "CHUNK", 1000)
    vectors = train_vectors("skipgram", [text], config("skipgram", threads=2), quiet=True).vectors
    assert vectors.similarity("cat", "dog") > vectors.similarity("cat", "saw") + 0.3


def slowly(train_chunk: Callable[[Word2VecTrainer, int], None]) -> Callable[[Word2VecTrainer, int], None]:
    def slow(self: Word2VecTrainer, chunk: int) -> None:
        time.sleep(0.01)
        train_chunk(self, chunk)

    return slow


def interrupted(pool: hogwild.WorkerPool, save_at: float, show: object) -> None:
    while pool.next < 17:
        if pool.wait(0.001):
            return
    raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["skipgram", "fasttext"])
def test_an_interrupted_training_becomes_the_uninterrupted_one(
    method: Method, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(word2vec, "CHUNK", 1000)
    whole = train_vectors(method, [text], config(method), quiet=True).vectors
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Word2VecTrainer, "train_chunk", slowly(Word2VecTrainer.train_chunk))
        patch.setattr(hogwild, "_wait_until_save", interrupted)
        with pytest.raises(hogwild.TrainingInterrupted, match="run the same command to continue"):
            train_vectors(method, [text], config(method), out, quiet=True)
    assert not out.exists()
    with pytest.raises(CheckpointError, match="epochs 4, not 5"):
        train_vectors(method, [text], config(method, epochs=5), out, quiet=True)
    train_vectors(method, [text], config(method), out, quiet=True)
    np.testing.assert_array_equal(WordVectors.load(out).matrix, whole.matrix)
    assert not list(tmp_path.glob(".*training"))


def test_training_that_was_saved_in_between_is_the_same(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "CHUNK", 1000)
    whole = train_vectors("cbow", [text], config("cbow"), quiet=True).vectors
    saved: list[int] = []
    usual = hogwild.HogwildCheckpoint.save
    monkeypatch.setattr(hogwild, "SAVE_EVERY", 0)
    monkeypatch.setattr(hogwild, "POLL_EVERY", 0.001)
    monkeypatch.setattr(Word2VecTrainer, "train_chunk", slowly(Word2VecTrainer.train_chunk))
    monkeypatch.setattr(
        hogwild.HogwildCheckpoint, "save", lambda self, arrays, done: [saved.append(done), usual(self, arrays, done)]
    )
    train_vectors("cbow", [text], config("cbow"), tmp_path / "out", quiet=True)
    assert len(saved) > 2
    np.testing.assert_array_equal(WordVectors.load(tmp_path / "out").matrix, whole.matrix)


def test_the_result_is_a_choice_and_both_matrices_are_kept(text: Path, tmp_path: Path) -> None:
    made = {
        part: train_vectors("skipgram", [text], config("skipgram", result=part), quiet=True).vectors
        for part in ("input", "output", "sum")
    }
    np.testing.assert_allclose(made["sum"].matrix, made["input"].matrix + made["output"].matrix)
    np.testing.assert_array_equal(made["sum"].part("output").matrix, made["output"].matrix)
    assert not np.allclose(made["input"].matrix, made["output"].matrix)
    with pytest.raises(ValueError, match="no output vectors"):
        Word2VecConfig(negatives=0, result="sum")
    with pytest.raises(ValueError, match="min_n 4 is more than max_n 3"):
        FastTextConfig(min_n=4, max_n=3)


def test_text_is_read_from_folders_and_packed_files_and_once(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("The cat\n\nsat")
    with gzip.open(tmp_path / "texts" / "b.txt.gz", "wt") as file:
        file.write("the cat")
    corpus = open_corpus([tmp_path / "texts"], WordCorpusConfig(), quiet=True)
    words = corpus.words(4)
    assert words == ["cat", "The", "sat", "the"] and corpus.counts.tolist() == [2, 1, 1, 1]
    assert corpus.ids(0, 99).tolist() == [1, 0, -1, -1, 2, -1, 3, 0, -1]
    assert corpus.ids(4, 6).tolist() == [2, -1]
    assert open_corpus([tmp_path / "texts"], WordCorpusConfig(lowercase=True), quiet=True).words(9) == ["the", "cat", "sat"]


def test_chinese_is_split_into_characters(tmp_path: Path) -> None:
    (tmp_path / "zh.txt").write_text("我用Python 3写字\n")
    corpus = open_corpus([tmp_path / "zh.txt"], WordCorpusConfig(segment="characters"), quiet=True)
    assert corpus.words(9) == ["我", "用", "Python", "3", "写", "字"]


@pytest.mark.parametrize(
    ("line", "segment"),
    [
        ("今天天气很好，我们去公园散步吧。", "characters"),
        ("今天 天气 很 好 ， 我们 去 公园 散步 吧 。", "spaces"),
        ("東京都は日本の首都であり、世界最大の都市圏を形成している。", "spaces"),
        ("the word 天气很好很好 is Chinese", "spaces"),
    ],
)
def test_chinese_without_spaces_is_known(line: str, segment: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(f"{line}\n" * 3)
    assert open_corpus([tmp_path / "text.txt"], WordCorpusConfig(), quiet=True).segment == segment


def test_a_long_line_is_read_in_parts_and_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"w{i}é" for i in range(200)]
    (tmp_path / "a.txt").write_text(" ".join(words) + "\nshort one")
    whole = open_corpus([tmp_path / "a.txt"], WordCorpusConfig(), quiet=True)
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(corpora, "MAX_LINE", 16)
    parts = open_corpus([tmp_path / "a.txt"], WordCorpusConfig(), quiet=True)
    assert parts.words(999) == whole.words(999) == [*words, "short", "one"]
    assert parts.ids(0, 999).tolist() == whole.ids(0, 999).tolist() == [*range(200), -1, 200, 201, -1]


def test_bytes_that_are_no_text_are_counted_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one t\xffwo\n" + b"three four \xc3\n" * 20)
    corpus = open_corpus([tmp_path / "a.txt"], WordCorpusConfig(), quiet=True)
    assert corpus.skipped == 21 and corpus.words(9) == ["three", "four", "one", "two"]


@pytest.mark.parametrize(
    ("content", "line"),
    [("", "no words were found"), (" \n\n", "no words were found"), ("a b c\n", "0 of 3 words occur 5 times.*lower min_count")],
)
def test_text_without_enough_words_is_refused_and_leaves_nothing(content: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(DataError, match=line):
        train_vectors("skipgram", [tmp_path / "a.txt"], config("skipgram"), tmp_path / "out", quiet=True)
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "cache"}
    assert not list((tmp_path / "cache").rglob("*.partial"))


def test_a_folder_of_something_else_is_not_replaced(text: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="holds no vectors"):
        train_vectors("skipgram", [text], config("skipgram"), tmp_path / "out", quiet=True)


def test_a_matrix_is_narrowed_in_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "ROWS", 3)
    wide = np.zeros((7, 16), np.float32)
    wide[:] = np.arange(7 * 16).reshape(7, 16)
    wanted = wide[:, :10].copy()
    assert drop_padding(wide, 10) is wide
    np.testing.assert_array_equal(wide, wanted)


@pytest.mark.parametrize("method", ["skipgram", "cbow", "fasttext"])
def test_a_kernel_is_compiled_before_training_and_once(method: Method, text: Path) -> None:
    trainer = METHODS[method].trainer(open_corpus([text], WordCorpusConfig(), quiet=True), config(method), True)
    before = len(trainer.kernel.signatures)
    trainer.train_chunk(0)
    assert len(trainer.kernel.signatures) == before


def test_rates_fall_in_a_line(text: Path) -> None:
    trainer = FastTextTrainer(
        open_corpus([text], WordCorpusConfig(), quiet=True), FastTextConfig(buckets=1, epochs=10, learning_rate=0.1)
    )
    assert [trainer.learning_rate_at(done) for done in (0, 5, 10)] == pytest.approx([0.1, 0.05, 1e-5])
