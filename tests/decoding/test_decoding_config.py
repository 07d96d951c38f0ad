"""Choices of decoding that cannot be meant are refused, with what to do."""

import pytest

from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.decoding.config import DecodingConfig


def test_defaults_are_the_paper_s() -> None:
    config = parse(DecodingConfig, {}, "decoding")
    assert (config.beam, config.length_penalty, config.max_ratio, config.max_extra) == (4, 0.6, 1.0, 50)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"beam": 0}, "beam: .* greater than or equal to 1, got 0"),
        ({"beam": 2, "n_best": 3}, "n_best: n_best must not exceed beam, 2; raise beam or lower n_best, got 3"),
        ({"n_best": 5}, "n_best must not exceed beam, 4"),
        ({"sampling": True, "temperature": 0}, "temperature: must be above 0, .* leave temperature and sampling out, got 0"),
        ({"sampling": True, "top_p": 0}, "top_p: .* greater than 0"),
        ({"sampling": True, "top_p": 1.1}, "top_p: .* less than or equal to 1"),
        ({"sampling": True, "top_k": -1}, "top_k: .* greater than or equal to 0"),
        ({"temperature": 0.7}, "temperature acts in sampling only; set sampling: true"),
        ({"top_k": 10}, "top_k acts in sampling only"),
        ({"top_p": 0.9}, "top_p acts in sampling only"),
        ({"length_penalty": -1}, "length_penalty: .* greater than or equal to 0"),
        ({"length_penalty": float("nan")}, "length_penalty: "),
        ({"beam": 1, "coverage_penalty": 0.2}, "coverage_penalty acts in beam search only"),
        ({"min_length": 9, "max_length": 9}, "min_length must be below max_length, 9"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram: "),
        ({"batch_tokens": 0}, "batch_tokens: "),
        ({"bean": 4}, "unknown key 'bean'; did you mean 'beam'"),
    ],
)
def test_what_cannot_be_meant_is_refused(values: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(DecodingConfig, values, "decoding")


def test_what_can_be_meant_is_taken() -> None:
    assert parse(DecodingConfig, {"sampling": True, "n_best": 100, "top_k": 10, "temperature": 0.7}, "decoding").n_best == 100
    assert parse(DecodingConfig, {"temperature": 1.0, "top_k": 0, "top_p": 1.0}, "decoding").beam == 4
