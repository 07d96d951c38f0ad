"""Cutting text into sentences, and long text into pieces that fit; what is cut, joined again, is the text itself.

There are no rules for each language: a stop ends a sentence unless what stands around it says otherwise. Where that is
unclear the text stays whole, since a translator loses more by a wrong cut than by a missed one.
"""

import itertools
import re
from collections.abc import Callable

Fits = Callable[[str], bool]

# Stops that end a sentence wherever they stand: Chinese and Japanese, Indic, Arabic and Urdu, Armenian, Ethiopic.
_SURE = "。！？｡।॥؟۔։።"
_STOPS = f".!?…{_SURE}"
_CLOSING = r"""(?:["'”’»›)\]}」』）】》〉]|[“«](?!\w))*+"""  # “ and « close in German and open elsewhere
_COMMAS_ASIA = "，、；：،؛"
_GOES_ON_ASIA = _COMMAS_ASIA + _STOPS + ",;:と"

# A run of stops, the quotes and brackets that close after it, and white space. A run is tried from its first stop only,
# and nothing is tried twice (++), so that a million dots take no longer than a million letters.
_STOP = re.compile(rf"(?<![{_STOPS}])([{_STOPS}]++)({_CLOSING})(\s*+)|\n\s*+")
_CLAUSE = re.compile(rf"(?:[,;:–—…]{_CLOSING}\s++|[{_COMMAS_ASIA}]{_CLOSING}\s*+)")
_SPACE = re.compile(r"\s++")
_WORD_BEFORE = re.compile(r"[^\s(\[{\"'“”„«»]*\Z")

# Words whose stop seldom ends a sentence; the first line is for letters that stand alone (J. S. Bach, z. B., U.S.) and
# for ordinals (3. Oktober).
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
    """The sentences of a text, each with the white space that follows it; joined, they are the text."""
    return _cut(text, [stop.end() for stop in _STOP.finditer(text) if _ends_sentence(text, stop)])


def _cut(text: str, places: list[int]) -> list[str]:
    bounds = [0, *places, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(bounds) if start < end]


def _ends_sentence(text: str, stop: re.Match[str]) -> bool:
    stops, closing, space = stop.groups()
    if stops is None or "\n" in space:
        return True
    after = text[stop.end() : stop.end() + _LOOK_AHEAD]
    if any(sign in _SURE for sign in stops):
        # “好。”，他说 and 「はい。」と言った and （好！）。 go on after the quote or bracket.
        return not (closing and after and after[0] in _GOES_ON_ASIA)
    if not space or _goes_on(after):
        return False
    before = text[max(0, stop.start() - _LOOK_BACK) : stop.start()]
    return stops != "." or not _abbreviated(before, after)


def _goes_on(after: str) -> bool:
    """Whether what follows cannot open a sentence: a small letter first, or a comma or dash."""
    if after and after[0] in ",;:–—-":
        return True
    return next((sign for sign in after if sign.isalnum()), "A").islower()


def _abbreviated(before: str, after: str) -> bool:
    """Whether the full stop between the two marks an abbreviation, an initial or an ordinal (3. Oktober)."""
    found = _WORD_BEFORE.search(before)
    word = found[0] if found else ""
    if _BEFORE_NUMBER.fullmatch(word):
        return after[:1].isdigit()
    return _ABBREVIATION.fullmatch(word) is not None


def split_long(text: str, fits: Fits) -> list[str]:
    """Pieces that fit, cut at sentences, else clauses, else spaces, else anywhere; joined, they are the text.

    A text that fits stays whole, and so does a single character that does not fit.
    """
    if fits(text):
        return [text]
    pieces = []
    for sentence in split_sentences(text):
        pieces += [sentence] if fits(sentence) else _split(sentence, _FINER, fits)
    return pieces


def _clauses(text: str) -> list[str]:
    return _cut(text, [mark.end() for mark in _CLAUSE.finditer(text)])


def _words(text: str) -> list[str]:
    return _cut(text, [space.end() for space in _SPACE.finditer(text)])


_FINER: tuple[Callable[[str], list[str]], ...] = (_clauses, _words, list)


def _split(text: str, finer: tuple[Callable[[str], list[str]], ...], fits: Fits) -> list[str]:
    """A text that does not fit, cut by the first of the finer ways; parts are put together again as far as they fit."""
    if not finer:
        return [text]
    parts = finer[0](text)
    if len(parts) == 1:
        return _split(text, finer[1:], fits)
    ends = [0, *itertools.accumulate(map(len, parts))]
    pieces, start, guess = [], 0, 1
    while start < len(parts):
        many = _how_many(text, ends, start, guess, fits)
        if many:
            pieces.append(text[ends[start] : ends[start + many]])
        else:
            pieces += _split(parts[start], finer[1:], fits)
        start += many or 1
        guess = many or 1
    return pieces


def _how_many(text: str, ends: list[int], start: int, guess: int, fits: Fits) -> int:
    """About how many parts from `start` on fit together, by doubling from a guess and then halving the doubt.

    The doubt is left at an eighth, as asking `fits` costs more than a slightly shorter piece does.
    """

    def together(many: int) -> bool:
        return fits(text[ends[start] : ends[start + many]])

    left = len(ends) - 1 - start
    some, over = 0, left + 1
    probe = min(guess, left)
    while some < probe < over:
        if together(probe):
            some, probe = probe, min(2 * probe, left)
        else:
            over = probe
    while some + some // 8 + 1 < over:
        probe = (some + over) // 2
        some, over = (probe, over) if together(probe) else (some, probe)
    return some
