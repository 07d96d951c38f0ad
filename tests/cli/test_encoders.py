"""qkv import, fill, embed and export --to hf, typed: what they print and write, and one line for each mistake."""

import json
from pathlib import Path

import numpy as np
import pytest

import qkv
from encoder_runs import TEXTS, own_tokenizer, write_run
from qkv.inference.text_encoder import TextEncoder
from workbench import Commands

LINES = "".join(f"{text}\n" for text in TEXTS).encode()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("encoder") / "run")


def test_fill(commands: Commands, encoder: Path) -> None:
    done = commands.run("fill", encoder, "the [MASK] fox [MASK]", "--top", 3)
    assert done.code == 0 and done.err == "", done.err
    wanted = qkv.load(encoder, "cpu").fill(["the [MASK] fox [MASK]"], top=3)[0]
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert [int(number) for number, _, _ in lines] == [1, 1, 1, 2, 2, 2]
    assert [word for _, _, word in lines] == [guess.word for guesses in wanted for guess in guesses]
    assert [float(chance) for _, chance, _ in lines] == pytest.approx([g.probability for gs in wanted for g in gs], abs=1e-4)


def test_embed(commands: Commands, encoder: Path, tmp_path: Path) -> None:
    loaded = qkv.load(encoder, "cpu")
    assert isinstance(loaded, TextEncoder)
    file, out = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    file.write_bytes(LINES)
    done = commands.run("embed", encoder, file, "--out", out, "--layer", 1, "--pooling", "cls", "--normalise")
    assert done.code == 0 and done.out == f"{out}: {len(TEXTS)} vectors of 16 numbers\n", done.err
    np.testing.assert_allclose(np.load(out), loaded.embed(TEXTS, pooling="cls", layer=1, normalise=True), atol=1e-5)
    done = commands.run("embed", encoder, "-", stdin=LINES)
    found = np.array([[float(number) for number in line.split("\t")] for line in done.out.splitlines()])
    np.testing.assert_allclose(found, loaded.embed(TEXTS), atol=1e-4)
    assert "exists already" in commands.run("embed", encoder, file, "--out", out).complaint()


def test_embed_says_what_it_cuts(commands: Commands, encoder: Path) -> None:
    done = commands.run("embed", encoder, "-", stdin=b"fox " * 99 + b"\nfox\n")
    assert done.code == 0 and len(done.out.splitlines()) == 2
    assert (
        done.err == "qkv: 1 of 2 texts have more than 60 tokens and are cut there: this model has no position embeddings beyond\n"
    )


def test_there_and_back(commands: Commands, encoder: Path, tmp_path: Path) -> None:
    done = commands.run("export", encoder, "--to", "hf", "--out", tmp_path / "hf")
    assert done.code == 0 and done.out.startswith(f"{tmp_path / 'hf'}: hf, float32, "), done.err
    done = commands.run("import", tmp_path / "hf", "--out", tmp_path / "run")
    pieces = len(own_tokenizer())
    assert done.code == 0 and done.out.startswith(f"{tmp_path / 'run'}: bert, "), done.err
    assert done.out.endswith(f" parameters, {pieces} pieces; heads: masked\n")
    texts = [*TEXTS, "[MASK] is text here"]
    before, after = (qkv.load(folder, "cpu") for folder in (encoder, tmp_path / "run"))
    np.testing.assert_allclose(before.embed(texts), after.embed(texts), atol=1e-6)
    assert before.fill(["the [MASK], a [MASK]s [MASK]."])[0] == after.fill(["the [MASK], a [MASK]s [MASK]."])[0]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier") / "run"
    return write_run(folder, heads=("pooler", "classes"), labels=("no", "yes"), objective="classification")


