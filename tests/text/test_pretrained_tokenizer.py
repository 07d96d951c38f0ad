"""Tokenizers of other makers: their ids stay, their special tokens are found, and a saved one needs no file beside it."""

import json
import pickle
import unicodedata
from functools import cache
from pathlib import Path

import pytest
import tokenizers
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from qkv.base.errors import CheckpointError, ConfigError
from qkv.text.pretrained_tokenizer import assign_special_tokens, load_pretrained_tokenizer
from qkv.text.tokenizer import Tokenizer

LINES = [
    "The quick brown fox jumps over the lazy dog.",
    "Le café est très agréable à Paris.",
    "打开设置，然后重启 2024 年的设备。",
] * 5
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [
    *LINES[:3],
    "  the   foxes ",
    "CAFÉ",
    unicodedata.normalize("NFD", "très agréable"),
    "x [CLS] y[MASK]z <s>",
    "",
    "\u200b",
]


@cache
def bert_library() -> tokenizers.Tokenizer:
    """As bert-base-uncased's: special tokens first and, further on, the one for hiding."""
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[PAD]", "[unused1]", *SPECIAL[1:]], show_progress=False)
    library.train_from_iterator(LINES, trainer)
    library.post_processor = processors.BertProcessing(("[SEP]", 4), ("[CLS]", 3))
    library.enable_padding(pad_id=0, pad_token="[PAD]", length=50)
    library.enable_truncation(5)
    return library


@cache
def albert_library() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.Unigram())
    library.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False)
    library.train_from_iterator(LINES, trainer)
    return library


KINDS = {"bert": bert_library, "albert": albert_library}
every_kind = pytest.mark.parametrize("kind", KINDS)


def saved(kind: str, folder: Path) -> Path:
    KINDS[kind]().save(str(folder / "tokenizer.json"))
    return folder


def plain(kind: str) -> tokenizers.Tokenizer:
    """The library's own, that cuts nothing off and adds nothing."""
    library = tokenizers.Tokenizer.from_str(KINDS[kind]().to_str())
    library.no_padding()
    library.no_truncation()
    library.encode_special_tokens = True
    return library


@every_kind
def test_ids_are_theirs(kind: str, tmp_path: Path) -> None:
    tokenizer, library = load_pretrained_tokenizer(saved(kind, tmp_path)), plain(kind)
    wanted = [library.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert tokenizer.encode_batch(TEXTS) == wanted
    assert [ids for ids, _ in tokenizer.encode_with_offsets(TEXTS)] == wanted
    assert len(tokenizer) == library.get_vocab_size()
    assert tokenizer.decode(tokenizer.encode("the quick fox")) == "the quick fox"


@every_kind
def test_special_tokens_are_found(kind: str, tmp_path: Path) -> None:
    tokenizer, library = load_pretrained_tokenizer(saved(kind, tmp_path)), plain(kind)
    found = [tokenizer.pad, tokenizer.unk, tokenizer.bos, tokenizer.eos, tokenizer.mask]
    first = ["<pad>", "<unk>"] if kind == "albert" else SPECIAL[:2]
    assert found == [library.token_to_id(name) for name in [*first, *SPECIAL[2:]]]
    assert tokenizer.special_ids >= set(found) and tokenizer.first_text_id == max(tokenizer.special_ids) + 1
    assert tokenizer.decode([tokenizer.bos, *tokenizer.encode("the fox"), tokenizer.eos, tokenizer.pad]) == "the fox"


@every_kind
def test_saved_and_loaded_it_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = load_pretrained_tokenizer(saved(kind, tmp_path))
    path = tmp_path / "run" / "tokenizer.json"
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    sent = pickle.loads(pickle.dumps(loaded))
    assert loaded.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS) == sent.encode_batch(TEXTS)
    assert (loaded.mask, loaded.bos, loaded.special_ids) == (tokenizer.mask, tokenizer.bos, tokenizer.special_ids)
    assert loaded.fingerprint() == tokenizer.fingerprint()
    pair = tokenizers.Tokenizer.from_file(str(path)).encode("the fox", "the dog")
    assert pair.ids == [loaded.bos, *loaded.encode("the fox"), loaded.eos, *loaded.encode("the dog"), loaded.eos]
    assert pair.type_ids == [0] * (len(loaded.encode("the fox")) + 2) + [1] * (len(loaded.encode("the dog")) + 1)


@every_kind
def test_pieces_are_found_in_the_text_as_it_was(kind: str, tmp_path: Path) -> None:
    tokenizer = load_pretrained_tokenizer(saved(kind, tmp_path))
    for text, (ids, spans) in zip(TEXTS, tokenizer.encode_with_offsets(TEXTS), strict=True):
        for piece, (start, end) in zip(tokenizer.pieces(ids), spans, strict=True):
            bare = "".join(c for c in unicodedata.normalize("NFD", text[start:end]) if not unicodedata.combining(c)).lower()
            spelled = unicodedata.normalize("NFKD", piece.removeprefix("##").lstrip("▁"))
            assert piece in ("[UNK]", "<unk>") or spelled == unicodedata.normalize("NFKD", bare), text


