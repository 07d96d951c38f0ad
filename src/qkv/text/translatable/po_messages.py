"""Messages of gettext PO files, with the offsets of their strings in the file: for training, and for translation of the file.

The format is described in the manual of gettext, section "The Format of PO Files". Reading is lenient, since a corpus of many
files has some that gettext would refuse; `PoMessage.problem` says why it would.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from qkv.base.errors import DataError
from qkv.text.translatable.file import Extent, FileText, usable_encoding

_KEYWORD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr(?:\[(\d+)\])?)\s*(?=\")")
_STRING = re.compile(r'"(.*)"')
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')  # a string whose quotes are escaped
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass
class PoMessage:
    """A message of a PO file with its translations."""

    line: int = 0
    first: int = -1  # where its keywords begin
    flags: Extent | None = None  # what follows "#," in its line of flags
    texts: dict[str, str] = field(default_factory=dict)  # by keyword
    strings: dict[str, Extent] = field(default_factory=dict)  # from the first quote to the last
    keywords: dict[str, int] = field(default_factory=dict)  # where each keyword begins
    fuzzy: bool = False
    problem: DataError | None = None  # why gettext would refuse it, if it would

    def forms(self) -> dict[str, str]:
        """Return the translations by keyword."""
        return {keyword: text for keyword, text in self.texts.items() if keyword.startswith("msgstr")}


def read_messages(source: FileText) -> Iterator[PoMessage]:
    """Yield the messages of a file, header included, without obsolete ones."""
    message, last = PoMessage(), ""
    for start, end in source.lines():
        line = source.text[start:end].lstrip("\ufeff")
        start = end - len(line)
        start += len(line) - len(line.lstrip())
        line = line.strip()
        # After a translation, a comment or the next message begins another one.
        if last.startswith("msgstr") and line.startswith(("#", "msgctxt", "msgid")) and not line.startswith("msgid_plural"):
            yield message
            message, last = PoMessage(), ""
        if line.startswith("#~"):  # an obsolete message, whose flags stand before it and are not the next one's
            message, last = PoMessage(), ""
        elif line.startswith("#,"):
            message.flags = message.flags or Extent(start + 2, end)
            message.fuzzy |= "fuzzy" in re.split(r"[\s,#]+", line)
        elif line and not line.startswith("#"):
            last = _read_line(source, message, Extent(start, start + len(line)), last)
    if message.texts:
        yield message


def _read_line(source: FileText, message: PoMessage, at: Extent, last: str) -> str:
    """Read a keyword with its string, or a string that continues the last one; return the keyword."""
    position = at.start
    if keyword := _KEYWORD.match(source.text, at.start, at.end):
        last, position = keyword[1], keyword.end()
        if last in message.texts:
            said = f"{last} occurs twice in one message; an empty line or a msgstr is missing"
            message.problem = message.problem or source.error(at.start, said)
        message.line = message.line or source.line(at.start)
        message.first = at.start if message.first < 0 else message.first
        message.keywords[last] = at.start
        message.texts[last], message.strings[last] = "", Extent(position, at.end)
    string = _STRING.fullmatch(source.text, position, at.end)
    if not string or not last or not _LITERAL.fullmatch(source.text, position, at.end):
        problem = source.error(at.start, f"not gettext PO: {source.text[at.start : at.end][:40]!r}")
        if not string or not last:
            raise problem
        message.problem = message.problem or problem
    message.texts[last] += unescape_po(string[1])
    message.strings[last] = Extent(message.strings[last].start, at.end)
    return last


def unescape_po(text: str) -> str:
    """Return the text of a string literal of a PO file."""
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), text) if "\\" in text else text


def declared_encoding(header: bytes) -> str:
    """Return the encoding that the header of a catalogue declares; UTF-8 by default."""
    found = re.search(rb"charset=([\w.:-]+)", header)
    return usable_encoding(found[1].decode()) if found else "utf-8"
