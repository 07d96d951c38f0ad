"""Filtering of parallel corpora: each pair is kept, or dropped for one reason, which a report counts."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from rich.table import Table

from qkv.base.config import Config
from qkv.text.pair import UNDECODABLE, TextPair, is_decodable
from qkv.text.treebank import TextWithHeads

EMPTY = "empty side"
TOO_LONG = "too long (characters)"
RATIO = "length ratio"
IDENTICAL = "source same as target"
DUPLICATE = "duplicate"
OVERLAP = "also in dev or test"

RATIO_FROM = 20  # characters of the longer side; for shorter texts the ratio means nothing
FIRST = 5  # lines that a report lists for each reason

_BREAKS = re.compile(r"[\t\n\r]+")


class CheckConfig(Config):
    """The rules for dropping pairs."""

    max_chars: int = Field(default=1000, gt=0)  # most in the longer side
    max_ratio: float = Field(default=9.0, ge=1)  # largest ratio of the longer side to the shorter, in characters
    identical: Literal["drop", "keep"] = "drop"  # source and target the same text
    duplicates: Literal["drop", "keep"] = "drop"  # the same pair again
    overlap: Literal["warn", "drop"] = "warn"  # training pairs whose source is also in dev or test


@dataclass
class DropCount:
    """The number of pairs dropped for one reason, and the first of them."""

    count: int = 0
    first: list[tuple[str, int]] = field(default_factory=list)  # file, line


@dataclass
class CheckReport:
    """The numbers of pairs of a corpus that were kept and dropped."""

    read: int = 0
    dropped: dict[str, DropCount] = field(default_factory=dict)
    overlap: int = 0  # pairs, kept or dropped, whose source is in dev or test
    overlap_pairs: int = 0  # those of them whose target is the same too

    @property
    def kept(self) -> int:
        """Pairs read and not dropped, here or later."""
        return self.read - sum(found.count for found in self.dropped.values())

    def drop(self, reason: str, line: int = 0, file: str = "") -> None:
        """Count a pair as dropped; a line of 0 is unknown."""
        found = self.dropped.setdefault(reason, DropCount())
        found.count += 1
        if line and len(found.first) < FIRST:
            found.first.append((file, line))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        dropped = {
            reason: {"count": found.count, "first": [[file, line] for file, line in found.first]}
            for reason, found in self.dropped.items()
        }
        return {
            "read": self.read,
            "kept": self.kept,
            "dropped": dropped,
            "overlap": self.overlap,
            "overlap_pairs": self.overlap_pairs,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "CheckReport":
        """Build the report from the values of `as_dict`."""
        dropped = {
            reason: DropCount(found["count"], [(file, line) for file, line in found["first"]])
            for reason, found in values["dropped"].items()
        }
        return cls(values["read"], dropped, values["overlap"], values["overlap_pairs"])

    def table(self, title: str = "") -> Table:
        """Return a table: kept pairs, then the reasons for dropping, most frequent first."""
        table = Table("", "pairs", "share", "first lines", title=title or None)
        table.columns[1].justify = table.columns[2].justify = "right"
        table.add_row("kept", *self._figures(self.kept), "")
        for reason, found in sorted(self.dropped.items(), key=lambda item: -item[1].count):
            table.add_row(f"dropped: {reason}", *self._figures(found.count), _format_lines(found.first))
        if self.overlap and OVERLAP not in self.dropped:
            note = f"{self.overlap_pairs:,} with the same target; `overlap: drop` removes them"
            table.add_row(f"warning: source {OVERLAP}", *self._figures(self.overlap), note)
        return table

    def _figures(self, count: int) -> tuple[str, str]:
        return f"{count:,}", f"{100 * count / max(self.read, 1):.1f} %"


def _format_lines(first: list[tuple[str, int]]) -> str:
    """Format lines by file: `a.tsv: 3, 17; b.tsv: 4`."""
    by_file: dict[str, list[str]] = {}
    for file, line in first:
        by_file.setdefault(Path(file).name, []).append(str(line))
    return "; ".join((f"{name}: " if name else "") + ", ".join(lines) for name, lines in by_file.items())


def normalise(text: str) -> str:
    """Return the text in NFC, with tabs and line breaks replaced by a space, and no white space at the ends."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    if "\t" in text or "\n" in text or "\r" in text:
        text = _BREAKS.sub(" ", text)
    return text.strip()


def check_pairs(pairs: Iterable[TextPair], rules: CheckConfig, report: CheckReport) -> Iterator[TextPair]:
    """Yield the pairs that pass by themselves, normalised, and count all in the report.

    Duplicates and pairs of dev or test are found later, over a whole corpus (data/duplicates.py).
    """
    for pair in pairs:
        report.read += 1
        # Normalising a hostile line can take long; after NFC at least a third of its length remains.
        if max(len(pair.source), len(pair.target)) > 4 * rules.max_chars:
            report.drop(pair.problem or TOO_LONG, pair.line, pair.file)
            continue
        source, target = normalise(pair.source), normalise(pair.target)
        reason = pair.problem or _length_problem(source, target, rules)
        # Half of a surrogate pair, from an escape in JSON, cannot be written.
        if not reason and not is_decodable(f"{source}{target}"):
            reason = UNDECODABLE
        if reason:
            report.drop(reason, pair.line, pair.file)
            continue
        if isinstance(pair.source, TextWithHeads):
            source = TextWithHeads(source, pair.source.heads)
        yield TextPair(source, target, pair.line, "", pair.file)


def _length_problem(source: str, target: str, rules: CheckConfig) -> str:
    """Return what is wrong with the lengths of a pair, or that both sides are the same text; "" if nothing."""
    short, long = len(source), len(target)
    if short > long:
        short, long = long, short
    if not short:
        return EMPTY
    if long > rules.max_chars:
        return TOO_LONG
    if long > RATIO_FROM and long > rules.max_ratio * short:
        return RATIO
    if source == target and rules.identical == "drop":
        return IDENTICAL
    return ""


def pair_hashes(pairs: Iterable[tuple[str, str]]) -> set[int]:
    """Return hashes of the sources and of the pairs of dev or test, given as normalised text."""
    found = set()
    for source, target in pairs:
        found.add(text_hash(source))
        found.add(text_hash(f"{source}\t{target}"))  # no normalised text holds a tab, so the two kinds differ
    return found


def text_hash(text: str) -> int:
    """Return 64 bits that stand for a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