def test_predict(commands: Commands, classifier: Path, tmp_path: Path) -> None:
    texts = [text for text in TEXTS if text]
    file, out = tmp_path / "texts.tsv", tmp_path / "said.tsv"
    file.write_text("number\ttext\n" + "".join(f"{number}\t{text}\n" for number, text in enumerate(texts)), encoding="utf-8")
    done = commands.run("predict", classifier, file)
    assert done.code == 0 and done.err == "", done.err
    wanted = qkv.load(classifier, "cpu").predict(texts)
    assert done.out == "".join(f"{label}\t{probability:.4f}\n" for label, probability in wanted)
    file.write_text("".join(f"{text}\t{text}\n" for text in texts), encoding="utf-8")
    done = commands.run("predict", classifier, file, "--set", "text=2", "--out", out)
    assert done.code == 0 and done.out == "", done.err
    assert out.read_text() == "".join(f"{label}\t{probability:.4f}\n" for label, probability in wanted)
    assert commands.run("predict", classifier, file, "--set", "data.text=2").out == out.read_text()
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    assert commands.run("predict", classifier, tmp_path / "texts.txt").out == out.read_text()
    assert "exists already" in commands.run("predict", classifier, file, "--out", out).complaint()
    assert "no column 'text' for" in commands.run("predict", classifier, file).complaint()


def test_evaluate_takes_columns(commands: Commands, classifier: Path, tmp_path: Path) -> None:
    said = qkv.load(classifier, "cpu").predict(TEXTS[:3])
    file = tmp_path / "texts.tsv"
    file.write_text("".join(f"{one.label}\t{text}\n" for one, text in zip(said, TEXTS, strict=False)), encoding="utf-8")
    columns = ("--set", "text=2", "--set", "data.label=1")
    done = commands.run("evaluate", classifier, "--data", file, "--metrics", "accuracy", "--json", *columns)
    assert json.loads(done.out) == {"scores": {"accuracy": 1.0}, "examples": 3}, done.err
    assert "unknown key 'beam'" in commands.run("evaluate", classifier, "--data", file, "--set", "beam=2").complaint()


def test_predict_tags_and_answers(commands: Commands, tmp_path: Path) -> None:
    tagger = write_run(tmp_path / "tagger", heads=("tags",), labels=("O", "B-X"), objective="tagging")
    tmp_path.joinpath("words.conll").write_text("the\nfox\n\nParis\n")
    done = commands.run("predict", tagger, tmp_path / "words.conll")
    assert [line.split("\t")[0] for line in done.out.split("\n")] == ["the", "fox", "", "Paris", "", ""], done.err
    reader = write_run(tmp_path / "reader", heads=("span",), objective="answering")
    asked = {"id": "one", "question": "Which capital?"}
    squad = {"data": [{"paragraphs": [{"context": TEXTS[1], "qas": [asked]}]}]}
    tmp_path.joinpath("asked.json").write_text(json.dumps(squad))
    done = commands.run("predict", reader, tmp_path / "asked.json")
    assert json.loads(done.out)["one"] in TEXTS[1], done.err


def test_mistakes(commands: Commands, encoder: Path, run: Path, tmp_path: Path) -> None:
    assert "no [MASK] in the text" in commands.run("fill", encoder, "the fox").complaint()
    assert (
        "is a translator (transformer, trained for translation), not an encoder or a language model; use qkv translate"
        in commands.run("fill", run, "the [MASK]").complaint()
    )
    assert (
        "is a translator and has no generator; leave --part out"
        in commands.run("export", run, "--to", "hf", "--part", "generator", "--out", tmp_path / "hf").complaint()
    )
    assert "not a translator" in commands.run("translate", encoder, stdin=b"a\n").complaint()
    assert "no such folder" in commands.run("import", tmp_path / "none", "--out", tmp_path / "run").complaint()
    assert "no config.json there" in commands.run("import", tmp_path, "--out", tmp_path / "run").complaint()
    assert "or fine-tune it: qkv train finetune --set start=" in commands.run("predict", encoder, tmp_path / "none").complaint()
    assert "no layer 9" in commands.run("embed", encoder, "-", "--layer", 9).complaint()
    assert "no such file" in commands.run("embed", encoder, tmp_path / "none").complaint()
    assert "no text to embed in -" in commands.run("embed", encoder, "-", "--out", tmp_path / "v.npy").complaint()
    assert "line 1 is not UTF-8" in commands.run("embed", encoder, "-", stdin=b"\xff\n").complaint()
    with pytest.raises(qkv.base.errors.ConfigError, match="engine and precision are for translators"):
        qkv.load(encoder, engine="onnx")