@every_kind
def test_words_and_masks(kind: str, tmp_path: Path) -> None:
    tokenizer = load_pretrained_tokenizer(saved(kind, tmp_path))
    together = [number for ids in tokenizer.encode_words(["the", "quick", "foxes"]) for number in ids]
    assert together == tokenizer.encode("the quick foxes")
    assert tokenizer.encode_words([""]) == [[tokenizer.unk]]
    hidden = tokenizer.encode_masked("the [MASK] fox [MASK]")
    assert hidden == [*tokenizer.encode("the"), tokenizer.mask, *tokenizer.encode("fox"), tokenizer.mask]


def vocabulary_in(folder: Path) -> Path:
    known = bert_library().get_vocab()
    folder.joinpath("vocab.txt").write_text("\n".join(sorted(known, key=known.__getitem__)) + "\n", encoding="utf-8")
    return folder


def test_a_vocabulary_alone_is_berts(tmp_path: Path) -> None:
    tokenizer, library = load_pretrained_tokenizer(vocabulary_in(tmp_path)), plain("bert")
    assert tokenizer.encode_batch(TEXTS) == [library.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert tokenizer.mask == library.token_to_id("[MASK]")
    tmp_path.joinpath("tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert load_pretrained_tokenizer(tmp_path).encode("The") != tokenizer.encode("The") == tokenizer.encode("the")


def test_ordinary_pieces_are_most_of_the_ids(tmp_path: Path) -> None:
    """Wherever special tokens lie: here one is last."""
    vocabulary_in(tmp_path)
    pieces = tmp_path.joinpath("vocab.txt").read_text(encoding="utf-8").split()
    pieces.remove("[MASK]")
    tmp_path.joinpath("vocab.txt").write_text("\n".join([*pieces, "[MASK]"]) + "\n", encoding="utf-8")
    tokenizer = load_pretrained_tokenizer(tmp_path)
    assert tokenizer.mask == len(tokenizer) - 1 and tokenizer.first_text_id == tokenizer.eos + 1


def test_names_beside_the_tokenizer_come_first(tmp_path: Path) -> None:
    saved("bert", tmp_path)
    tmp_path.joinpath("special_tokens_map.json").write_text('{"cls_token": {"content": "[unused1]"}, "sep_token": "[SEP]"}')
    assert load_pretrained_tokenizer(tmp_path).bos == bert_library().token_to_id("[unused1]")


def test_a_token_that_is_missing_is_named(tmp_path: Path) -> None:
    def lacking(name: str) -> Path:
        values = json.loads(bert_library().to_str())
        values["added_tokens"] = []
        values["model"]["vocab"] = {"other" if piece == name else piece: n for piece, n in values["model"]["vocab"].items()}
        values["post_processor"] = None
        tmp_path.joinpath("tokenizer.json").write_text(json.dumps(values))
        return tmp_path

    for name in ("[CLS]", "[SEP]", "[PAD]"):
        with pytest.raises(CheckpointError, match=rf"{tmp_path}: the tokenizer has no \{name}; name one as"):
            load_pretrained_tokenizer(lacking(name))
    tokenizer = load_pretrained_tokenizer(lacking("[MASK]"))
    with pytest.raises(ConfigError, match="has no"):
        tokenizer.encode_masked("the [MASK]")


def test_folders_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json and no vocab\.txt there"):
        load_pretrained_tokenizer(tmp_path)
    tmp_path.joinpath("vocab.txt").write_text("a\nb\na\n")
    with pytest.raises(CheckpointError, match="a piece occurs twice"):
        load_pretrained_tokenizer(tmp_path)
    tmp_path.joinpath("tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: damaged, or not") as caught:
        load_pretrained_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)
    tmp_path.joinpath("tokenizer_config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="expected keys and values, got list"):
        load_pretrained_tokenizer(tmp_path)


def one_special(name: str) -> Library:
    library = Library(models.BPE({name: 0, "a": 1, "b": 2, "ab": 3}, [("a", "b")]))
    library.add_special_tokens([name])
    return library


@pytest.mark.parametrize("name", ["<|endoftext|>", "<unk>", "</s>"])
def test_a_causal_model_needs_one_special_token(name: str) -> None:
    tokenizer = assign_special_tokens(one_special(name), {}, causal=True)
    assert {tokenizer.pad, tokenizer.unk, tokenizer.bos, tokenizer.eos} == {0} and not tokenizer.adds_bos
    assert tokenizer.encode("abb") == [3, 2]
    with pytest.raises(CheckpointError, match="the tokenizer has no"):
        assign_special_tokens(one_special(name), {})


def test_what_a_causal_model_s_tokenizer_puts_first_is_known() -> None:
    library = one_special("<s>")
    library.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)])
    tokenizer = assign_special_tokens(library, {"eos_token": "<s>"}, causal=True)
    assert tokenizer.adds_bos
    assert Tokenizer(Library.from_str(tokenizer.to_json())).adds_bos
    with pytest.raises(CheckpointError, match="the tokenizer has no"):
        assign_special_tokens(one_special("<other>"), {}, causal=True)
