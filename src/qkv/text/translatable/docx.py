"""Word documents (.docx, Office Open XML): paragraphs of the text, headers, footers, notes and comments, with their formatting.

Runs of the same formatting are joined. Formatting that is not the paragraph's own, links, and everything that is not text are
codes in the paragraph's text: <g1>...</g1> around words, <x2/> for a tab, a picture or a field.
"""

import html
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from qkv.base.errors import DataError
from qkv.text.translatable.file import Edit, Extent, FileText, Segment, TranslatableFile
from qkv.text.translatable.inline import InlineText, SpanKind, split_codes
from qkv.text.translatable.xml import XmlElement, parse_xml

_PARTS = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
_AROUND_RUNS = {"hyperlink", "ins", "smartTag"}
_DROPPED = {"proofErr", "lastRenderedPageBreak"}  # Word makes them anew
_NOT_FORMATTING = {"lang", "noProof"}  # properties of a run for the spelling checker, which split words into several runs
MOST_BYTES = 1 << 29  # of an unpacked part

Raw = tuple[str | Extent, ...]


class _RunText(NamedTuple):
    properties: str  # of its run, as XML
    text: str


@dataclass(frozen=True)
class DocxFile(TranslatableFile):
    """A document whose parts are XML files in an archive; unchanged parts are copied."""

    content: bytes = b""
    parts: dict[str, TranslatableFile] = field(default_factory=dict)

    def render(self, translations: Sequence[Sequence[str] | None]) -> bytes:
        """Return the archive with the translations in its parts; the same bytes if nothing changes."""
        rest = iter(translations)
        written = {name: part.render([next(rest) for _ in part.segments]) for name, part in self.parts.items()}
        packed = io.BytesIO()
        changed = False
        with zipfile.ZipFile(io.BytesIO(self.content)) as old, zipfile.ZipFile(packed, "w") as new:
            for info in old.infolist():
                content = old.read(info)
                changed |= written.get(info.filename, content) != content
                new.writestr(info, written.get(info.filename, content), info.compress_type)
        return packed.getvalue() if changed else self.content


def parse(path: Path, content: bytes) -> TranslatableFile:
    """Parse a document."""
    parts: dict[str, TranslatableFile] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for info in archive.infolist():
                if _PARTS.fullmatch(info.filename):
                    if info.file_size > MOST_BYTES:
                        raise DataError(f"{path}: {info.filename} has more than {MOST_BYTES >> 20} MiB")
                    parts[info.filename] = _parse_part(path, archive.read(info))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError) as error:
        raise DataError(f"{path}: not a .docx document, or damaged or encrypted: {error}") from None
    if "word/document.xml" not in parts:
        raise DataError(f"{path}: not a .docx document; it has no word/document.xml")
    segments = [segment for part in parts.values() for segment in part.segments]
    return DocxFile(FileText(path, ""), segments, content=content, parts=parts)


def _parse_part(path: Path, content: bytes) -> TranslatableFile:
    source, root = parse_xml(path, content)
    paragraphs = (_Paragraph(source, element) for element in root.descendants({"p"}) if element.raw_name != "a:p")
    return TranslatableFile(source, [p.segment() for p in paragraphs if p.is_translatable], encoding_errors="xmlcharrefreplace")


