"""What the text tells of its tokens: which of them begin a word, which begin a unit, and whose word has a capital.

A word is a run of letters, digits and the marks on them. A sign is a word by itself, and so is a Chinese or Japanese character
unless a segmenter says otherwise. A unit is a word, or an entity or a phrase that was given as a span of characters.
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

UNITS = ("words", "jieba")  # what a recipe may ask for

Span = tuple[int, int]  # characters, the end excluded
Segmenter = Callable[[str], list[str]]  # a text cut into words which, joined, are the text

_SPACE, _ALONE, _WORD, _MARK = range(4)  # a mark goes with whatever stands before it
# Han with its radicals and repetition marks, kana (full and half width), Bopomofo: what is written without spaces.
_EASTERN = (
    (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3040, 0x312F), (0x31A0, 0x31BF), (0x31F0, 0x31FF), (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x1B000, 0x1B16F), (0x20000, 0x3FFFF),
)  # fmt: skip
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\s\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


class WordBoundaries(NamedTuple):
    """For every token of some texts, end to end, whether it..."""

    begins_word: np.ndarray
    begins_unit: np.ndarray
    capital: np.ndarray  # ... belongs to a word that is written with a capital


def find_word_boundaries(
    texts: Sequence[str], offsets: Sequence[Sequence[Span]], spans: Sequence[Sequence[Span]], segment: Segmenter | None = None
) -> WordBoundaries:
    """Marks of the tokens of each text; `offsets` are the tokens' characters, `spans` the units that were given."""
    begins = np.cumsum([0, *(len(text) + 1 for text in texts)])  # of each text in all of them, a line end after each
    codes = np.frombuffer("".join(f"{text}\n" for text in texts).encode("utf-32-le"), dtype=np.uint32)
    anchors, fresh = _anchors(codes, begins[:-1], offsets)
    word = _word_begins(codes)
    if segment is not None:
        _join(word, _segmented(texts, begins, segment))
    unit = word.copy()
    _part(codes, unit, [(at + a, at + b) for at, found in zip(begins.tolist(), spans, strict=False) for a, b in found])
    capital = _kinds()[1][codes[_last(word)]]
    return WordBoundaries(word[anchors] & fresh, unit[anchors] & fresh, capital[anchors])


def _anchors(codes: np.ndarray, begins: np.ndarray, offsets: Sequence[Sequence[Span]]) -> tuple[np.ndarray, np.ndarray]:
    """The character by which each token is judged, its first that is no space; and whether no token before it has the same.

    A space that is a token by itself thus begins the word after it, and of the bytes of one character only the first begins any.
    """
    lengths = np.array([len(spans) for spans in offsets], dtype=np.int64)
    starts = np.fromiter((start for start, _ in chain.from_iterable(offsets)), np.int64, lengths.sum())
    place = np.arange(len(codes))
    after = np.where(_kinds()[0][codes] == _SPACE, len(codes) - 1, place)
    following = np.minimum.accumulate(after[::-1])[::-1]  # of each character the next that is no space
    anchors = following[starts + np.repeat(begins, lengths)]
    fresh = np.diff(anchors, prepend=-1) != 0
    fresh[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    return anchors, fresh


def _word_begins(codes: np.ndarray) -> np.ndarray:
    """Where a word begins: at a sign or an Eastern character, and where letters follow anything else."""
    kind = _kinds()[0][codes]
    before = np.concatenate([[_SPACE], kind[:-1]])
    goes_on = (kind == _MARK) & (before != _SPACE) | (kind == _WORD) & (before >= _WORD)
    return (kind != _SPACE) & ~goes_on


def extend_to_words(text: str, start: int, end: int) -> Span:
    """The characters from `start` to `end` and the rest of the words that they cut."""
    if start >= end:
        return start, end
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    inside = ~_word_begins(codes) & (_kinds()[0][codes] != _SPACE)  # a character that goes on with the word before it
    while start > 0 and inside[start]:
        start -= 1
    while end < len(text) and inside[end]:
        end += 1
    return start, end


def _segmented(texts: Sequence[str], begins: np.ndarray, segment: Segmenter) -> list[Span]:
    """Words of several Eastern characters, as the segmenter finds them."""
    found = []
    for text, at in zip(texts, begins.tolist(), strict=False):
        for start, end in pairwise(np.cumsum([0, *map(len, segment(text))], dtype=np.int64).tolist()):
            if end - start > 1 and all(map(_eastern, text[start:end])):
                found.append((at + start, at + end))
    return found


def _join(begins: np.ndarray, spans: list[Span]) -> None:
    """Let nothing begin inside the spans."""
    for start, end in spans:
        begins[start + 1 : end] = False


def _part(codes: np.ndarray, begins: np.ndarray, spans: list[Span]) -> None:
    """Make each span one, whatever stands at its edges."""
    _join(begins, spans)
    for edge in chain.from_iterable(spans):
        begins[edge] = _kinds()[0][codes[edge]] != _SPACE


def _last(begins: np.ndarray) -> np.ndarray:
    """Of each place the last one up to it where something begins."""
    return np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))


def _eastern(letter: str) -> bool:
    return any(low <= ord(letter) <= high for low, high in _EASTERN)


@functools.cache
def _kinds() -> tuple[np.ndarray, np.ndarray]:
    """Of every character its kind, and whether it is a capital."""
    kind = np.full(sys.maxunicode + 1, _ALONE, dtype=np.uint8)
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
    for low, high in _EASTERN:
        kind[low : high + 1] = _ALONE
    return kind, capital


def load_segmenter(units: str) -> Segmenter | None:
    """What cuts Chinese into words, where a recipe asks for it."""
    if units not in UNITS:
        raise ConfigError(f"units {units!r} are not known; choose one of {', '.join(UNITS)}")
    if units == "words":
        return None
    try:
        import jieba
    except ImportError:
        raise ConfigError("units: jieba needs the package jieba: pip install jieba") from None
    jieba.setLogLevel("WARNING")  # it would tell of its dictionary
    cut: Segmenter = jieba.lcut
    return cut


def word_ids(decode: Callable[[list[int]], str], ids: list[int]) -> list[int]:
    """For each token the number of the word, from 0, in which the text decoded so far ends."""
    return [max(0, len(_WORDS.findall(decode(ids[: i + 1]))) - 1) for i in range(len(ids))]
