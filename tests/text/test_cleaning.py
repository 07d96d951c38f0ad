"""The cleaning in an exported tokenizer.json is what qkv does to a text before it encodes it."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import normalizers

sys.path.insert(0, str(Path(__file__).parents[1]))

from encoder_runs import LINES
from qkv.text.check import normalise
from qkv.text.cleaning import build_cleaning, build_mask_spacing, with_cleaning
from qkv.text.pretrained_tokenizer import assign_special_tokens
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from raw_texts import raw_texts

KINDS = ["bpe", "byte-bpe", "wordpiece", "unigram", "characters", "words"]


def train(kind: Any, lowercase: bool, **more: Any) -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind=kind, vocab=300, lowercase=lowercase, **more), LINES * 10)


def test_the_steps_are_those_of_normalise() -> None:
    cleaning = normalizers.Sequence(build_cleaning())
    for text in raw_texts(5000, seed=1):
        assert cleaning.normalize_str(text) == normalise(text), ascii(text)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_raw_text_gives_the_ids_of_clean_text(kind: str, lowercase: bool) -> None:
    tokenizer = train(kind, lowercase)
    cleaned = with_cleaning(tokenizer)
    library = Library.from_str(cleaned.to_json())
    different = 0
    for text in raw_texts(1500, seed=2):
        wanted = tokenizer.encode(normalise(text))
        assert library.encode(text).ids == cleaned.encode(text) == wanted, ascii(text)
        different += tokenizer.encode(text) != wanted
    assert kind == "words" or different > 300  # or else the texts test nothing


def test_long_white_space_takes_linear_time() -> None:
    cleaning = normalizers.Sequence([*build_cleaning(), *build_mask_spacing(False)])

    def seconds(length: int) -> float:
        started = time.perf_counter()
        cleaning.normalize_str("a" + " " * length + "b" + "\u00a0" * length + "[MASK]" + " " * length + "c")
        return time.perf_counter() - started

    assert seconds(100_000) < 100 * max(min(seconds(10_000) for _ in range(3)), 0.001)


def test_a_tokenizer_of_another_maker_stays_as_it_is() -> None:
    library = Library.from_str(train("wordpiece", True).to_json())
    foreign = assign_special_tokens(library, {"cls_token": "<s>", "sep_token": "</s>"})
    assert not foreign.made_by_qkv and with_cleaning(foreign) is foreign
