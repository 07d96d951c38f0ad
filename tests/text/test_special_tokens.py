"""Special tokens added to a trained tokenizer: they get the last ids, and text that is spelled like them stays text."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import tokenizers

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import test_pretrained_tokenizer as pretrained
from test_tokenizer import CORPUS, KINDS, SEEN, made

from marian_folders import write_tokenizers
from qkv.base.errors import CheckpointError, ConfigError
from qkv.interop.huggingface.tokenizer import tokenizer_files
from qkv.text.marian import read_marian
from qkv.text.pretrained_tokenizer import assign_special_tokens, load_pretrained_tokenizer
from qkv.text.special_tokens import SENTINEL
from qkv.text.tokenizer import Tokenizer

SENTINELS = [SENTINEL.format(number) for number in range(12)]
SPELLED = [
    "<extra_id_0>",
    "a <extra_id_1>b",
    "x<extra_id_10> <extra_id_3>",
    "<extra_id_2",
    "＜extra_id_2＞",
    "Don't <extra_id_0>!",
]
PLAIN = ["the quick brown fox", "Le café <b>est</b>", " an oil ", "设置中", "<extra", "extra_id_0>", ""]


@cache
def greedy_unigram() -> Tokenizer:
    """A unigram tokenizer that prefers long pieces so much that it would take a special token from text."""
    letters = sorted({letter for line in CORPUS for letter in line.replace(" ", "▁") if line.isascii()})
    model = tokenizers.models.Unigram([("<unk>", 0.0), ("<pad>", -1.0), *((letter, -1.0) for letter in letters)], 0, False)
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    return assign_special_tokens(library, {"bos_token": "<pad>", "eos_token": "<pad>"})


def marian(folder: Path) -> Tokenizer:
    sizes = write_tokenizers(folder, lacking=5)
    return read_marian(folder, sizes, first=sizes[0] - 1)[0]


MAKERS: dict[str, Callable[[Path], Tokenizer]] = {
    **{kind: lambda _, kind=kind: made(kind) for kind in KINDS},  # type: ignore[misc]
    **{kind: lambda folder, kind=kind: load_pretrained_tokenizer(pretrained.saved(kind, folder)) for kind in pretrained.KINDS},  # type: ignore[misc]
    "unigram of letters": lambda _: greedy_unigram(),
    "marian": marian,
}


@pytest.mark.parametrize("maker", MAKERS)
def test_added_special_tokens(maker: str, tmp_path: Path) -> None:
    before = MAKERS[maker](tmp_path)
    after = before.with_special_tokens(SENTINELS[:2]).with_special_tokens([*SENTINELS, "<case>"])
    new = list(range(len(before), len(before) + 13))
    assert after.sentinels == new[:12] and after.additional_special_tokens["<case>"] == new[12]
    assert (len(after), after.special_ids) == (len(before) + 13, before.special_ids | {*new})
    assert after.pieces(range(len(after))) == [*before.pieces(range(len(before))), *SENTINELS, "<case>"]
    assert (after.first_text_id, after.made_by_qkv) == (before.first_text_id, before.made_by_qkv)
    assert [after.pad, after.unk, after.bos, after.eos] == [before.pad, before.unk, before.bos, before.eos]

    path = tmp_path / "added.json"
    after.save(path)
    for tokenizer in (after, Tokenizer.load(path)):
        assert tokenizer.fingerprint() == after.fingerprint()
        assert tokenizer.sentinels == new[:12]
        for text in [*PLAIN, *SEEN]:
            assert tokenizer.encode(text) == before.encode(text)
        for text in SPELLED:
            ids = tokenizer.encode(text)
            assert not {*new} & {*ids}, text
            assert tokenizer.decode([new[0], *ids, *new]) == tokenizer.decode(ids)
            if before.unk not in before.encode(text):
                assert tokenizer.decode(ids) == before.decode(before.encode(text))
    assert after.with_special_tokens(SENTINELS) is after


@pytest.mark.parametrize("maker", ["bpe", "unigram", "albert", "marian"])
def test_exported_tokenizers_find_them(maker: str, tmp_path: Path) -> None:
    """Tokenizers of transformers find special tokens in text; a token after a word must not change that word."""
    tokenizer = MAKERS[maker](tmp_path).with_special_tokens(SENTINELS)
    text = tokenizer_files(tokenizer, 100, "eos")["tokenizer.json"]
    library = tokenizers.Tokenizer.from_str(text)
    ids = library.encode("<extra_id_11>the<extra_id_0>").ids
    assert [ids[0], ids[-2]] == [tokenizer.sentinels[11], tokenizer.sentinels[0]]
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "tokenizer.json").write_text(text)
    again = load_pretrained_tokenizer(tmp_path / "hf", first=tokenizer.bos)
    assert again.sentinels == tokenizer.sentinels
    assert not {*again.sentinels} & {*again.encode("<extra_id_0> the")}


def test_names_that_text_could_have_are_refused() -> None:
    with pytest.raises(ConfigError, match="could be a piece of text"):
        made("bpe").with_special_tokens(["word"])
    with pytest.raises(ConfigError, match="piece of text named <0x41>"):
        made("bpe").with_special_tokens(["<0x41>"])


def test_ids_with_gaps_cannot_grow() -> None:
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "[PAD]": 1, "[CLS]": 2, "[SEP]": 5}, "[UNK]"))
    with pytest.raises(CheckpointError, match="have gaps"):
        assign_special_tokens(library, {}).with_special_tokens(SENTINELS)
