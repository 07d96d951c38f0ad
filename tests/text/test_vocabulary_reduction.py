"""Smaller vocabularies: a text that needs only kept pieces has the same tokens, and any other still comes back."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from test_tokenizer import LINES, SEEN, UNSEEN, random_texts
from test_vocabulary_growth import MAKERS, grow, new_text

from marian_folders import corpus as marian_corpus
from qkv.text.tokenizer import Tokenizer
from qkv.text.vocabulary_reduction import keep_pieces, needed_pieces


@pytest.mark.parametrize("grown", [False, True], ids=["", "grown"])
@pytest.mark.parametrize("maker", MAKERS)
def test_kept_pieces_are_enough(maker: str, grown: bool, tmp_path: Path) -> None:
    before = MAKERS[maker](tmp_path)
    if grown:
        before = grow(before.with_special_tokens(["<extra_id_5>"]), 200)
    texts = [*LINES[:2], *marian_corpus(0)[:10], *new_text()[:10]]
    used = {number for ids in before.encode_batch(texts) for number in ids}
    kept = sorted(needed_pieces(before, used))
    after = keep_pieces(before, kept)
    assert used | before.special_ids <= {*kept}
    letters_only = maker == "characters" or (maker in ("bytes alone", "t5") and not grown)
    assert (len(after) == len(kept) < len(before)) != letters_only
    assert after.pieces(range(len(after))) == before.pieces(kept)
    assert after.special_ids == {kept.index(number) for number in before.special_ids}
    after.save(tmp_path / "smaller.json")
    assert Tokenizer.load(tmp_path / "smaller.json").fingerprint() == after.fingerprint()

    enough = 0
    for text in [*texts, *SEEN, *UNSEEN, *marian_corpus(0)[10:], *new_text(), *random_texts()]:
        old, new = before.encode(text), [kept[number] for number in after.encode(text)]
        if {*old} <= {*kept}:
            enough += 1
            assert new == old, text
        elif before.unk not in old and maker != "words":
            assert before.decode(new) == before.decode(old), text
    assert enough > len(texts)
