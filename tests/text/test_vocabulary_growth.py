"""Grown tokenizers: old ids and old texts stay, texts come back, and new text has fewer tokens."""

import random
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import tokenizers

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import test_pretrained_tokenizer as pretrained
from test_sentencepiece import imported, trained
from test_tokenizer import CORPUS, KINDS, LINES, SEEN, UNSEEN, made, random_texts

from marian_folders import corpus as marian_corpus
from marian_folders import write_tokenizers
from qkv.base.errors import CheckpointError, ConfigError
from qkv.text.marian import read_marian
from qkv.text.pretrained_tokenizer import assign_special_tokens, load_pretrained_tokenizer
from qkv.text.special_tokens import SENTINEL
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.text.vocabulary_growth import add_pieces, check_growable, learn_pieces, tokens_of_pieces

LETTERS = ("我你他的是不了在人有这个上们来到时大地为", "กขคงจฉชซดตนบปผพรลวสห", "абвгдежзиклмнопрстуф", "aeinrstlokm")


@cache
def new_text() -> list[str]:
    """Return texts in four scripts: Chinese and Thai without spaces, Cyrillic and Latin with them."""
    rng = random.Random(4)
    lexicons = [["".join(rng.choices(letters, k=rng.randint(1, 5))) for _ in range(60)] for letters in LETTERS]
    gaps = ("", "", " ", " ")
    return [gap.join(rng.choices(lexicon, k=7)) for _ in range(80) for lexicon, gap in zip(lexicons, gaps, strict=True)]


def t5(folder: Path) -> Tokenizer:
    """A unigram tokenizer as T5's, with a token beyond its model."""
    library = tokenizers.Tokenizer.from_str(pretrained.albert_library().to_str())
    library.add_special_tokens(["<extra_id_0>"])
    library.save(str(folder / "tokenizer.json"))
    return load_pretrained_tokenizer(folder)


def marian(folder: Path) -> Tokenizer:
    sizes = write_tokenizers(folder, lacking=5)
    return read_marian(folder, sizes, first=sizes[0] - 1)[0]


MAKERS: dict[str, Callable[[Path], Tokenizer]] = {
    **{kind: lambda _, kind=kind: made(kind) for kind in KINDS},  # type: ignore[misc]
    **{f"small {kind}": lambda _, kind=kind: made(kind, 400) for kind in ("bpe", "unigram")},  # type: ignore[misc]
    "bytes alone": lambda _: train_tokenizer(TokenizerConfig(kind="byte-bpe", vocab=260), CORPUS),
    "spm bpe": lambda folder: imported(trained("bpe", "bytes"), folder),
    "spm unigram": lambda folder: imported(trained("unigram", "symbols"), folder),
    "t5": t5,
    "marian": marian,
}
ONE_UNKNOWN = ("words", "characters", "wordpiece", "small unigram", "spm unigram", "t5", "marian")  # one <unk> for much text


def grow(tokenizer: Tokenizer, most: int) -> Tokenizer:
    new = learn_pieces(tokenizer, new_text(), most)
    return add_pieces(tokenizer, new, list(new.scores))


@pytest.mark.parametrize("maker", MAKERS)
def test_growth(maker: str, tmp_path: Path) -> None:
    before = MAKERS[maker](tmp_path)
    check_growable(before)
    after = grow(before, 300)
    size = len(before)
    assert size < len(after) <= size + 300
    assert after.pieces(range(size)) == before.pieces(range(size))
    assert after.special_ids == before.special_ids
    after.save(tmp_path / "grown.json")
    assert Tokenizer.load(tmp_path / "grown.json").fingerprint() == after.fingerprint()

    unchanged = 0
    old_texts = [*SEEN, *UNSEEN, *marian_corpus(0)[:100], *random_texts()]
    for text in [*old_texts, *new_text()]:
        ids = after.encode(text)
        if max(ids, default=0) < size:
            unchanged += 1
            assert ids == before.encode(text), text
        if before.unk not in (old := before.encode(text)):
            assert after.decode(ids) == before.decode(old)
    assert unchanged > len(SEEN) / 2

    spaced = [text for text in new_text() if " " in text or maker != "words"]
    if maker in ONE_UNKNOWN:
        unknown = [sum(ids.count(before.unk) for ids in t.encode_batch(spaced)) for t in (before, after)]
        assert unknown[1] < unknown[0] / 20
    else:
        old, new = (sum(map(len, tokenizer.encode_batch(spaced))) for tokenizer in (before, after))
        assert new < 0.7 * old
    known = [text for text in spaced if after.unk not in after.encode(text)]
    assert len(known) > 0.9 * len(spaced)
    assert after.decode_batch(after.encode_batch(known)) == known


