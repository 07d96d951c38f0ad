"""Glossaries: how terms of a source language must be translated.

A file has a term and its translation on each line, separated by a tab; lines that begin with # are comments:

    car park <TAB> Parkhaus|Parkplatz     any of these translations
    qkv      <TAB> =                      is not translated
    device*  <TAB> Gerät|Geräte|Geräts    also with an ending on the source side: devices; the target's forms are listed

A term counts as translated where one of its translations begins a word of the target, with a capital or without, and with an
ending of up to four letters: Schalter also in Schaltern, not in Schalterleiste.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from qkv.base.errors import DataError
from qkv.text.check import normalise
from qkv.text.files import read_lines
from qkv.text.word_boundaries import Span, continued_words

KEEP = "="  # the target of a term that is not translated
BETWEEN = "|"  # stands between several targets
ANY_ENDING = "*"  # after a source term: the word may go on
LONGEST_ENDING = 4  # characters, of a source term with * and of every translation
MOST_CHARACTERS = 200  # of a term


@dataclass(frozen=True)
class Term:
    """A term of a glossary with its translations."""

    source: str
    targets: tuple[str, ...]  # any of them will do; none if the term is not translated
    inflected: bool = False  # whether the source term may have an ending

    def __str__(self) -> str:
        return f"{self.source}{ANY_ENDING * self.inflected} -> {BETWEEN.join(self.targets) or KEEP}"


class TermMatch(NamedTuple):
    """A term found in a source text."""

    start: int
    end: int
    term: Term
    targets: tuple[str, ...]  # how it may be translated here


class Glossary:
    """Terms and their translations, found in texts by the longest match at word boundaries.

    A term that begins in lower case is also found with a capital, as at the beginning of a sentence; `ignore_case` finds all
    terms in any case.

    >>> Glossary.read("terms.tsv")
    >>> Glossary({"car park": ["Parkhaus", "Parkplatz"], "qkv": "="}, ignore_case=True)
    """

    def __init__(self, terms: Mapping[str, str | Sequence[str]], ignore_case: bool = False):
        self.ignore_case = ignore_case
        self.terms: list[Term] = []
        self._by_text: dict[str, list[Term]] = {}  # terms by their folded text
        self._lengths: dict[str, list[int]] = {}  # of the terms that begin with a character, longest first
        for source, targets in terms.items():
            texts: list[Any] = list(targets) if isinstance(targets, list | tuple) else [targets]
            if not texts or not all(isinstance(one, str) for one in (source, *texts)):
                raise DataError(f"a glossary maps a term to its translation or a list of them, got {source!r}: {targets!r}")
            self._add(source, [part for text in texts for part in text.split(BETWEEN)], repr(source))

    @classmethod
    def read(cls, path: str | Path, ignore_case: bool = False) -> "Glossary":
        """Read a glossary from a file with a term, a tab and its translation on each line."""
        made, file = cls({}, ignore_case), Path(path).expanduser()
        lines: dict[Term, int] = {}
        if not file.is_file():
            raise DataError(f"{file}: no such file; a glossary has a term, a tab and its translation on each line")
        for number, line in enumerate(read_lines(file), 1):
            where = f"{file}: line {number}"
            if line is None:
                raise DataError(f"{where} is not UTF-8 text; convert the glossary, for example with iconv")
            if not line.strip() or line.startswith("#"):
                continue
            columns = line.rstrip("\r").split("\t")
            if len(columns) != 2:
                raise DataError(
                    f"{where} has {len(columns)} columns; give a term, a tab and its translation, "
                    f"and write {BETWEEN} between several translations"
                )
            made._add(columns[0], columns[1].split(BETWEEN), where, lines)
            lines[made.terms[-1]] = number
        if not made.terms:
            raise DataError(f"{file}: no terms; give a term, a tab and its translation on each line")
        return made

    def _add(self, source: str, targets: Sequence[str], where: str, lines: Mapping[Term, int] | None = None) -> None:
        """Check a term and add it; `lines` are those of the terms before it in a file."""
        source, wanted = normalise(source), tuple(map(normalise, targets))
        text = source.removesuffix(ANY_ENDING).strip()
        if not text or not all(wanted):
            side = "term" if not text else "translation"
            raise DataError(f"{where} has an empty {side}; to keep a term untranslated, give {KEEP} as its translation")
        if max(map(len, [text, *wanted])) > MOST_CHARACTERS:
            raise DataError(f"{where} has a term of more than {MOST_CHARACTERS} characters; a glossary holds terms, not texts")
        if any(target.endswith(ANY_ENDING) for target in wanted):
            raise DataError(
                f"{where}: {ANY_ENDING} is for source terms; list the translation's forms with {BETWEEN} between them"
            )
        if KEEP in wanted and len(wanted) > 1:
            raise DataError(f"{where} has {KEEP}, which keeps the term, beside other translations; choose one")
        term = Term(text, () if wanted == (KEEP,) else wanted, source.endswith(ANY_ENDING))
        same = self._by_text.setdefault(_fold(text), [])
        for other in same:
            if other.source != text and not self.ignore_case:
                continue
            before = f"on line {lines[other]}" if lines else f"as {other.source!r}"
            if other == term:
                raise DataError(f"{where}: the term {text!r} is there already, {before}; leave one out")
            raise DataError(f"{where}: the term {text!r} is there already, {before}, as {other}; join both with {BETWEEN}")
        same.append(term)
        self.terms.append(term)
        lengths = self._lengths.setdefault(_fold(text[0]), [])
        if len(text) not in lengths:
            lengths.append(len(text))
            lengths.sort(reverse=True)

    def __len__(self) -> int:
        return len(self.terms)

    def __repr__(self) -> str:
        return f"Glossary({len(self):,} terms)"

    def find(self, text: str, taken: Sequence[Span] = ()) -> list[TermMatch]:
        """Return the terms in a text, in order and without overlap; none that touches the spans that are `taken`."""
        folded, continues = _fold(text), continued_words(text)
        found: list[TermMatch] = []
        position = 0
        while position < len(text):
            match = None if continues[position] else self._match(text, folded, continues, position)
            if match is None or any(start < match.end and match.start < end for start, end in taken):
                position += 1
                continue
            found.append(match)
            position = match.end
        return found

    def _match(self, text: str, folded: str, continues: Sequence[bool], start: int) -> TermMatch | None:
        """Return the longest term that begins at a character."""
        best: TermMatch | None = None
        for length in self._lengths.get(folded[start], ()):
            if start + length > len(text):
                continue
            for term in self._by_text.get(folded[start : start + length], ()):
                end, limit = start + length, start + length + LONGEST_ENDING * term.inflected
                while end < len(text) and continues[end] and end <= limit:
                    end += 1
                ends_here = end <= limit and (end == len(text) or not continues[end])
                written = text[start : start + length]
                same_case = self.ignore_case or term.source in (written, written[:1].lower() + written[1:])
                if ends_here and same_case and (best is None or end > best.end):
                    best = TermMatch(start, end, term, term.targets or (text[start:end],))
        return best


def as_glossary(given: Any) -> Glossary | None:
    """Return a glossary that a caller gives as one, as a mapping, or not at all."""
    if given is None or isinstance(given, Glossary):
        return given
    if not isinstance(given, Mapping):
        raise DataError(f"glossary is a Glossary or a mapping of terms to translations, got {type(given).__name__}")
    return Glossary(given)


def with_capital(text: str) -> str:
    """Return a text with a capital in first place."""
    return text[:1].upper() + text[1:]


def count_translations(text: str, targets: Iterable[str]) -> int:
    """Return how many words of a text begin one of the translations of a term."""
    continues = continued_words(text)
    starts = set()
    for target in {form for one in targets for form in (one, with_capital(one))}:
        start = text.find(target)
        while start >= 0:
            end = word_end = start + len(target)
            while word_end < len(text) and continues[word_end]:
                word_end += 1
            if not continues[start] and word_end - end <= LONGEST_ENDING:
                starts.add(start)
            start = text.find(target, start + 1)
    return len(starts)


def missing_terms(matches: Iterable[TermMatch], text: str) -> list[TermMatch]:
    """Return the terms of a source that its translation lacks; one that occurs twice must be translated twice."""
    before: Counter[tuple[str, ...]] = Counter()
    missing = []
    for match in matches:
        before[match.targets] += 1
        if count_translations(text, match.targets) < before[match.targets]:
            missing.append(match)
    return missing


def _fold(text: str) -> str:
    """Return a text in lower case, of the same length."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
