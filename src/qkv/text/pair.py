"""What every reader of a corpus gives: pairs of texts, with the place they came from."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

UNDECODABLE = "undecodable bytes"

SideNames = tuple[str, str] | None  # columns, fields or languages of the two sides


class TextPair(NamedTuple):
    """A source text and its target, as found; one with a `problem` cannot be used."""

    source: str
    target: str
    line: int  # line of the file, from 1; in formats without lines, the number of the entry
    problem: str = ""
    file: str = ""


PairReader = Callable[[Path, SideNames, SideNames], Iterator[TextPair]]  # file, columns, languages


def is_decodable(text: str) -> bool:
    """Whether a text is whole: bytes that could not be decoded live on in it as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def same_language(tag: str, wanted: str) -> bool:
    """Whether a language tag such as en-US is the wanted one (en, EN_us, en-US)."""
    tag, wanted = (name.lower().replace("_", "-") for name in (tag, wanted))
    return tag == wanted or tag.startswith(wanted + "-") or wanted.startswith(tag + "-")


def is_reversed(names: SideNames, target_language: str) -> bool:
    """Whether the wanted source is the language that a file holds as its target."""
    if names is None or not target_language:
        return False
    return same_language(target_language, names[0]) and not same_language(target_language, names[1])
