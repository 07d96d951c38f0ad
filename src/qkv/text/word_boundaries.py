"""Word boundaries among tokens: which tokens begin a word, which begin a unit, and which belong to a capitalised word.

A word is a run of letters, digits and their combining marks. A sign is a word by itself, and so is a Chinese or Japanese
character unless a segmenter joins it to others. A unit is a word, or an entity or phrase given as a span of characters.
"""

import functools
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from qkv.base.errors import ConfigError

UNITS = ("words", "jieba")  # values of the recipe

Span = tuple[int, int]  # characters, the end excluded
Segmenter = Callable[[str], list[str]]  # splits a text into words which, joined, are the text

_SPACE, _SINGLE, _WORD, _MARK = range(4)  # kinds of characters; a mark belongs to the character before it
# Scripts without spaces: Han with its radicals and repetition marks, kana (full and half width), Bopomofo.
_UNSPACED = (
    (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3040, 0x312F), (0x31A0, 0x31BF), (0x31F0, 0x31FF), (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x1B000, 0x1B16F), (0x20000, 0x3FFFF),
)  # fmt: skip
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\s\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


class WordBoundaries(NamedTuple):
    """Boolean arrays over the tokens of some texts, concatenated."""

    begins_word: np.ndarray
    begins_unit: np.ndarray
    capital: np.ndarray  # whether the token belongs to a word that begins with a capital


def find_word_boundaries(
    texts: Sequence[str], offsets: Sequence[Sequence[Span]], spans: Sequence[Sequence[Span]], segment: Segmenter | None = None
) -> WordBoundaries:
    """Find the word boundaries among the tokens; `offsets` are the characters of each token, `spans` the given units."""
    begins = np.cumsum([0, *(len(text) + 1 for text in texts)])  # of each text in their concatenation, with a line end after each
    codes = np.frombuffer("".join(f"{text}\n" for text in texts).encode("utf-32-le"), dtype=np.uint32)
    anchors, fresh = _anchors(codes, begins[:-1], offsets)
    word = _word_begins(codes)
    if segment is not None:
        for start, end in _segmented_words(texts, begins, segment):
            word[start + 1 : end] = False
    unit = word.copy()
    given = [(at + start, at + end) for at, of_text in zip(begins.tolist(), spans, strict=False) for start, end in of_text]
    for start, end in given:
        unit[start + 1 : end] = False
    for edge in chain.from_iterable(given):  # a unit begins at a span, and after it
        unit[edge] = _kinds()[0][codes[edge]] != _SPACE
    first_of_word = np.maximum.accumulate(np.where(word, np.arange(len(word)), 0))  # for each character
    capital = _kinds()[1][codes[first_of_word]]
    return WordBoundaries(word[anchors] & fresh, unit[anchors] & fresh, capital[anchors])


def _anchors(codes: np.ndarray, begins: np.ndarray, offsets: Sequence[Sequence[Span]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the anchor of each token, its first character that is no space, and whether it is the first token with that anchor.

    So a token that is a space begins the word after it, and among the byte tokens of one character only the first can begin one.
    """
    lengths = np.array([len(spans) for spans in offsets], dtype=np.int64)
    starts = np.fromiter((start for start, _ in chain.from_iterable(offsets)), np.int64, lengths.sum())
    after = np.where(_kinds()[0][codes] == _SPACE, len(codes) - 1, np.arange(len(codes)))
    following = np.minimum.accumulate(after[::-1])[::-1]  # for each character the next that is no space
    anchors = following[starts + np.repeat(begins, lengths)]
    fresh = np.diff(anchors, prepend=-1) != 0
    fresh[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    return anchors, fresh


def _word_begins(codes: np.ndarray) -> np.ndarray:
    """Return where words begin: at a sign, at a character of an unspaced script, and at a letter that follows no letter."""
    kind = _kinds()[0][codes]
    before = np.concatenate([[_SPACE], kind[:-1]])
    continues = (kind == _MARK) & (before != _SPACE) | (kind == _WORD) & (before >= _WORD)
    return (kind != _SPACE) & ~continues


def continued_words(text: str) -> list[bool]:
    """Return for each character whether it continues a word."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    continued: list[bool] = (~_word_begins(codes) & (_kinds()[0][codes] != _SPACE)).tolist()
    return continued


def extend_to_words(text: str, start: int, end: int) -> Span:
    """Extend the characters from `start` to `end` to whole words."""
    if start >= end:
        return start, end
    inside = continued_words(text)
    while start > 0 and inside[start]:
        start -= 1
    while end < len(text) and inside[end]:
        end += 1
    return start, end


def _segmented_words(texts: Sequence[str], begins: np.ndarray, segment: Segmenter) -> list[Span]:
    """Return the words of several characters of unspaced scripts that the segmenter finds."""
    found = []
    for text, at in zip(texts, begins.tolist(), strict=False):
        for start, end in pairwise(np.cumsum([0, *map(len, segment(text))], dtype=np.int64).tolist()):
            if end - start > 1 and all(any(low <= ord(c) <= high for low, high in _UNSPACED) for c in text[start:end]):
                found.append((at + start, at + end))
    return found


@functools.cache
def _kinds() -> tuple[np.ndarray, np.ndarray]:
    """Return the kind of every character, and whether it is a capital."""
    kind = np.full(sys.maxunicode + 1, _SINGLE, dtype=np.uint8)
    capital = np.zeros(sys.maxunicode + 1, dtype=bool)
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        if letter.isspace():
            kind[code] = _SPACE
        elif letter.isalnum():
            kind[code] = _WORD
            capital[code] = letter.isupper() or letter.istitle()
        elif unicodedata.category(letter) in ("Mn", "Mc", "Me", "Cf"):  # Cf: joiners, as inside Persian words
            kind[code] = _MARK
    for low, high in _UNSPACED:
        kind[low : high + 1] = _SINGLE
    return kind, capital


def load_segmenter(units: str) -> Segmenter | None:
    """Return the segmenter of Chinese words that a recipe names, or None."""
    if units not in UNITS:
        raise ConfigError(f"units {units!r} are not known; choose one of {', '.join(UNITS)}")
    if units == "words":
        return None
    try:
        import jieba
    except ImportError:
        raise ConfigError("units: jieba needs the package jieba: pip install jieba") from None
    jieba.setLogLevel("WARNING")  # it would report loading its dictionary
    cut: Segmenter = jieba.lcut
    return cut


def word_ids(decode: Callable[[list[int]], str], ids: list[int]) -> list[int]:
    """Return the word of each token, from 0; words are separated by spaces, and a Chinese or Japanese character is a word."""
    return [max(0, len(_WORDS.findall(decode(ids[: i + 1]))) - 1) for i in range(len(ids))]
