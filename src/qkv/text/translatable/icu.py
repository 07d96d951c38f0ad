"""ICU messages such as {count, plural, one {# file} other {# files}}: each branch is translated as a whole sentence.

Text around the choice goes into each branch, so that no part of a sentence is translated by itself. Messages with several choices
or with choices inside a choice are not translated.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from qkv.base.errors import DataError
from qkv.text.protected_text import ProtectedSpan, ProtectedText
from qkv.text.translatable.file import Edit, Segment
from qkv.text.translatable.inline import split_codes

_CHOICE = re.compile(r"\{\s*([\w.-]+)\s*,\s*(plural|select|selectordinal)\s*,\s*(offset:\s*\d+)?")
_SELECTOR = re.compile(r"\s*(=\d+|[\w-]+)\s*(?=\{)")
_ARGUMENT = re.compile(r"#|\{[^{}]*\}")
_SIGN = re.compile(rf"{_ARGUMENT.pattern}|[{{}}]")  # what ICU reads in a branch
QUOTED = re.compile(r"(?<!\w)'[{}][^']*'(?!\w)")  # braces that are text
_QUOTING = re.compile(r"'(?=\{(?!\{)|[}#])")


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


def with_icu_branches(segment: Segment) -> Segment:
    """Return a segment with the branches of its ICU message as its texts, or with the problem of one that cannot be cut."""
    if not any(map(_has_choice, segment.texts)):
        return segment
    message = segment.texts[0]
    try:
        if len(segment.texts) > 1:
            raise DataError("an ICU message that has plural forms of its format too")
        if getattr(message, "spans", ()):
            raise DataError("an ICU message with inline elements or quoted braces")
        icu = parse_icu(message)
    except DataError as error:
        return replace(segment, problem=f"{error}: {' '.join(message.split())[:60]!r}")

    def write(translations: Sequence[str]) -> Iterator[Edit]:
        written = without_new_quotes(icu.render(tuple(translations)), message)  # an apostrophe before a brace of the syntax too
        if (written,) != segment.existing:
            yield from segment.write((written,))

    def check(translations: Sequence[str]) -> str:
        signs = [[sorted(_SIGN.findall(text)) for text in texts] for texts in (icu.texts, translations)]
        return "" if signs[0] == signs[1] else "the translation has other braces or # than its branch of the ICU message"

    existing = icu.texts if segment.existing == segment.texts else None
    return replace(segment, texts=icu.texts, write=write, check=check, existing=existing)


def _has_choice(text: str) -> bool:
    """Return whether a text has plural, select or selectordinal outside of its codes, whose attributes may show another one."""
    codes = [text[span.start : span.end] for span in getattr(text, "spans", ())]
    return _CHOICE.search("".join("x" if is_code else part for part, is_code in split_codes(text, codes))) is not None


def parse_icu(message: str) -> IcuMessage:
    """Return the parts of a message with one choice; raise DataError for any other, and for one that is not well-formed."""
    choices = list(_CHOICE.finditer(message))
    if "'" in re.sub(r"\w'\w", "", message):
        raise DataError("an ICU message with quotes, which may hide braces")
    if len(choices) != 1:
        raise DataError("an ICU message with more than one choice")
    choice = choices[0]
    position, selectors, texts = choice.end(), [], []
    while selector := _SELECTOR.match(message, position):
        end = _matching_brace(message, selector.end())
        selectors.append(message[position : selector.end()])
        texts.append(message[selector.end() + 1 : end])
        position = end + 1
    closing = re.compile(r"\s*\}").match(message, position)
    if not closing:
        raise DataError(f"an ICU message whose {choice[2]} is not closed")
    if "other" not in (selector.strip() for selector in selectors):
        raise DataError(f"an ICU message whose {choice[2]} has no branch 'other'")
    before, after = message[: choice.start()], message[closing.end() :]
    if "#" in before + after and choice[2] != "select":
        raise DataError("an ICU message with # outside of its branches; inside, it would become the count")
    is_count = choice[2] != "select"
    sentences = tuple(_protected(before + text + after, is_count) for text in texts)
    return IcuMessage(message[choice.start() : choice.end()], tuple(selectors), sentences, closing[0])


def without_new_quotes(translation: str, source: str) -> str:
    """Replace each apostrophe that would quote a brace, as in l'{name}, by a typographic one, which quotes nothing anywhere."""
    parts = split_codes(translation, QUOTED.findall(source))
    return "".join(part if is_code else _QUOTING.sub("\u2019", part) for part, is_code in parts)


def _matching_brace(message: str, start: int) -> int:
    depth = 0
    for position in range(start, len(message)):
        depth += (message[position] == "{") - (message[position] == "}")
        if depth == 0:
            return position
    raise DataError("an ICU message with a branch that is not closed")


def _protected(text: str, is_count: bool) -> str:
    spans = [ProtectedSpan(*found.span()) for found in _ARGUMENT.finditer(text) if is_count or found[0] != "#"]
    return ProtectedText(text, spans) if spans else text
