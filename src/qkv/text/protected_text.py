"""Texts with spans that a translation must carry over unchanged: placeholders, tags, code."""

from collections.abc import Sequence
from typing import Literal, NamedTuple


class ProtectedSpan(NamedTuple):
    """Characters of a text that are carried over unchanged, exactly once."""

    start: int
    end: int
    kind: Literal["alone", "open", "close"] = "alone"  # open and close are tags around words, in pairs


class ProtectedText(str):
    """A text whose reader knows spans to protect that patterns would not recognise, in order and without overlap."""

    spans: tuple[ProtectedSpan, ...]

    def __new__(cls, text: str, spans: Sequence[ProtectedSpan]) -> "ProtectedText":
        made = super().__new__(cls, text)
        made.spans = tuple(spans)
        return made
