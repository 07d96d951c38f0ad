"""Word boundaries agree with the text (words, units, capitals) for every tokenizer."""

import sys
import types

import numpy as np
import pytest

from qkv.base.errors import ConfigError
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.text.word_boundaries import Segmenter, Span, extend_to_words, find_word_boundaries, load_segmenter

ENGLISH = ["The Bank of England's 3rd report, in London.", "It rose by 12.5 % -- he said so!"]
CHINESE = ["英国银行的报告 in London。", "他说过GDP增长了３％！"]


def characters(text: str) -> list[Span]:
    """A tokenizer whose tokens are the characters that are no space."""
    return [(i, i + 1) for i, letter in enumerate(text) if not letter.isspace()]


def cut_at(text: str, begins: np.ndarray) -> str:
    """The text's characters without spaces, with | before those that begin something."""
    letters = [letter for letter in text if not letter.isspace()]
    return "".join(("|" if begin else "") + letter for letter, begin in zip(letters, begins, strict=True))


def words_and_units(text: str, spans: list[Span], segment: Segmenter | None = None) -> tuple[str, str]:
    found = find_word_boundaries([text], [characters(text)], [spans], segment)
    return cut_at(text, found.begins_word), cut_at(text, found.begins_unit)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("It's 3rd, no?", "|It|'|s|3rd|,|no|?"),
        ("two  spaces\u3000here", "|two|spaces|here"),
        ("cafe\u0301s na\u00efve", "|cafe\u0301s|na\u00efve"),  # a mark goes with its letter
        ("\u0645\u06cc\u200c\u0631\u0648\u062f", "|\u0645\u06cc\u200c\u0631\u0648\u062f"),  # and a joiner with its word
        ("他说GDP涨。", "|他|说|GDP|涨|。"),
        ("カナ한국어 말", "|カ|ナ|한국어|말"),
    ],
)
def test_words(text: str, wanted: str) -> None:
    assert words_and_units(text, []) == (wanted, wanted)


def test_a_span_is_one_unit_and_its_words_stay_words() -> None:
    text = "The Bank of England's report"
    assert words_and_units(text, [(4, 19)]) == ("|The|Bank|of|England|'|s|report", "|The|BankofEngland|'|s|report")
    assert words_and_units("subway cars", [(3, 6), (7, 10)])[1] == "|sub|way|car|s"  # spans may begin and end inside words
    assert words_and_units("他在英国银行工作。", [(2, 6)])[1] == "|他|在|英国银行|工|作|。"


@pytest.mark.parametrize(
    ("text", "given", "wanted"),
    [
        ("The Italian trade.", "Ital", "Italian"),
        ("The Italian trade.", "alian tr", "Italian trade"),
        ("The Italian trade.", "trade", "trade"),
        ("by 12.5 %", "2", "12"),
        ("non-Italian", "Ital", "Italian"),
        ("trade.", ".", "."),
        ("报告银行", "告", "告"),  # a Chinese character is a word
        ("noe\u0301l x", "e", "noe\u0301l"),  # a mark goes on with its letter
    ],
)
def test_what_cuts_words_is_widened(text: str, given: str, wanted: str) -> None:
    start = text.index(given)
    first, last = extend_to_words(text, start, start + len(given))
    assert text[first:last] == wanted
    assert extend_to_words(text, start, start) == (start, start)


def test_a_segmenter_joins_chinese_and_nothing_else() -> None:
    def segment(_: str) -> list[str]:
        return ["他", "在", "英国", "银行", "ab", " ", "cd", "..", "。"]

    text = "他在英国银行ab cd..。"
    assert words_and_units(text, [], segment) == ("|他|在|英国|银行ab|cd|.|.|。".replace("行ab", "行|ab"),) * 2
    assert words_and_units(text, [(2, 6)], segment)[1] == "|他|在|英国银行|ab|cd|.|.|。"


def test_capitals_are_those_of_the_words_first_letters() -> None:
    text = "In LONDON it rOSE, Éa ǅx 3D"
    capital = find_word_boundaries([text], [characters(text)], [[]]).capital
    assert [letter for letter, is_capital in zip(text.replace(" ", ""), capital, strict=True) if is_capital] == list(
        "InLONDONÉaǅx"
    )


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece", "unigram", "characters", "words"])
@pytest.mark.parametrize("texts", [ENGLISH, CHINESE, ["", *ENGLISH, "", *CHINESE]], ids=["english", "chinese", "both"])
def test_every_kind_of_tokenizer(kind: str, lowercase: bool, texts: list[str]) -> None:
    tokenizer = trained(kind, lowercase)
    encoded = tokenizer.encode_with_offsets(texts)
    found = find_word_boundaries(texts, [spans for _, spans in encoded], [[] for _ in texts])
    known = find_word_boundaries(texts, [characters(text) for text in texts], [[] for _ in texts])
    letters = [(text, i) for text in range(len(texts)) for i, _ in characters(texts[text])]
    begins = {letter for letter, begin in zip(letters, known.begins_word, strict=True) if begin}
    tokens = [(text, start, end) for text, (_, spans) in enumerate(encoded) for start, end in spans]
    marked = [token for token, begin in zip(tokens, found.begins_word, strict=True) if begin]
    assert {(text, start) for text, start, _ in marked} <= begins and len(marked) == len({token[:2] for token in marked})
    covered = {(text, i) for text, start, end in tokens for i in range(start + 1, end)}  # signs in the middle of a piece
    assert begins - covered <= {(text, start) for text, start, _ in marked}
    assert (found.begins_unit == found.begins_word).all()
    is_capital = dict(zip(letters, known.capital.tolist(), strict=True))
    for token, capital in zip(tokens, found.capital.tolist(), strict=True):
        assert capital == is_capital.get(token[:2], capital)


def trained(kind: str, lowercase: bool) -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind=kind, vocab=320, lowercase=lowercase), 3 * [*ENGLISH, *CHINESE])  # type: ignore[arg-type]


def test_a_space_by_itself_begins_the_word_after_it() -> None:
    found = find_word_boundaries(["a b", "c"], [[(0, 1), (1, 2), (2, 3)], [(0, 1)]], [[], []])
    assert found.begins_word.tolist() == [True, True, False, True]


def test_segmenters(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_segmenter("words") is None
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(ConfigError, match="pip install jieba"):
        load_segmenter("jieba")
    stand_in = types.SimpleNamespace(lcut=lambda text: [text[:2], text[2:]], setLogLevel=lambda _: None)
    monkeypatch.setitem(sys.modules, "jieba", stand_in)
    segment = load_segmenter("jieba")
    assert segment is not None and words_and_units("银行工作", [], segment)[0] == "|银行|工作"
    with pytest.raises(ConfigError, match="units 'word' are not known; choose one of words, jieba"):
        load_segmenter("word")
