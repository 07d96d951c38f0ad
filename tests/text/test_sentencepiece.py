"""Imported SentencePiece models agree with the sentencepiece package."""

import io
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from qkv.base.errors import DataError
from qkv.text.sentencepiece import import_sentencepiece, parse_protobuf
from qkv.text.tokenizer import SPECIAL_TOKENS, Tokenizer

sentencepiece = pytest.importorskip("sentencepiece")

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bytes": {"byte_fallback": True, "pad_id": 3, "vocab_size": 400},
    "spaces": {"remove_extra_whitespaces": False, "add_dummy_prefix": False, "normalization_rule_name": "identity"},
    "symbols": {"user_defined_symbols": ["<mask>", "€", "."], "control_symbols": ["[CLS]", "<x>"]},
    "no start": {"bos_id": -1, "eos_id": 1, "pad_id": 0, "unk_id": 2},
    "across words": {"split_by_whitespace": False},
    "named": {"bos_piece": "[CLS]", "eos_piece": "[SEP]", "pad_id": 3, "pad_piece": "[PAD]"},
    "digits": {"split_digits": True, "normalization_rule_name": "nfkc_cf"},
}


def corpus() -> list[str]:
    rng = random.Random(1)
    lexicon = ["".join(rng.choices("aeinrstlo", k=rng.randint(1, 8))) for _ in range(300)] + list("设置中重启打开家")
    return [" ".join(rng.choices(lexicon, k=8)) + rng.choice([".", " €5.", "!", " 12,5"]) for _ in range(400)]


TEXTS = [
    *corpus()[:50],
    *("", " ", "  two  spaces  ", "tab\tand\nline", "ﬁne ① Ⅳ ｆｕｌｌ", "Größe", "u\u0308ber", "한국어 각", "👨‍👩 ключ", "▁x ▁"),
    *("重启 设置", "重启设置", "\u3000全角", "a\u200bb", "नमस्ते", "עברית عربي", "5€.<mask>.€", "x" * 500, "aeiou" * 100),
]


@cache
def trained(kind: str, options: str) -> bytes:
    model = io.BytesIO()
    settings = {"vocab_size": 250, "minloglevel": 2, "character_coverage": 1.0, **OPTIONS.get(options, {})}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=model, model_type=kind, hard_vocab_limit=False, **settings
    )
    return model.getvalue()


def imported(content: bytes, folder: Path) -> Tokenizer:
    path = folder / "spm.model"
    path.write_bytes(content)
    return import_sentencepiece(path)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_it_cuts_as_sentencepiece_does(kind: str, options: str, tmp_path: Path) -> None:
    theirs = sentencepiece.SentencePieceProcessor(model_proto=trained(kind, options))
    ours = imported(trained(kind, options), tmp_path)
    ours.save(tmp_path / "tokenizer.json")
    ours = Tokenizer.load(tmp_path / "tokenizer.json")
    for text in TEXTS:
        ids = theirs.encode(text)
        expected = ["<unk>" if theirs.is_unknown(number) else theirs.id_to_piece(number) for number in ids]
        assert ours.pieces(ours.encode(text)) == [shown(piece) for piece in expected]
        if "<unk>" not in expected:
            assert ours.decode(ours.encode(text)) == theirs.decode(ids)


def shown(piece: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in piece)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_control_tokens_come_first_and_the_rest_keeps_its_order(kind: str, options: str, tmp_path: Path) -> None:
    theirs = sentencepiece.SentencePieceProcessor(model_proto=trained(kind, options))
    ours = imported(trained(kind, options), tmp_path)
    rest = [n for n in range(len(theirs)) if not theirs.is_control(n) and not theirs.is_unknown(n)]
    extra = ["[CLS]", "<x>"] if options == "symbols" else []
    expected = [*SPECIAL_TOKENS, *extra, *map(theirs.id_to_piece, rest)]
    assert ours.pieces(range(len(ours))) == expected
    assert ours.additional_special_tokens == {name: 4 + number for number, name in enumerate(extra)}


@pytest.mark.parametrize("options", ["bytes", "symbols", "plain"])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_text_never_becomes_a_control_token(kind: str, options: str, tmp_path: Path) -> None:
    tokenizer = imported(trained(kind, options), tmp_path)
    controls = {0, 2, 3, *tokenizer.additional_special_tokens.values()}
    for text in ("<s>", "</s> a <pad>", "a<s>b<unk>", "[CLS] <x>", "<x><x>", "<0x41><0x0A>"):
        ids = tokenizer.encode(text)
        assert not controls & set(ids)
        if options == "bytes":
            assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", ["word", "char"])
def test_other_kinds_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unigram or bpe is wanted"):
        imported(trained(kind, "plain"), tmp_path)


def test_spaces_behind_words_are_refused(tmp_path: Path) -> None:
    OPTIONS["suffix"] = {"treat_whitespace_as_suffix": True}
    content = trained("unigram", "suffix")
    del OPTIONS["suffix"]
    with pytest.raises(DataError, match="is not supported"):
        imported(content, tmp_path)


@pytest.mark.parametrize("content", [b"", b"\n", b"some text\n", b"\x0a\xff\xff\xff\xff\x0f", b"\x80" * 20, bytes(range(256))])
def test_no_model_at_all(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a SentencePiece model"):
        imported(content, tmp_path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        import_sentencepiece(tmp_path / "none.model")


@pytest.mark.parametrize("unit", [0, 1, 5, 1000])
def test_a_character_map_that_points_out_of_bounds(unit: int, tmp_path: Path) -> None:
    good = trained("unigram", "plain")
    start = good.index(parse_protobuf(parse_protobuf(good)[3][-1])[2][-1]) + 4 + 4 * unit
    for broken in (b"\xff\xff\xff\x7f", b"\x00\x01\xf0\x00"):
        with pytest.raises(DataError, match="character map"):
            imported(good[:start] + broken + good[start + 4 :], tmp_path)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_damage_is_refused_or_harmless(kind: str, tmp_path: Path) -> None:
    """Nothing but a DataError of one line comes out of broken bytes, and what is accepted can be used."""
    good = trained(kind, "plain")
    rng = random.Random(2)
    refused = 0
    for trial in range(120):
        content = bytearray(good[: rng.randrange(len(good))] if trial % 4 == 0 else good)
        reach = len(content) if trial % 2 else min(len(content), 4000)  # the pieces, or mostly the map of characters
        for _ in range(trial % 4 * 8):
            content[rng.randrange(reach)] = rng.randrange(256)
        try:
            tokenizer = imported(bytes(content), tmp_path)
            tokenizer.decode(tokenizer.encode("Größe ﬁ ① 设置 <s> x"))
        except DataError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 60
