"""Imported Marian tokenizers agree with those of transformers."""

import json
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from marian_folders import CODE, LETTERS, corpus, trained, transformers, write_tokenizers
from qkv.base.errors import CheckpointError
from qkv.text.marian import codes_in, languages_in, read_marian
from qkv.text.tokenizer import Tokenizer

STRANGE = ["", " ", "  two  spaces ", "ß", "äö ß x", "中 設置 中設置x", "Größe", "tab\ta", "ﬁne ① Ⅳ ｆｕｌｌ", "한국어 각", "XY"]


def texts() -> list[str]:
    rng = random.Random(1)
    letters = "".join(LETTERS) + "  .,XY<>/"
    drawn = ["".join(rng.choices(letters, k=rng.randint(1, 20))) for _ in range(300)]
    return [*corpus(0)[:50], *corpus(1)[:50], *STRANGE, *(text for text in drawn if "</s>" not in text)]


def theirs(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends a package that it does not use
        return transformers.MarianTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("apart", [False, True], ids=["one vocabulary", "two"])
def test_ids_are_those_of_transformers(apart: bool, tmp_path: Path) -> None:
    sizes = write_tokenizers(tmp_path, lacking=9, apart=apart)
    tokenizers, other = read_marian(tmp_path, sizes, first=min(sizes) - 1), theirs(tmp_path)
    for side, (tokenizer, size) in enumerate(zip(tokenizers, sizes, strict=True)):
        assert len(tokenizer) > size
        seen = set()
        for text in texts():
            wanted = other(**{("text", "text_target")[side]: text})["input_ids"]
            found = [number if number < size else tokenizer.unk for number in tokenizer.encode(text)]
            assert [*found, tokenizer.eos] == wanted, text
            seen.update(found)
        assert len(seen) > 100 and tokenizer.unk in seen


def test_texts_are_those_of_transformers(tmp_path: Path) -> None:
    sizes = write_tokenizers(tmp_path)
    (_, target), other, rng = read_marian(tmp_path, sizes, first=sizes[0] - 1), theirs(tmp_path), random.Random(2)
    for _ in range(200):
        ids = rng.choices(range(3, sizes[1] - 1), k=rng.randint(1, 12))
        assert target.decode([sizes[1] - 1, *ids, 0]) == other.decode(ids, skip_special_tokens=True)


def test_a_code_before_a_text(tmp_path: Path) -> None:
    sizes = write_tokenizers(tmp_path, codes=True)
    assert codes_in(tmp_path) == [CODE]
    (source, _), other = read_marian(tmp_path, sizes, first=sizes[0] - 1), theirs(tmp_path)
    for text in (f"{CODE} an oil", f"{CODE}an oil", CODE):
        assert [*source.encode(text), 0] == other(text)["input_ids"]
        assert source.encode(text)[0] == 2


def test_control_tokens_are_never_read(tmp_path: Path) -> None:
    sizes = write_tokenizers(tmp_path)
    for tokenizer in read_marian(tmp_path, sizes, first=sizes[0] - 1):
        assert (tokenizer.pad, tokenizer.unk, tokenizer.bos, tokenizer.eos) == (sizes[0] - 1, 1, sizes[0] - 1, 0)
        for name in ("</s>", "<pad>", "a</s>b"):
            assert not {tokenizer.pad, tokenizer.eos} & {*tokenizer.encode(name)}


def test_equal_models_are_one_tokenizer_and_files_keep_it(tmp_path: Path) -> None:
    sizes = write_tokenizers(tmp_path, same=True, lacking=5)
    source, target = read_marian(tmp_path, (sizes[0] + 3, sizes[1] + 3), first=sizes[0] - 1)
    assert source is target
    assert source.pieces([sizes[0]]) == [f"<unused_{sizes[0]}>"]  # a word that no vocabulary has
    source.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.fingerprint() == source.fingerprint() and not again.made_by_qkv
    assert all(again.encode(text) == source.encode(text) for text in texts())
    assert languages_in(tmp_path) == ("en", "de")


def test_what_cannot_be_taken_over_is_refused(tmp_path: Path) -> None:
    sizes = write_tokenizers(tmp_path)

    def refused(what: str) -> None:
        with pytest.raises(CheckpointError, match=what):
            read_marian(tmp_path, sizes, first=sizes[0] - 1)

    with pytest.raises(
        CheckpointError, match=r"the tokenizer has [\d,]+ pieces, the model has 7 ids; they do not belong together"
    ):
        read_marian(tmp_path, (7, 7), first=1)
    (tmp_path / "target.spm").write_bytes(trained(1, model_type="bpe"))
    refused(r"target\.spm: a SentencePiece model of kind bpe; Marian's are unigram")
    (tmp_path / "target.spm").write_bytes(trained(1, user_defined_symbols="<x>"))
    refused("a SentencePiece model with byte pieces or user-defined symbols")
    (tmp_path / "target.spm").write_bytes(b"not one")
    refused(r"target\.spm: damaged, or not a SentencePiece model")
    (tmp_path / "target.spm").write_bytes(trained(1))
    vocabulary = json.loads((tmp_path / "vocab.json").read_text())
    for content, what in (
        ({"<unk>": 0, "a": 0}, "not a vocabulary of pieces with an id each"),
        ({"a": 0}, "no <unk> there"),
        ({"<unk>": 10**9}, r"the vocabulary has the id 1,000,000,000, the model has"),
        ({name: number for name, number in vocabulary.items() if name != "<pad>"}, r"the tokenizer has no \[PAD\]"),
    ):
        (tmp_path / "vocab.json").write_text(json.dumps(content))
        refused(what)
    (tmp_path / "vocab.json").unlink()
    refused(r"no vocab\.json there; save the tokenizer beside the model")
