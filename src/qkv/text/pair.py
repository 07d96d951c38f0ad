"""Pairs of texts with their file and line, as every reader of a parallel corpus yields them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from qkv.base.errors import ConfigError
from qkv.text.input_files import InputFile

UNDECODABLE = "undecodable bytes"

SideNames = tuple[str, str] | None  # columns, fields or languages of the two sides


class TextPair(NamedTuple):
    """A source text and its target, not yet normalised; a pair with a `problem` cannot be used."""

    source: str
    target: str
    line: int  # line of the file, from 1; in formats without lines, the number of the entry
    problem: str = ""
    file: str = ""


PairReader = Callable[[InputFile, SideNames, SideNames], Iterator[TextPair]]  # file, columns, languages


def as_side_names(name: str, value: Any) -> SideNames:
    """Return the two columns or languages that a list gives; `name` says which of them."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ConfigError(f"{name} takes two values, such as {name}=[{'en,de' if name == 'languages' else '2,3'}]; got {value!r}")
    return str(value[0]), str(value[1])


def is_decodable(text: str) -> bool:
    """Return whether a text has no lone surrogates, which stand for bytes that could not be decoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def same_language(tag: str, wanted: str) -> bool:
    """Return whether a language tag such as en-US matches the wanted one (en, EN_us, en-US)."""
    tag, wanted = (name.lower().replace("_", "-") for name in (tag, wanted))
    return tag == wanted or tag.startswith(wanted + "-") or wanted.startswith(tag + "-")


def match_language(tags: Iterable[str], wanted: str) -> str | None:
    """Return the tag of a language among several; the same tag goes before a similar one (en for en-US)."""
    near = [tag for tag in tags if tag and same_language(tag, wanted)]
    return min(near, key=lambda tag: tag.lower() != wanted.lower(), default=None)


def is_reversed(names: SideNames, target_language: str) -> bool:
    """Return whether the wanted source language is the file's target language."""
    if names is None or not target_language:
        return False
    return same_language(target_language, names[0]) and not same_language(target_language, names[1])