class _Paragraph:
    """A paragraph as text with codes, and as runs again."""

    def __init__(self, source: FileText, element: XmlElement):
        self.source, self.element = source, element
        self.prefix = element.raw_name.removesuffix("p")
        self.inline = InlineText()
        self.raw: dict[str, Raw] = {}  # what each code stands for
        self.formats: dict[str, str] = {}  # the properties of runs after each code that begins or ends a format
        self.has_open_field = False
        properties = element.children("pPr")
        self.start = properties[0].end if properties else element.tag.end
        self.format = self._add(element, "")
        self.is_translatable = not self.has_open_field and any(char.isalpha() for char in self._outside())

    def segment(self) -> Segment:
        """Return the segment of the paragraph."""
        text = self.inline.text

        def write(translations: Sequence[str]) -> Iterator[Edit]:
            content: list[str | Extent] = []
            properties = self.format
            for part, is_code in split_codes(translations[0], list(self.raw)):
                if is_code:
                    content += self.raw[part]
                    properties = self.formats.get(part, properties)
                elif part:
                    escaped = html.escape(part, quote=False)
                    run, text = f"{self.prefix}r", f"{self.prefix}t"
                    content.append(f'<{run}>{properties}<{text} xml:space="preserve">{escaped}</{text}></{run}>')
            yield Edit(self.start, self.element.inside.end, tuple(content))

        return Segment((text,), self.source.line(self.start), write, (text,))

    def _outside(self) -> str:
        return "".join(part for part, is_code in split_codes(self.inline.text, list(self.raw)) if not is_code)

    def _add(self, container: XmlElement, around: str) -> str:
        """Add the content of a paragraph or a link; return the properties of most of its text."""
        pieces = list(self._pieces(container))
        sizes = Counter[str]()
        for piece in pieces:
            if isinstance(piece, _RunText):
                sizes[piece.properties] += len(piece.text)
        own = sizes.most_common(1)[0][0] if sizes else around
        for properties, group in groupby(pieces, lambda piece: piece.properties if isinstance(piece, _RunText) else None):
            text = ""
            for piece in group:
                if isinstance(piece, _RunText):
                    text += piece.text
                else:
                    self._add_node(piece, own)
            if properties in (None, own):
                self.inline.add_text(text)
            else:
                number = len(self.raw) + 1
                self._code(f"<g{number}>", (), "open", properties)
                self.inline.add_text(text)
                self._code(f"</g{number}>", (), "close", own)
        return own

    def _add_node(self, node: XmlElement | Raw, own: str) -> None:
        number = len(self.raw) + 1
        if not isinstance(node, XmlElement):
            self._code(f"<x{number}/>", node, "alone")
            return
        # A link has a format of its own, known after its content is added.
        opening = f"<g{number}>"
        self._code(opening, (node.tag,), "open")
        self.formats[opening] = self._add(node, own)
        self._code(f"</g{number}>", (Extent(node.inside.end, node.end),), "close", own)

    def _code(self, code: str, raw: Raw, kind: SpanKind, properties: str | None = None) -> None:
        self.inline.add_code(code, Extent(0, 0), kind)
        self.raw[code] = raw
        if properties is not None:
            self.formats[code] = properties

    def _pieces(self, container: XmlElement) -> Iterator[_RunText | XmlElement | Raw]:
        """Yield texts with the properties of their run, links, and everything else as raw content."""
        field: list[XmlElement] = []
        for child in container.content:
            if not isinstance(child, XmlElement) or child.name in _DROPPED or child.name == "pPr":
                continue
            if field or _field_marks(child, self.prefix, "begin"):
                field.append(child)
                begun = sum(len(_field_marks(node, self.prefix, "begin")) for node in field)
                if begun == sum(len(_field_marks(node, self.prefix, "end")) for node in field):
                    yield (Extent(field[0].tag.start, child.end),)
                    field = []
            elif child.name == "r":
                yield from self._run(child)
            elif child.name in _AROUND_RUNS and not child.empty:
                yield child
            else:
                yield (Extent(child.tag.start, child.end),)
        self.has_open_field |= bool(field)

    def _run(self, run: XmlElement) -> Iterator[_RunText | Raw]:
        properties = "".join(self._formatting(child) for child in run.children("rPr"))
        for child in run.content:
            if not isinstance(child, XmlElement) or child.name in _DROPPED or child.name == "rPr":
                continue
            if child.name == "t":
                yield _RunText(properties, html.unescape(self.source.text[slice(*child.inside)]))
            else:
                yield (f"<{run.raw_name}>{properties}", Extent(child.tag.start, child.end), f"</{run.raw_name}>")

    def _formatting(self, properties: XmlElement) -> str:
        """Return a run's properties as XML, without those that are not formatting."""
        kept = [self.source.text[node.tag.start : node.end] for node in properties.content
                if isinstance(node, XmlElement) and node.name not in _NOT_FORMATTING]  # fmt: skip
        return f"<{properties.raw_name}>{''.join(kept)}</{properties.raw_name}>" if kept else ""


def _field_marks(node: XmlElement, prefix: str, kind: str) -> list[XmlElement]:
    return [mark for mark in node.children("fldChar") if mark.attributes.get(f"{prefix}fldCharType") == kind]
