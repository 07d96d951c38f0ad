"""ICU messages such as {count, plural, one {# file} other {# files}}: each branch is translated as a whole sentence.

Text around the choice goes into each branch, so that no part of a sentence is translated by itself. Messages with several choices
or with choices inside a choice are not translated.
"""

import re
from typing import NamedTuple

from qkv.text.protected_text import ProtectedSpan, ProtectedText

_CHOICE = re.compile(r"\{\s*([\w.-]+)\s*,\s*(plural|select|selectordinal)\s*,\s*(offset:\s*\d+)?")
_SELECTOR = re.compile(r"\s*(=\d+|[\w-]+)\s*(?=\{)")
_ARGUMENT = re.compile(r"#|\{[^{}]*\}")


class IcuMessage(NamedTuple):
    """A message with one choice: what stands before its branches, and the text of each."""

    start: str  # such as "{count, plural,"
    selectors: tuple[str, ...]  # what stands before each branch, white space included
    texts: tuple[str, ...]
    end: str

    def render(self, texts: tuple[str, ...]) -> str:
        """Return the message with other texts."""
        branches = (f"{selector}{{{text}}}" for selector, text in zip(self.selectors, texts, strict=True))
        return f"{self.start}{''.join(branches)}{self.end}"


def has_choice(message: str) -> bool:
    """Return whether a text is an ICU message with plural, select or selectordinal."""
    return _CHOICE.search(message) is not None


def parse_icu(message: str) -> IcuMessage | None:
    """Return the parts of a message with one choice; None if it has more, or is not well-formed."""
    choices = list(_CHOICE.finditer(message))
    if len(choices) != 1 or "'" in re.sub(r"\w'\w", "", message):  # a quote may hide braces
        return None
    choice = choices[0]
    position, selectors, texts = choice.end(), [], []
    while selector := _SELECTOR.match(message, position):
        end = _matching_brace(message, selector.end())
        if end is None:
            return None
        gap = message[position : selector.end()]
        selectors.append(gap)
        texts.append(message[selector.end() + 1 : end])
        position = end + 1
    closing = re.compile(r"\s*\}").match(message, position)
    if not closing or "other" not in (selector.strip() for selector in selectors):
        return None
    before, after = message[: choice.start()], message[closing.end() :]
    if "#" in before + after and choice[2] != "select":  # inside a branch, it would become the count
        return None
    is_count = choice[2] != "select"
    sentences = tuple(_protected(before + text + after, is_count) for text in texts)
    return IcuMessage(message[choice.start() : choice.end()], tuple(selectors), sentences, closing[0])


def _matching_brace(message: str, start: int) -> int | None:
    depth = 0
    for position in range(start, len(message)):
        depth += (message[position] == "{") - (message[position] == "}")
        if depth == 0:
            return position
    return None


def _protected(text: str, is_count: bool) -> str:
    spans = [ProtectedSpan(*found.span()) for found in _ARGUMENT.finditer(text) if is_count or found[0] != "#"]
    return ProtectedText(text, spans) if spans else text
