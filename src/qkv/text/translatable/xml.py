"""XML with the place of each element in its file: expat refuses what is not well-formed, a scanner of our own finds places."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from qkv.base.errors import DataError
from qkv.text.translatable.file import Edit, Extent, FileText, decode
from qkv.text.translatable.inline import InlineText, SpanKind, escape_like

_TOKEN = re.compile(
    r"<!--.*?-->|<!\[CDATA\[(?P<cdata>.*?)\]\]>|<\?.*?\?>"
    r"|<!DOCTYPE(?:[^\[>\"']|\"[^\"]*\"|'[^']*')*(?:\[.*?\]\s*)?>"
    r"|<(?P<close>/?)(?P<name>[^\s/>!?]+)(?P<rest>(?:[^\"'>/]|\"[^\"]*\"|'[^']*'|/(?!>))*)(?P<empty>/?)>",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"([^\s=]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_REFERENCE = re.compile(r"(&(?:#\w+|amp|lt|gt|quot|apos);)|(&[^;\s]+;)")

DEEPEST = 200  # levels of elements


@dataclass
class XmlElement:
    """An element, where it stands, and what it contains: elements, and extents of text and CDATA."""

    name: str  # without its prefix
    raw_name: str
    parent: "XmlElement | None"
    tag: Extent  # the start tag
    end: int  # after the end tag, or after the start tag of an empty element
    inside: Extent  # the content; of an empty element, nothing after its tag
    empty: bool = False  # written as <name/>
    attributes: dict[str, str] = field(default_factory=dict)  # by name, with its prefix
    values: dict[str, Extent] = field(default_factory=dict)  # where the values stand, without quotes
    attributes_end: int = 0  # where another attribute can be written
    content: "list[XmlElement | Extent]" = field(default_factory=list)

    def children(self, name: str) -> "list[XmlElement]":
        """Return the elements of a name directly inside."""
        return [child for child in self.content if isinstance(child, XmlElement) and child.name == name]

    def descendants(self, names: set[str]) -> "Iterator[XmlElement]":
        """Yield the elements of these names inside, in order."""
        for child in self.content:
            if isinstance(child, XmlElement):
                if child.name in names:
                    yield child
                yield from child.descendants(names)

    def inherited(self, name: str) -> str:
        """Return an attribute of this element, or else of the nearest one around it that has it."""
        here: XmlElement | None = self
        while here is not None and name not in here.attributes:
            here = here.parent
        return here.attributes[name] if here is not None else ""

    def with_attribute(self, name: str, value: str) -> Edit:
        """Return the edit that sets an attribute."""
        escaped = html.escape(value)
        if name in self.values:
            return Edit(*self.values[name], (escaped,))
        return Edit(self.attributes_end, self.attributes_end, (f' {name}="{escaped}"',))

    def with_content(self, content: tuple[str | Extent, ...]) -> Edit:
        """Return the edit that replaces the content."""
        if self.empty:
            return Edit(self.tag.end - 2, self.tag.end, (">", *content, f"</{self.raw_name}>"))
        return Edit(*self.inside, content)


def parse_xml(path: Path, content: bytes) -> tuple[FileText, XmlElement]:
    """Parse an XML file; return its text and the root element. Entities are never declared or fetched."""
    _require_well_formed(path, content)
    declared = re.match(rb"\s*<\?xml[^>]*encoding\s*=\s*[\"']([\w.-]+)", content.removeprefix(b"\xef\xbb\xbf"))
    source = decode(path, content, declared[1].decode().lower() if declared else "utf-8")
    document = XmlElement("", "", None, Extent(0, 0), 0, Extent(0, 0))
    here, position = document, 0
    for token in _TOKEN.finditer(source.text):
        if token.start() > position:
            here.content.append(Extent(position, token.start()))
        position = token.end()
        if token["cdata"] is not None:
            here.content.append(Extent(*token.span()))
        elif token["name"] and token["close"]:
            here.inside, here.end = Extent(here.tag.end, token.start()), token.end()
            here = here.parent or document
        elif token["name"]:
            element = _start_tag(token, here)
            here.content.append(element)
            here = here if element.empty else element
    return source, next(child for child in document.content if isinstance(child, XmlElement))


def _require_well_formed(path: Path, content: bytes) -> None:
    def refuse_entities(*_: object) -> None:
        raise DataError(f"{path}: declares entities of its own, which are not read; write the texts themselves")

    depth = 0

    def enter(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise DataError(f"{path}, line {parser.CurrentLineNumber}: elements are nested more than {DEEPEST} deep")

    def leave(_: str) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse_entities
    parser.StartElementHandler, parser.EndElementHandler = enter, leave
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise DataError(f"{path}, line {error.lineno}: not well-formed XML: {reason}") from None
    except (LookupError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as XML: {error}") from None


def _start_tag(token: re.Match[str], parent: XmlElement) -> XmlElement:
    name = token["name"]
    end = token.end()
    element = XmlElement(
        name.rpartition(":")[2], name, parent, Extent(*token.span()), end, Extent(end, end), bool(token["empty"])
    )
    element.attributes_end = token.end("name")
    for found in _ATTRIBUTE.finditer(token.string, *token.span("rest")):
        group = 2 if found[2] is not None else 3
        element.attributes[found[1]] = html.unescape(found[group])
        element.values[found[1]] = Extent(*found.span(group))
        element.attributes_end = found.end()
    return element


class XmlText:
    """The text of an element with inline elements."""

    def __init__(self, source: FileText, element: XmlElement, codes: dict[str, SpanKind]):
        """`codes` are the elements whose content is code of the original document, and how they are paired."""
        self.source, self.codes, self.inline = source, codes, InlineText()
        self.raw = source.text[slice(*element.inside)]
        self.is_cdata = bool(re.fullmatch(r"\s*<!\[CDATA\[(?:(?!\]\]>).)*\]\]>\s*", self.raw, re.DOTALL))
        self._add(element)

    @property
    def text(self) -> str:
        """The text, as a translator reads it."""
        return self.inline.text

    def content(self, translation: str) -> tuple[str | Extent, ...]:
        """Return a translation as content of an element."""
        if self.is_cdata:
            return ("<![CDATA[", translation.replace("]]>", "]]]]><![CDATA[>"), "]]>")
        return self.inline.content(translation, escape_like(self.raw))

    def _add(self, element: XmlElement) -> None:
        for node in element.content:
            if isinstance(node, Extent):
                self._add_text(node)
            elif node.name in self.codes or node.empty or _is_protected(node):
                extent = Extent(node.tag.start, node.end)
                self.inline.add_code(self.source.text[slice(*extent)], extent, self.codes.get(node.name, "alone"))
            else:
                self.inline.add_code(self.source.text[slice(*node.tag)], node.tag, "open")
                self._add(node)
                closing = Extent(node.inside.end, node.end)
                self.inline.add_code(self.source.text[slice(*closing)], closing, "close")

    def _add_text(self, extent: Extent) -> None:
        text = self.source.text[slice(*extent)]
        if text.startswith("<![CDATA["):
            self.inline.add_text(text[9:-3])
            return
        position = 0
        for found in _REFERENCE.finditer(text):
            self.inline.add_text(text[position : found.start()])
            if found[1]:
                self.inline.add_text(html.unescape(found[1]))
            else:  # an entity of a DTD that is not read
                self.inline.add_code(found[2], Extent(extent.start + found.start(), extent.start + found.end()))
            position = found.end()
        self.inline.add_text(text[position:])


def _is_protected(node: XmlElement) -> bool:
    return node.name == "mrk" and (node.attributes.get("translate") == "no" or node.attributes.get("mtype") == "protected")
