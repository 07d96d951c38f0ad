"""Markdown (CommonMark, with tables, footnotes and front matter): prose is translated, code, targets of links and layout stay."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from qkv.base.errors import DataError
from qkv.text.translatable.file import Edit, Extent, FileText, Segment, TranslatableFile, decode
from qkv.text.translatable.html_page import has_letters, html_segments
from qkv.text.translatable.markdown_inline import ATTRIBUTES, reference_names, with_inline_spans

_QUOTE = re.compile(r"[ ]{0,3}>[ \t]?")
_ITEM = re.compile(r"[ \t]*(?:[-*+:]|\d{1,9}[.)]|\[\^[^\]]+\]:)(?:[ \t]+(?:\[[ xX]\][ \t]+)?|$)")
_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r"[ ]{0,3}#{1,6}(?:[ \t]+|$)")
_HEADING_END = re.compile(rf"(?:[ \t]+{ATTRIBUTES})?(?:[ \t]+#+)?(?:[ \t]+{ATTRIBUTES})?[ \t]*$")
_ALERT = re.compile(r"[ ]{0,3}\[!\w+\][+-]?(?:[ \t]+|$)")  # the first line of a quote on GitHub, such as [!NOTE]
_UNDERLINE = re.compile(r"[ ]{0,3}(?:=+|-+)[ \t]*$")
_RULE = re.compile(r"[ ]{0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_DEFINITION = re.compile(r"[ ]{0,3}\[(?!\^)[^\]]+\]:[ \t]*(\S|$)")
_HTML_BLOCKS = (
    "address|article|aside|blockquote|body|center|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure|footer|form|h[1-6]|head|"
    "header|hr|html|iframe|legend|li|link|main|menu|nav|ol|optgroup|option|p|pre|script|section|style|summary|table|tbody|td|"
    "textarea|tfoot|th|thead|title|tr|ul"
)
_HTML = re.compile(rf"[ ]{{0,3}}<(?:[!?]|/?(?:{_HTML_BLOCKS})(?:[\s/>]|$))", re.IGNORECASE)
_LONE_TAG = re.compile(r"[ ]{0,3}</?[a-zA-Z][\w-]*(?:\s[^<>]*)?/?>[ \t]*$")  # begins a block of HTML, but not inside a paragraph
_HTML_ENDS = {"<!--": "-->", "<pre": "</pre>", "<script": "</script>", "<style": "</style>", "<?": "?>"}
_COMMAND = re.compile(r"[ \t]*(?::{3}|!!!|\?\?\?|\{[%:]|%%)")  # of a site generator
_CELL = re.compile(r"(?:\\.|(`+)(?!`).*?(?<!`)\1(?!`)|[^|\\])*")
# A word that would begin a block at the start of a line.
_BLOCK_START = re.compile(r"[-+*>#|=:]+$|<[A-Za-z!?/]|\d{1,9}[.)]$|[:~`]{3}|\|")


class _Line(NamedTuple):
    """The text of a line, and what stands before it: indentation and the marks of quotes."""

    extent: Extent
    prefix: str


def parse(path: Path, content: bytes) -> TranslatableFile:
    """Parse a Markdown file."""
    source = decode(path, content)
    scanner = _Scanner(source)
    references = reference_names(source.text)
    segments: list[Segment] = []
    for block in scanner.blocks():
        if isinstance(block, Extent):
            try:
                segments += html_segments(source, block)
            except DataError:  # tags that are closed in another block: Markdown stands between them
                continue
        else:
            segments += _segments(source, block, references)
    return TranslatableFile(source, segments)


class _Scanner:
    """Finds the blocks of a file: paragraphs, headings and cells as lists of lines, blocks of HTML as extents."""

    def __init__(self, source: FileText):
        self.source, self.lines, self.number = source, list(source.lines()), 0
        self.paragraph: list[_Line] = []
        self.indent = 0  # of the text of the list item around

    def blocks(self) -> Iterator[list[_Line] | Extent]:
        """Yield the blocks in order."""
        self._skip_front_matter()
        quotes = 0
        while self.number < len(self.lines):
            start, depth, is_item = self._content_start()
            line = self.lines[self.number]
            text = self.source.text[start : line.end]
            if self.paragraph and (is_item or depth > quotes or self._ends_paragraph(text)):
                yield from self._flush()
            quotes = depth
            yield from self._block(Extent(start, line.end), text, is_item)
            self.number += 1
        yield from self._flush()

    def _content_start(self) -> tuple[int, int, bool]:
        """Return where the text of a line begins, how many quotes are around it, and whether it begins a list item."""
        text, (start, end) = self.source.text, self.lines[self.number]
        depth, is_item = 0, False
        while found := _QUOTE.match(text, start, end):
            start, depth = found.end(), depth + 1
        first = start
        while not _RULE.match(text[start:end]) and (found := _ITEM.match(text[start:end])):
            spaces = len(found[0]) - len(found[0].lstrip())
            if not is_item and not self.paragraph and spaces >= self.indent + 4:  # code that looks like a list
                break
            if self.paragraph and not is_item and re.match(r"[ \t]*(?!1[.)])\d", found[0]) and not self._in_list():
                break  # a number that happens to begin a line of a paragraph
            start, is_item = start + found.end(), True
            self.indent = start - first
        return start, depth, is_item

    def _in_list(self) -> bool:
        return self.indent > 0

    def _ends_paragraph(self, text: str) -> bool:
        marks = (_FENCE, _HEADING, _RULE, _UNDERLINE, _HTML, _COMMAND)
        return not text.strip() or any(mark.match(text) for mark in marks) or self._is_table(text)

    def _block(self, extent: Extent, text: str, is_item: bool) -> Iterator[list[_Line] | Extent]:
        """Yield the blocks that begin in a line and end before the next, and keep a line of a paragraph for later."""
        spaces = len(text.expandtabs(4)) - len(text.expandtabs(4).lstrip())
        if not text.strip():
            return
        if not is_item and not self.paragraph:
            self.indent = min(self.indent, spaces)
            if spaces >= self.indent + 4:  # indented code
                return
        if fence := _FENCE.match(text):
            self._skip_to(re.compile(rf"[ \t>]*{re.escape(fence[1][0])}{{{len(fence[1])},}}[ \t]*$"))
        elif heading := _HEADING.match(text):
            end = len(_HEADING_END.sub("", text, count=1))
            yield [_Line(Extent(extent.start + heading.end(), extent.start + max(heading.end(), end)), "")]
        elif not self.paragraph and self._is_quoted(extent) and (alert := _ALERT.match(text)):
            yield [_Line(Extent(extent.start + alert.end(), extent.end), "")]
        elif _COMMAND.match(text):
            self.indent = spaces + 4
        elif text.strip() == "$$":
            self._skip_to(re.compile(r".*\$\$"))
        elif self._is_table(text):
            yield from self._table()
        elif _HTML.match(text) or (not self.paragraph and _LONE_TAG.match(text)):
            yield self._html(extent.start, text)
        elif not self.paragraph and (definition := _DEFINITION.match(text)):
            self.number += not definition[1]  # else its target stands in the next line
        elif not (_RULE.match(text) or _UNDERLINE.match(text)):
            start = extent.start + len(text) - len(text.lstrip())
            self.paragraph.append(_Line(Extent(start, extent.end), self.source.text[self.lines[self.number].start : start]))

    def _is_quoted(self, extent: Extent) -> bool:
        return ">" in self.source.text[self.lines[self.number].start : extent.start]

    def _flush(self) -> Iterator[list[_Line]]:
        if self.paragraph:
            yield self.paragraph
        self.paragraph = []

    def _text(self, number: int) -> str:
        return self.source.text[slice(*self.lines[number])] if number < len(self.lines) else ""

    def _skip_front_matter(self) -> None:
        mark = self._text(0).removeprefix("\ufeff").rstrip()
        if mark in ("---", "+++"):
            end = next((number for number in range(1, len(self.lines)) if self._text(number).rstrip() in (mark, "...")), 0)
            self.number = end + 1 if end else 0
        elif self._text(0).startswith("\ufeff"):
            self.lines[0] = Extent(1, self.lines[0].end)

    def _skip_to(self, end: re.Pattern[str]) -> None:
        """Go to the line that ends a block, or to the last line."""
        self.number += 1
        while self.number < len(self.lines) - 1 and not end.match(self._text(self.number)):
            self.number += 1

    def _html(self, start: int, text: str) -> Extent:
        """Return the extent of a block of HTML, which an empty line ends; a comment, a script or a style ends at its tag."""
        found = next((end for begin, end in _HTML_ENDS.items() if text.lstrip().lower().startswith(begin)), "")
        while self.number < len(self.lines):
            is_last = found in self._text(self.number).lower() if found else not self._text(self.number + 1).strip()
            if is_last:
                break
            self.number += 1
        self.number = min(self.number, len(self.lines) - 1)
        return Extent(start, self.lines[self.number].end)

    def _is_table(self, text: str) -> bool:
        rule = re.sub(r"^[ \t>]*", "", self._text(self.number + 1))
        return "|" in text and bool(_TABLE_RULE.match(rule)) and ("|" in rule or text.strip()[0] == "|")

    def _table(self) -> Iterator[list[_Line]]:
        """Yield the cells of a table, and go to its last line."""
        first = self.number
        while "|" in self._text(self.number) or self.number == first + 1:
            line = self.lines[self.number]
            position = self._content_start()[0] if self.number != first + 1 else line.end
            while position < line.end:
                cell = _CELL.match(self.source.text, position, line.end)
                assert cell is not None  # it may be empty
                yield [_Line(Extent(*cell.span()), "")]
                position = cell.end() + 1
            self.number += 1
        self.number -= 1


def _segments(source: FileText, lines: list[_Line], references: set[str]) -> Iterator[Segment]:
    """Yield a segment for the lines up to each hard line break."""
    group: list[_Line] = []
    for number, line in enumerate(lines):
        text = source.text[slice(*line.extent)]
        is_hard = number + 1 < len(lines) and (text.endswith(("  ", "\\")) or re.search(r"<br\s*/?>\s*$", text))
        start = line.extent.start + len(text) - len(text.lstrip())
        group.append(
            _Line(
                Extent(start, line.extent.start + len(text.rstrip().removesuffix("\\") if is_hard else text.rstrip())),
                line.prefix,
            )
        )
        if is_hard or number + 1 == len(lines):
            segment = _segment(source, group, references)
            if segment is not None:
                yield segment
            group = []


def _segment(source: FileText, lines: list[_Line], references: set[str]) -> Segment | None:
    texts = [source.text[slice(*line.extent)] for line in lines]
    text = with_inline_spans(" ".join(text.strip() for text in texts), references)
    spans = getattr(text, "spans", ())
    outside = "".join(" " if any(span.start <= at < span.end for span in spans) else char for at, char in enumerate(text))
    if not has_letters(outside):
        return None
    extent = Extent(lines[0].extent.start, lines[-1].extent.end)
    width = max(map(len, texts)) if len(lines) > 1 else 0
    between = source.newline + lines[-1].prefix

    def write(translations: Sequence[str]) -> Iterator[Edit]:
        written = translations[0]
        if (
            "|" in source.text[lines[-1].extent.end : lines[-1].extent.end + 2]
            or "|" in source.text[extent.start - 2 : extent.start]
        ):
            written = re.sub(r"(?<!\\)\|", r"\\|", written)
        yield Edit(*extent, (between.join(_wrapped(written, width)) if width else written,))

    return Segment((text,), source.line(extent.start), write, (text,))


def _wrapped(text: str, width: int) -> list[str]:
    """Break a text at spaces into lines of a width, none of which begins another block."""
    lines: list[str] = []
    for word in text.split(" "):  # two spaces may stand in code
        if lines and (len(lines[-1]) + 1 + len(word) <= width or _BLOCK_START.match(word)):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
