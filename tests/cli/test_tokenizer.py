"""qkv tokenizer: from lines to pieces and back, and one line for every mistake."""

import gzip
import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qkv.base.errors import CheckpointError, ConfigError, DataError, QkvError
from qkv.cli.tokenizer import tokenizer_app
from qkv.text.tokenizer import Tokenizer

LINES = ["the dog and the fox", "打开 Home Assistant 设置", "the  dog's   bone, 12!", ""]


def qkv_tokenizer(*words: object, typed: str | bytes = "") -> str:
    """Return what the command prints; raise its error, which `main` would print."""
    result = CliRunner().invoke(tokenizer_app, [str(word) for word in words], input=typed)
    if isinstance(result.exception, QkvError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in LINES * 20), encoding="utf-8")
    return path


@pytest.fixture
def saved(text: Path, tmp_path: Path) -> Path:
    qkv_tokenizer("train", text, "--vocab", 1100, "--out", tmp_path / "t.json")
    return tmp_path / "t.json"


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece", "unigram", "characters", "words"])
def test_train_says_what_it_made(kind: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    said = qkv_tokenizer("train", text, "--kind", kind, "--vocab", 400, "--special-token", "[MASK]", "--lowercase", "--out", out)
    tokenizer = Tokenizer.load(out)
    assert said == f"{out}: {kind}, {len(tokenizer):,} pieces\n"
    assert tokenizer.additional_special_tokens == {"[MASK]": 4}
    assert tokenizer.decode(tokenizer.encode("THE dog")) == "the dog"


def test_train_reads_several_files_packed_or_not(text: Path, tmp_path: Path) -> None:
    packed = tmp_path / "more.gz"
    packed.write_bytes(gzip.compress(b"zebra zebra\nbroken \xff\xfe\n"))
    result = CliRunner().invoke(
        tokenizer_app, ["train", str(text), str(packed), "--kind", "words", "--out", str(tmp_path / "t.json")]
    )
    assert result.exit_code == 0
    assert "skipped 1 lines" in result.stderr
    tokenizer = Tokenizer.load(tmp_path / "t.json")
    assert {"zebra", "dog"} <= set(tokenizer.pieces(range(len(tokenizer))))


def test_encode_and_decode_are_inverse(saved: Path, text: Path, tmp_path: Path) -> None:
    ids = qkv_tokenizer("encode", saved, text, "--ids")
    (tmp_path / "ids").write_text(ids)
    assert qkv_tokenizer("decode", saved, typed=ids) == text.read_text(encoding="utf-8")
    assert qkv_tokenizer("decode", saved, tmp_path / "ids") == text.read_text(encoding="utf-8")


def test_encode_prints_a_line_of_pieces_for_each_line(saved: Path) -> None:
    typed = "the dog\n\n设置 the\n 👨"
    assert qkv_tokenizer("encode", saved, typed=typed).split("\n") == [
        "▁the ▁dog",
        "",
        "设置 ▁the",
        "▁ ▁ <0xF0> <0x9F> <0x91> <0xA8>",
        "",
    ]


def test_encode_handles_more_lines_than_it_takes_at_once(saved: Path) -> None:
    assert qkv_tokenizer("encode", saved, typed="the dog\n" * 2500) == "▁the ▁dog\n" * 2500


def test_import(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES[:3] * 50), model_writer=model, vocab_size=34, minloglevel=2
    )
    (tmp_path / "spm.model").write_bytes(model.getvalue())
    out = tmp_path / "t.json"
    assert qkv_tokenizer("import", tmp_path / "spm.model", "--out", out) == f"{out}: 35 pieces\n"
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    assert qkv_tokenizer("encode", out, typed=LINES[0]).split() == theirs.encode(LINES[0], out_type=str)
    with pytest.raises(ConfigError, match="--overwrite"):
        qkv_tokenizer("import", tmp_path / "spm.model", "--out", out)


def test_nothing_is_overwritten_without_the_option(saved: Path, text: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(ConfigError, match="exists already"):
        qkv_tokenizer("train", text, "--kind", "words", "--out", saved)
    assert saved.read_bytes() == before
    qkv_tokenizer("train", text, "--kind", "words", "--out", saved, "--overwrite")
    assert saved.read_bytes() != before


def test_mistakes_in_training(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.json"
    (tmp_path / "empty").write_text("\n\n")
    for error, words in (
        (DataError, ["train", tmp_path / "none.txt"]),
        (DataError, ["train", tmp_path / "empty"]),
        (DataError, ["train", text, "--vocab", 10]),
        (ConfigError, ["train", text, "--kind", "pbe"]),
        (ConfigError, ["train", text, "--vocab", 1]),
        (ConfigError, ["train", text, "--special-token", "mask"]),
        (DataError, ["import", text]),
    ):
        with pytest.raises(error) as caught:
            qkv_tokenizer(*words, "--out", out)
        assert "\n" not in str(caught.value)
        assert not out.exists()


def test_mistakes_in_use(saved: Path, text: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="damaged"):
        qkv_tokenizer("encode", text, typed="a")
    with pytest.raises(ConfigError, match="no such file"):
        qkv_tokenizer("encode", tmp_path / "none.json", typed="a")
    with pytest.raises(DataError, match="no such file"):
        qkv_tokenizer("encode", saved, tmp_path / "none.txt")
    with pytest.raises(DataError, match="line 2 is not UTF-8"):
        qkv_tokenizer("encode", saved, typed=b"fine\n\xff\n")
    with pytest.raises(DataError, match="line 2: 'x' is not an id"):
        qkv_tokenizer("decode", saved, typed="5 6\n7 x\n")
    with pytest.raises(DataError, match="line 1: id 99999 is not among"):
        qkv_tokenizer("decode", saved, typed="99999\n")
