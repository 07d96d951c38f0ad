"""Edits of a text word by word: replace, delete or move a word.

Words are those that people see: punctuation marks, Chinese characters and [MASK] are words of their own. They count from 0, and
each edit counts the words that the edits before it have left.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from qkv.base.errors import ConfigError
from qkv.lens.tokenized_text import WORD
from qkv.text.tokenizer import MASK

_WORD = re.compile(rf"{re.escape(MASK)}|{WORD.pattern}")


@dataclass(frozen=True)
class ReplaceWord:
    """Puts other text in the place of a word."""

    word: int
    text: str


@dataclass(frozen=True)
class DeleteWord:
    """Leaves a word out."""

    word: int


@dataclass(frozen=True)
class MoveWord:
    """Moves a word, so that it becomes word number `to`."""

    word: int
    to: int


WordEdit = ReplaceWord | DeleteWord | MoveWord


def split_words(text: str) -> list[str]:
    """Return the words of a text as edits count them."""
    return _WORD.findall(text)


def edit_words(text: str, edits: Sequence[WordEdit]) -> str:
    """Return a text after some edits; raise ConfigError for a word that it does not have."""
    if not edits:
        return text
    spaced = _spaced_words(text)
    for edit in edits:
        places = (edit.word, edit.to) if isinstance(edit, MoveWord) else (edit.word,)
        for place in places:
            if not 0 <= place < len(spaced):
                words = " ".join(f"{n}:{word}" for n, (_, word) in enumerate(spaced, 1))
                raise ConfigError(f"the text has no word {place + 1}; its words are {words}")
        space, word = spaced.pop(edit.word)
        if isinstance(edit, ReplaceWord):
            spaced.insert(edit.word, (space, edit.text.strip()))
        elif isinstance(edit, MoveWord):
            spaced.insert(edit.to, (space, word))
    return "".join(space + word for space, word in spaced).strip()


def differences(before: str, after: str) -> list[tuple[str, str]]:
    """Align two texts word by word. -> pairs of passages, equal where nothing changed; "" where a side has nothing."""
    first, second = _spaced_words(before), _spaced_words(after)
    codes = SequenceMatcher(a=[w for _, w in first], b=[w for _, w in second], autojunk=False).get_opcodes()
    sides = ((first[a:b], second[c:d]) for _, a, b, c, d in codes)
    return [("".join(s + w for s, w in old).strip(), "".join(s + w for s, w in new).strip()) for old, new in sides]


def _spaced_words(text: str) -> list[tuple[str, str]]:
    """Return each word with the space before it; the first has one if any word has."""
    found, end = [], 0
    for match in _WORD.finditer(text):
        found.append((text[end : match.start()], match[0]))
        end = match.end()
    if found and any(space for space, _ in found):
        found[0] = (" ", found[0][1])
    return found