@pytest.mark.parametrize("maker", MAKERS)
def test_new_pieces_consist_of_old_tokens(maker: str, tmp_path: Path) -> None:
    before = MAKERS[maker](tmp_path)
    after = grow(before, 100).with_special_tokens([SENTINEL.format(7)])
    rows = tokens_of_pieces(before, after)
    assert len(rows) == len(after) and rows[: len(before)] == [[number] for number in range(len(before))]
    assert rows[-1] == list(range(len(before)))  # the special token
    parts = {number: ids for number, ids in enumerate(rows[:-1]) if number >= len(before) and ids != rows[-1]}
    for number, ids in parts.items():
        assert before.unk not in ids
        assert before.decode(ids) in after.decode([number])  # all of it, but for characters that were unknown
    assert bool(parts) == (maker not in ("words", "characters"))


def test_it_grows_again_and_after_special_tokens() -> None:
    for kind in ("bpe", "unigram"):
        once = grow(made(kind).with_special_tokens([SENTINEL.format(0)]), 50)
        new = learn_pieces(once, new_text(), 100)
        twice = add_pieces(once, new, list(new.scores))
        assert len(twice) == len(once) + 100 == len(made(kind)) + 151
        assert twice.sentinels == [len(made(kind))]
        assert sum(map(len, twice.encode_batch(new_text()))) < sum(map(len, once.encode_batch(new_text())))


def test_learning_is_the_same_in_any_order_of_texts() -> None:
    for kind in KINDS:
        assert learn_pieces(made(kind), new_text()[::-1], 200) == learn_pieces(made(kind), new_text(), 200)


def test_text_that_the_vocabulary_covers_gives_few_pieces() -> None:
    assert not learn_pieces(made("words"), LINES * 2, 100).scores
    assert not learn_pieces(made("characters"), LINES * 2, 100).scores
    assert learn_pieces(made("bpe"), [], 100) == ({}, [])


def test_two_tokenizers_of_one_vocabulary_share_it_still(tmp_path: Path) -> None:
    sizes = write_tokenizers(tmp_path)
    sides = read_marian(tmp_path, sizes, first=sizes[0] - 1)
    found = [learn_pieces(side, texts, 40) for side, texts in zip(sides, (new_text()[::2], new_text()[1::2]), strict=True)]
    names = list(dict.fromkeys([*found[0].scores, *found[1].scores]))
    source, target = (add_pieces(side, new, names) for side, new in zip(sides, found, strict=True))
    assert source.same_vocabulary(target) and len(source) == len(sides[0]) + len(names)
    only_target = {*found[1].scores} - {*found[0].scores}
    used = {piece for ids in source.encode_batch(new_text()[::2]) for piece in source.pieces(ids)}
    assert only_target and not used & only_target


def test_tokenizers_that_cannot_grow(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="marks parts of words with '##' cannot grow"):
        check_growable(load_pretrained_tokenizer(pretrained.saved("bert", tmp_path)))
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "[PAD]": 1, "[CLS]": 2, "[SEP]": 5}, "[UNK]"))
    with pytest.raises(CheckpointError, match="have gaps"):
        check_growable(assign_special_tokens(library, {}))
