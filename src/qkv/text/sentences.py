"""Splitting of text into sentences, and of long text into parts that fit; the parts joined are the text itself.

There are no rules per language: a stop ends a sentence unless its context says otherwise. In doubt the text stays whole, since a
translator loses more by a wrong split than by a missed one.
"""

import itertools
import re
from collections.abc import Callable

Fits = Callable[[str], bool]

# Stops that always end a sentence: Chinese and Japanese, Indic, Arabic and Urdu, Armenian, Ethiopic.
_SURE = "。！？｡।॥؟۔։።"
_STOPS = f".!?…{_SURE}"
_CLOSING = r"""(?:["'”’»›)\]}」』）】》〉]|[“«](?!\w))*+"""  # “ and « close in German and open elsewhere
_COMMAS_ASIA = "，、；：،؛"
_GOES_ON_ASIA = _COMMAS_ASIA + _STOPS + ",;:と"

# A run of stops, the quotes and brackets that close after it, and white space. A run matches from its first stop only, and
# without backtracking (++), so that a million dots take no longer than a million letters.
_STOP = re.compile(rf"(?<![{_STOPS}])([{_STOPS}]++)({_CLOSING})(\s*+)|\n\s*+")
_CLAUSE = re.compile(rf"(?:[,;:–—…]{_CLOSING}\s++|[{_COMMAS_ASIA}]{_CLOSING}\s*+)")
_SPACE = re.compile(r"\s++")
_WORD_BEFORE = re.compile(r"[^\s(\[{\"'“”„«»]*\Z")

# Words whose stop seldom ends a sentence; the first line is for single letters (J. S. Bach, z. B., U.S.) and ordinals
# (3. Oktober).
_ABBREVIATION = re.compile(
    r"""(?:[^\W\d_]\.)*[^\W\d_] | \d{1,2}
    | mrs? | ms | dr | prof | st | sr | jr | rev | gen | sen | rep | gov | capt | lt | col | sgt | hon | messrs | ph\.d
    | vs | cf | ca | approx | viz | inc | ltd | co | corp | dept | al | hr | fr | frl | hrsg | bzw | evtl | ggf | inkl
    | exkl | sog | vgl | mio | mrd | mme | mlle | p\.ex | sra | srta | dra | uds | pág | núm""",
    re.IGNORECASE | re.VERBOSE,
)
_BEFORE_NUMBER = re.compile(r"nos?|nr|figs?|vol|pp|art|abb|bd|str|tel|chap|sec", re.IGNORECASE)
_LOOK_BACK = 24  # characters; no abbreviation is longer
_LOOK_AHEAD = 4  # characters that may open a sentence before its first letter, such as a quote


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, each with the white space that follows it; joined, they are the text."""
    return _split_at(text, [stop.end() for stop in _STOP.finditer(text) if _ends_sentence(text, stop)])


def _split_at(text: str, ends: list[int]) -> list[str]:
    bounds = [0, *ends, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(bounds) if start < end]


def _ends_sentence(text: str, stop: re.Match[str]) -> bool:
    stops, closing, space = stop.groups()
    if stops is None or "\n" in space:
        return True
    after = text[stop.end() : stop.end() + _LOOK_AHEAD]
    if any(sign in _SURE for sign in stops):
        # “好。”，他说 and 「はい。」と言った and （好！）。 continue after the quote or bracket.
        return not (closing and after and after[0] in _GOES_ON_ASIA)
    # A comma, a dash or a lower-case letter continues the sentence.
    first_letter = next((sign for sign in after if sign.isalnum()), "A")
    if not space or after[:1] in (*",;:–—-",) or first_letter.islower():
        return False
    before = text[max(0, stop.start() - _LOOK_BACK) : stop.start()]
    return stops != "." or not _is_abbreviation(before, after)


def _is_abbreviation(before: str, after: str) -> bool:
    """Return whether the full stop in between marks an abbreviation, an initial or an ordinal (3. Oktober)."""
    found = _WORD_BEFORE.search(before)
    word = found[0] if found else ""
    if _BEFORE_NUMBER.fullmatch(word):
        return after[:1].isdigit()
    return _ABBREVIATION.fullmatch(word) is not None


def split_long(text: str, fits: Fits) -> list[str]:
    """Split a text into parts that fit: at sentences, else clauses, else spaces, else anywhere; joined, they are the text.

    A text that fits stays whole, and so does a single character that does not fit.
    """
    if fits(text):
        return [text]
    pieces = []
    for sentence in split_sentences(text):
        pieces += [sentence] if fits(sentence) else _split(sentence, _FINER, fits)
    return pieces


_FINER: tuple[Callable[[str], list[str]], ...] = (
    lambda text: _split_at(text, [mark.end() for mark in _CLAUSE.finditer(text)]),
    lambda text: _split_at(text, [space.end() for space in _SPACE.finditer(text)]),
    list,
)


def _split(text: str, finer: tuple[Callable[[str], list[str]], ...], fits: Fits) -> list[str]:
    """Split a text that does not fit by the first of the finer ways, and merge neighbouring parts as long as they fit."""
    if not finer:
        return [text]
    parts = finer[0](text)
    if len(parts) == 1:
        return _split(text, finer[1:], fits)
    ends = [0, *itertools.accumulate(map(len, parts))]
    pieces, start, guess = [], 0, 1
    while start < len(parts):
        count = _count_fitting(text, ends, start, guess, fits)
        if count:
            pieces.append(text[ends[start] : ends[start + count]])
        else:
            pieces += _split(parts[start], finer[1:], fits)
        start += count or 1
        guess = count or 1
    return pieces


def _count_fitting(text: str, ends: list[int], start: int, guess: int, fits: Fits) -> int:
    """Return about how many parts from `start` fit together, by doubling from a guess and then bisecting.

    Bisection stops at an uncertainty of an eighth, as a call of `fits` costs more than a slightly shorter part.
    """

    def together(count: int) -> bool:
        return fits(text[ends[start] : ends[start + count]])

    left = len(ends) - 1 - start
    low, high = 0, left + 1  # `low` fit together, `high` do not
    probe = min(guess, left)
    while low < probe < high:
        if together(probe):
            low, probe = probe, min(2 * probe, left)
        else:
            high = probe
    while low + low // 8 + 1 < high:
        probe = (low + high) // 2
        low, high = (probe, high) if together(probe) else (low, probe)
    return low
