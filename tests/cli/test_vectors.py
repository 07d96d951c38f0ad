"""qkv vectors on the command line; every mistake gives one line."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from qkv.base.errors import ConfigError, DataError, QkvError
from qkv.cli.vectors import vectors_app
from qkv.vectors.formats import detect_format, read_vectors
from qkv.vectors.word_vectors import WordVectors
from workbench import Commands

WORDS = ["cat", "cats", "dog", "dogs", "cow", "cows"]


def qkv_vectors(*words: object) -> str:
    """Return the output of a command; raise its error, which the program's main would print."""
    result = CliRunner().invoke(vectors_app, [str(word) for word in words])
    if isinstance(result.exception, QkvError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    matrix = np.array([[1, 0, 0, 0], [1, 0, 0, 0.9], [0, 1, 0, 0], [0, 1, 0, 0.9], [0, 0, 1, 0], [0, 0, 1, 0.9]], np.float32)
    WordVectors.combine(WORDS, matrix, matrix[::-1], "input").save(tmp_path / "v")
    return tmp_path / "v"


def test_neighbours_and_analogies(folder: Path) -> None:
    assert qkv_vectors("neighbours", folder, "cat", "-n", 1).split() == ["0.7433", "cats"]
    assert qkv_vectors("neighbours", folder, "cat", "dog", "-n", 1).split() == [
        "cat:",
        "0.7433",
        "cats",
        "dog:",
        "0.7433",
        "dogs",
    ]
    for method in ("add", "mul"):
        assert qkv_vectors("analogy", folder, "cat", "cats", "dog", "-n", 1, "--method", method).split()[1] == "dogs"
    with pytest.raises(DataError, match="'Cat' is not in the vocabulary; did you mean 'cat'"):
        qkv_vectors("neighbours", folder, "Cat")
    with pytest.raises(ConfigError, match="choose add or mul"):
        qkv_vectors("analogy", folder, "cat", "cats", "dog", "--method", "sub")


def test_figures(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("cat cats 9\ncat dogs 1\ncat unicorn 5\n")
    (tmp_path / "questions.txt").write_text(": plural\ncat cats dog dogs\ncat cats dog cow\n")
    found = json.loads(qkv_vectors("evaluate", folder, tmp_path / "pairs.txt", tmp_path / "questions.txt", "--json"))
    assert found["similarity"] == [{"name": "pairs", "spearman": pytest.approx(1), "found": 2, "pairs": 3}]
    assert found["analogies"]["questions"][-1] == {"name": "all", "right": 1, "asked": 2, "questions": 2, "accuracy": 0.5}
    table = qkv_vectors("evaluate", folder, tmp_path / "pairs.txt", tmp_path / "questions.txt")
    assert "1.0000" in table and "2 of 3" in table and "50.0 %" in table


def test_a_map(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "map.png"
    assert "4 words" in qkv_vectors("map", folder, "cat", "dog", "--around", 1, "--out", out)
    with pytest.raises(ConfigError, match="exists already"):
        qkv_vectors("map", folder, "--out", out)
    assert "6 words" in qkv_vectors("map", folder, "--out", out, "--overwrite")


def test_views(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    assert qkv_vectors("analogy", folder, "cat", "cats", "dog", "-n", 2, "--out", out).split()[1] == "dogs"
    assert json.loads(out.read_text())["answers"][0]["word"] == "dogs"
    assert "6 words" in qkv_vectors("map", folder, "--method", "tsne", "--out", out, "--overwrite")
    assert [*json.loads(out.read_text())["points"]] == ["pca", "tsne"]
    for words, said in (
        (("map", folder, "--method", "umap", "--out", tmp_path / "b.png"), "choose pca or tsne"),
        (("analogy", folder, "cat", "cats", "dog", "--out", "arrows.svg"), "must end with .png, .json or .html"),
        (("neighbours", folder, "cat", "--out", tmp_path / "b.png"), "is for neighbours --through-training"),
        (("neighbours", folder, "cat", "--through-training"), "has no snapshots of its training"),
    ):
        with pytest.raises(ConfigError, match=said):
            qkv_vectors(*words)


def test_conversions(folder: Path, tmp_path: Path) -> None:
    before = folder
    for name, kind in {"a.vec": None, "b.bin": None, "c.txt": "glove", "d.bin": "fasttext", "e": None}.items():
        out = qkv_vectors("convert", before, tmp_path / name, *(["--to", kind] if kind else []))
        assert "6 words, 4 numbers each" in out
        before = tmp_path / name
    assert np.array_equal(read_vectors(before).matrix, read_vectors(folder).matrix)
    qkv_vectors("convert", folder, tmp_path / "sum", "--part", "sum")
    assert np.array_equal(read_vectors(tmp_path / "sum").matrix, read_vectors(folder).part("sum").matrix)
    assert detect_format(tmp_path / "c.txt") == "glove"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["v", "v"], "exists already"),
        (["v", "out.model"], "implies no format"),
        (["v", "out", "--to", "pickle"], "'pickle' is not known"),
        (["v", "out", "--from", "pickle"], "'pickle' is not known"),
        (["v", "out", "--part", "half"], "'half' is not known"),
        (["nothing", "out"], "no such file"),
        (["broken.txt", "out"], "line 2: a word and 2 numbers"),
    ],
)
def test_mistakes_leave_nothing_behind(words: list[str], complaint: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    Path("broken.txt").write_text("a 1 2\nb 1\n")
    with pytest.raises(QkvError, match=complaint) as caught:
        qkv_vectors("convert", *words)
    assert "\n" not in str(caught.value)
    assert {path.name for path in folder.parent.iterdir()} == {"v", "broken.txt"}


def test_vectors_are_learned_from_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_bytes(b"red green blue \xff\n" * 50 + b"Up down left\n" * 50)
    few = ["--set", "width=8", "--set", "sample=0", "--set", "lowercase=true"]
    said = qkv_vectors("train", "skipgram", tmp_path / "a.txt", "--out", tmp_path / "v", *few)
    assert "6 words, 8 wide" in said and "1,500 words read" in said and "50 bytes" in said
    assert "up" in WordVectors.load(tmp_path / "v")
    with pytest.raises(ConfigError, match="exists already"):
        qkv_vectors("train", "cbow", tmp_path / "a.txt", "--out", tmp_path / "v")
    with pytest.raises(ConfigError, match=r"unknown key 'widht'; did you mean 'width'\?"):
        qkv_vectors("train", "cbow", tmp_path / "a.txt", "--out", tmp_path / "w", "--set", "widht=8")
    with pytest.raises(ConfigError, match=r"written as a folder; leave out \.bin"):
        qkv_vectors("train", "cbow", tmp_path / "a.txt", "--out", tmp_path / "w.bin")
    with pytest.raises(ConfigError, match="choose skipgram, cbow, fasttext, glove or classifier"):
        qkv_vectors("train", "elmo", tmp_path / "a.txt", "--out", tmp_path / "w")


@pytest.mark.parametrize("method", ["skipgram", "classifier"])
def test_an_unwritable_path_is_refused_before_any_work(method: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(QkvError, match="out: cannot be written"):
        qkv_vectors("train", method, tmp_path / "nothing.txt", "--out", tmp_path / "file" / "out")


def test_chinese_is_reported_and_the_folder_has_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("zh.txt").write_text("今天天气很好我们去公园散步\n" * 10)
    said = qkv_vectors("train", "glove", "zh.txt", "--set", "epochs=1", "--set", "width=4")
    assert "each character is a word" in said and "runs/glove: 12 words" in said and "entries read" in said
    assert "公" in WordVectors.load("runs/glove")


def test_texts_are_classified(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("__label__b good fine\n__label__c bad poor\n" * 50)
    (tmp_path / "texts.txt").write_text("fine\npoor bad\n")
    model, few = tmp_path / "model.bin", ["--set", "width=8", "--set", "learning_rate=1", "--set", "threads=1"]
    assert "2 labels, 5 words" in qkv_vectors("train", "classifier", tmp_path / "a.txt", "--out", model, *few)
    lines = qkv_vectors("classify", model, tmp_path / "texts.txt").splitlines()
    assert [line.split()[0] for line in lines] == ["b", "c"] and all(float(line.split()[1]) > 0.9 for line in lines)


def test_a_translator_begins_with_vectors(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    WordVectors(["sun", "rain", "tree"], np.random.default_rng(1).normal(size=(3, 32))).save(tmp_path / "v")
    settings = [
        "--set",
        f"embeddings.source={tmp_path / 'v'}",
        "--set",
        "training.steps=1",
        "--set",
        "tokenizer.shared.vocab=120",
    ]
    done = commands.run("train", recipe, "--out", tmp_path / "run", *settings)
    assert done.code == 0, done.err
    assert "tokens begin with vectors of" in " ".join((done.out + done.err).split())
