"""The text of an output while it grows is that of all its tokens together."""

import numpy as np
import pytest

from encoder_runs import LINES
from qkv.inference.text_stream import TextStream
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

TEXT = "设置 Paris isn't so naïve: 12.5 % 😀 , of course ."


def trained(kind: str) -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind=kind, vocab=340), [*LINES * 10, TEXT])


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece", "unigram", "characters", "words"])
def test_the_text_is_that_of_all_tokens(kind: str) -> None:
    tokenizer, rng = trained(kind), np.random.default_rng(1)
    encoded = tokenizer.encode(TEXT)
    drawn = [rng.integers(len(tokenizer), size=40).tolist() for _ in range(20)]  # with incomplete characters and special tokens
    for prompt, ids in [(encoded[:2], encoded[2:]), ([], encoded), *((ids[:3], ids[3:]) for ids in drawn)]:
        stream, told = TextStream(tokenizer, prompt, ()), ""
        for number in range(len(ids)):
            stream.append(ids[number : number + 1])
            assert stream.text == tokenizer.decode([*prompt, *ids[: number + 1]])[len(tokenizer.decode(prompt)) :]
            told += stream.new_text()
        assert told + stream.new_text(last=True) == stream.text


def test_no_partial_character_or_stop_string_is_streamed() -> None:
    tokenizer = trained("byte-bpe")
    stream, told = TextStream(tokenizer, tokenizer.encode("a"), ["of no"]), []
    for word in tokenizer.encode("a 设 of you of nobody")[len(tokenizer.encode("a")) :]:
        ended = stream.append([word])
        told.append(stream.new_text())
        assert "\ufffd" not in told[-1]
        if ended:
            break
    assert "".join(told) == " 设 of you " and stream.stopped
