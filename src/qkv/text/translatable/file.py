"""Files with texts to translate: their segments, and edits that put translations in and keep every other byte."""

import bisect
import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from qkv.base.errors import DataError
from qkv.text.input_files import InputFile

BYTE_ORDER_MARKS = {  # UTF-32 before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
    codecs.BOM_UTF8: "utf-8",
}


class Extent(NamedTuple):
    """A range of characters of a file."""

    start: int
    end: int


class Edit(NamedTuple):
    """New content for a range of characters; an `Extent` in it is copied from the file, with the edits inside it."""

    start: int
    end: int
    content: tuple[str | Extent, ...]


@dataclass(frozen=True)
class Segment:
    """A unit of translation: one text, or several that are written together (plural forms, branches of an ICU message)."""

    texts: tuple[str, ...]  # with inline markup as it stands
    line: int
    write: Callable[[Sequence[str]], Iterable[Edit]]  # puts in the translations of the texts
    existing: tuple[str, ...] | None = None  # what the file holds where the translations go; equal ones change nothing
    translated: bool = False  # the file has a translation already
    problem: str = ""  # why it cannot be translated, and is left as it is
    check: Callable[[Sequence[str]], str] = lambda _: ""  # returns why translations of the texts would break the file


@dataclass(frozen=True)
class TranslatableFile:
    """A parsed file: `segments` to translate, and `render` to write their translations."""

    source: "FileText"
    segments: list[Segment]
    language_edits: list[Edit] = field(default_factory=list)  # made if any translation is written
    encoding_errors: str = "strict"  # or how characters that the encoding lacks are written
    codes: int = 0  # values that are identifiers, paths, colours or addresses, and are no segments
    charset: Extent | None = None  # where the file names its encoding, which becomes UTF-8 if it lacks a character

    def render(self, translations: Sequence[Sequence[str] | None]) -> bytes:
        """Return the file with one list of translated texts for each segment; None leaves a segment as it is."""
        edits = [
            edit
            for segment, texts in zip(self.segments, translations, strict=True)
            if texts is not None and tuple(texts) != segment.existing
            for edit in segment.write(texts)
        ]
        edits += self.language_edits if edits else []
        try:
            return self._edited(edits).encode(self.source.encoding, self.encoding_errors)
        except UnicodeEncodeError as error:
            if self.charset is not None:
                return self._edited([*edits, Edit(*self.charset, ("UTF-8",))]).encode()
            source, lacking = self.source, error.object[error.start]
            raise DataError(f"{source.path}: {source.encoding} has no {lacking!r}; convert the file to UTF-8 first") from None

    def _edited(self, edits: Iterable[Edit]) -> str:
        # Two texts may ask for the same edit, such as a flag of the message that they share.
        ordered = sorted(dict.fromkeys(edits), key=lambda edit: edit[:2])
        return "".join(_with_edits(self.source.text, 0, len(self.source.text), ordered))


def _with_edits(text: str, start: int, end: int, edits: Sequence[Edit]) -> Iterator[str]:
    """Yield the characters of a range with the outermost edits inside it."""
    position = start
    for index in range(bisect.bisect_left(edits, start, key=lambda edit: edit.start), len(edits)):
        edit = edits[index]
        if edit.start > end or edit.start == end < len(text):
            break
        if edit.start < position or edit.end > end:  # inside an extent that the last edit copied, or around this one
            continue
        yield text[position : edit.start]
        for part in edit.content:
            if isinstance(part, Extent):
                yield from _with_edits(text, part.start, part.end, edits)
            else:
                yield part
        position = edit.end
    yield text[position:end]


class FileText:
    """The decoded content of a file, which knows the line of each character."""

    def __init__(self, path: InputFile, text: str, encoding: str = "utf-8"):
        self.path, self.text, self.encoding = path, text, encoding

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        while found := self.text.find("\n", starts[-1]) + 1:
            starts.append(found)
        return starts

    @cached_property
    def newline(self) -> str:
        """The line break of the file."""
        return "\r\n" if "\r\n" in self.text else "\n"

    def line(self, position: int) -> int:
        """Return the number of the line of a character, from 1."""
        return bisect.bisect_right(self._line_starts, position)

    def lines(self) -> Iterator[Extent]:
        """Yield the extent of each line, without its line break."""
        for start, following in zip(self._line_starts, [*self._line_starts[1:], len(self.text) + 1], strict=True):
            end = min(following - 1, len(self.text))
            yield Extent(start, end - (self.text[start:end].endswith("\r")))

    def indent(self, position: int) -> str:
        """Return the line break and indentation before a character; "" if it does not begin its line."""
        start = position
        while start and self.text[start - 1] in " \t":
            start -= 1
        return self.newline + self.text[start:position] if start and self.text[start - 1] == "\n" else ""

    def error(self, position: int, message: str) -> DataError:
        """Return an error that names the file and the line of a character."""
        return DataError(f"{self.path}, line {self.line(position)}: {message}")


def usable_encoding(name: str) -> str:
    """Return a declared encoding that extends ASCII; UTF-8 in place of any other, such as the CHARSET of a PO template."""
    try:
        usable = b"a".decode(name, errors="surrogateescape") == "a"
    except (LookupError, UnicodeError):
        usable = False
    return name.lower() if usable and name.lower() != "utf8" else "utf-8"


def decode(path: Path, content: bytes, encoding: str = "utf-8") -> FileText:
    """Decode a file by its byte order mark, which stays the first character of the text, or else by an encoding."""
    encoding = next((name for mark, name in BYTE_ORDER_MARKS.items() if content.startswith(mark)), encoding)
    if b"\0" in content[:8192] and not encoding.startswith(("utf-16", "utf-32")):
        raise DataError(f"{path}: is a binary file (it holds NUL bytes); text is wanted")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not {encoding.upper()}; convert the file with iconv") from None
    if text.encode(encoding) != content:  # such as UTF-7, which can write a text in several ways
        raise DataError(f"{path}: cannot be kept byte for byte in {encoding}; convert it to UTF-8 with iconv")
    return FileText(path, text, encoding)
