"""HTML: texts of blocks with their inline tags, and attributes that people read; scripts, styles and code stay as they are.

A scanner of our own gives the place of everything in the file; it follows the HTML standard as far as translation needs it.
"""

import codecs
import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qkv.text.translatable.file import Edit, Extent, FileText, Segment, TranslatableFile, decode, usable_encoding
from qkv.text.translatable.inline import InlineText, SpanKind, escape_like

# fmt: off
# Elements inside a sentence; all others end a text.
INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins", "kbd",
    "mark", "nobr", "q", "rp", "rt", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt",
    "u", "var",
}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
INLINE_VOID = {"img", "wbr"}
UNTRANSLATED = {
    "code", "kbd", "samp", "var", "pre", "script", "style", "svg", "math", "template", "textarea", "object", "iframe",
    "noscript", "xmp",
}
# fmt: on
RAW_TEXT = {"script", "style", "textarea", "title", "xmp", "iframe"}  # no tags inside
ATTRIBUTES = {"alt", "title", "placeholder", "aria-label", "aria-description", "summary"}
META = {"description", "keywords", "og:title", "og:description", "twitter:title", "twitter:description"}
BUTTONS = {"submit", "button", "reset"}

_TOKEN = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<[!?][^>]*>|<%.*?%>|\{%.*?%\}|\{#.*?#\}"
    r"|<(?P<close>/?)(?P<name>[A-Za-z][^\s/>]*)(?P<rest>(?:[^\"'>]|\"[^\"]*\"|'[^']*')*|[^>]*)>",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"([^\s=>\"'/]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'=<>`]+)))?")
_CHARSET = re.compile(
    rb"<meta\s[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml\s[^>]*?encoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE
)
_SPACE = re.compile(r"[ \t\r\n\f]+")


@dataclass
class _Node:
    """A text, a tag, or something that is carried over whole."""

    extent: Extent
    kind: SpanKind | None  # None for text
    name: str = ""
    partner: "_Node | None" = field(default=None, repr=False)


def parse(path: Path, content: bytes, language: str = "") -> TranslatableFile:
    """Parse a page; `language` is the target language, which the attribute `lang` of the page gets."""
    return parse_text(decode(path, content, _declared_encoding(content)), language)


def parse_text(source: FileText, language: str = "") -> TranslatableFile:
    """Parse a page, or a part of one, that is decoded already."""
    edits = []
    page = re.search(r"<html\b[^>]*?\slang\s*=\s*[\"']?([\w-]+)", source.text, re.IGNORECASE)
    if page and language:
        edits.append(Edit(*page.span(1), (language,)))
    segments = list(html_segments(source, Extent(0, len(source.text))))
    return TranslatableFile(source, segments, edits, encoding_errors="xmlcharrefreplace")


def _declared_encoding(content: bytes) -> str:
    """Return the encoding that a page declares near its beginning; UTF-8 by default."""
    found = _CHARSET.search(re.sub(rb"<!--.*?-->", b"", content[:4096], flags=re.DOTALL))
    name = usable_encoding((found[1] or found[2]).decode()) if found else "utf-8"
    # Pages that declare Latin-1 and hold quotation marks of Windows-1252 are common; browsers read them so.
    is_windows = codecs.lookup(name).name in ("iso8859-1", "ascii") and re.search(rb"[\x80-\x9f]", content)
    return "windows-1252" if is_windows else name


def html_segments(source: FileText, within: Extent) -> Iterator[Segment]:
    """Yield the segments of a stretch of HTML."""
    run: list[_Node] = []  # since the last end of a text
    opened: list[_Node] = []
    position = within.start
    while token := _TOKEN.search(source.text, position, within.end):
        if token.start() > position:
            run.append(_Node(Extent(position, token.start()), None))
        position = token.end()
        name = (token["name"] or "").lower()
        node = _Node(Extent(*token.span()), "alone", name)
        if name and token["close"]:
            node.kind = "close"
        elif name:
            attributes = {found[1].lower(): found for found in _ATTRIBUTE.finditer(source.text, *token.span("rest"))}
            if name not in VOID and not token["rest"].endswith("/"):
                node.kind = "open"
            if node.kind == "open" and _is_untranslated(name, attributes):
                position = _end_of_element(source, token, within.end)
                node.extent, node.kind = Extent(token.start(), position), "alone"
            else:
                yield from _attribute_segments(source, name, attributes)
        _pair(source, node, opened)
        # Without a name it is a comment, a declaration, or a command of a template.
        if name in INLINE or name in INLINE_VOID or not name:
            run.append(node)
        else:
            yield from _texts(source, run)
            run = []
    run.append(_Node(Extent(position, within.end), None))
    _refuse_unclosed(source, opened)
    yield from _texts(source, run)


def _is_untranslated(name: str, attributes: dict[str, re.Match[str]]) -> bool:
    return (
        name in UNTRANSLATED
        or _value(attributes, "translate").lower() == "no"
        or "notranslate" in _value(attributes, "class").split()
    )


def _value(attributes: dict[str, re.Match[str]], name: str) -> str:
    found = attributes.get(name)
    return html.unescape(found[2] or found[3] or found[4] or "") if found else ""


def _end_of_element(source: FileText, start: re.Match[str], end: int) -> int:
    """Return where an element ends whose content is not looked into."""
    name = start["name"].lower()
    depth = 1
    for tag in re.compile(rf"<(/?){re.escape(name)}(?=[\s/>])[^>]*>", re.IGNORECASE).finditer(source.text, start.end(), end):
        depth += -1 if tag[1] else int(name not in RAW_TEXT)
        if not depth:
            return tag.end()
    raise source.error(start.start(), f"<{name}> is never closed")


def _pair(source: FileText, node: _Node, opened: list[_Node]) -> None:
    """Match a closing tag with its opening one. Only blocks may lack an end tag, or have one without a start."""
    if node.kind == "open":
        opened.append(node)
    elif node.kind == "close":
        if all(other.name != node.name for other in opened):
            if node.name in INLINE:
                raise source.error(node.extent.start, f"</{node.name}> closes nothing")
            return
        while (last := opened.pop()).name != node.name:
            _refuse_unclosed(source, [last])
        node.partner, last.partner = last, node


def _refuse_unclosed(source: FileText, nodes: Sequence[_Node]) -> None:
    for node in nodes:
        if node.name in INLINE:
            raise source.error(node.extent.start, f"<{node.name}> is not closed where the element around it ends")


def _attribute_segments(source: FileText, name: str, attributes: dict[str, re.Match[str]]) -> Iterator[Segment]:
    """Yield the attributes of a tag that people read."""
    for key, found in attributes.items():
        is_read = (
            key in ATTRIBUTES
            or (key == "label" and name in ("option", "optgroup", "track"))
            or (key == "value" and name == "input" and _value(attributes, "type").lower() in BUTTONS)
            or (key == "content" and name == "meta" and (_value(attributes, "name") or _value(attributes, "property")) in META)
        )
        group = next((group for group in (2, 3, 4) if found[group]), None)
        if is_read and group and has_letters(found[group]):
            yield _attribute_segment(source, Extent(*found.span(group)), {2: '"', 3: "'", 4: ""}[group])


def _attribute_segment(source: FileText, extent: Extent, quote: str) -> Segment:
    raw = source.text[slice(*extent)]
    text = html.unescape(raw)

    def write(translations: Sequence[str]) -> Iterator[Edit]:
        around = "" if quote else '"'
        other = {"'": "&#39;"}.get(quote, "&quot;")
        escaped = escape_like(raw)(translations[0]).replace(quote or '"', other)
        yield Edit(*extent, (f"{around}{escaped}{around}",))

    return Segment((text,), source.line(extent.start), write, (text,))


def has_letters(text: str) -> bool:
    """Return whether a text has anything to translate."""
    return any(char.isalpha() for char in text)


def _texts(source: FileText, run: list[_Node]) -> Iterator[Segment]:
    """Yield the texts of a run of inline nodes; a tag whose partner is elsewhere ends a text, as does white space around it."""
    inside = {id(node) for node in run}
    stretch: list[_Node] = []
    for node in [*run, None]:
        if node is not None and (node.kind in (None, "alone") or (node.partner is not None and id(node.partner) in inside)):
            stretch.append(node)
            continue
        stretch = _trimmed(source, stretch)
        if any(has_letters(html.unescape(source.text[slice(*node.extent)])) for node in stretch if node.kind is None):
            yield _segment(source, stretch)
        stretch = []


def _trimmed(source: FileText, nodes: list[_Node]) -> list[_Node]:
    """Leave out white space, codes at the ends, and tags around the whole."""
    nodes = list(nodes)
    changed = True
    while changed and nodes:
        changed = False
        first, last = nodes[0], nodes[-1]
        for node, index in ((first, 0), (last, -1)):
            if (
                nodes
                and nodes[index] is node
                and (node.kind == "alone" or (node.kind is None and not source.text[slice(*node.extent)].strip(" \t\r\n\f")))
            ):
                nodes.pop(index)
                changed = True
        if not changed and first.partner is last and first is not last:
            nodes, changed = nodes[1:-1], True
    for index, strip in ((0, str.lstrip), (-1, str.rstrip)):
        if nodes and nodes[index].kind is None:
            start, end = nodes[index].extent
            kept = strip(source.text[start:end], " \t\r\n\f")
            extent = Extent(end - len(kept), end) if index == 0 else Extent(start, start + len(kept))
            nodes[index] = _Node(extent, None)
    return nodes


def _segment(source: FileText, nodes: list[_Node]) -> Segment:
    inline = InlineText()
    raw = ""
    for node in nodes:
        part = source.text[slice(*node.extent)]
        if node.kind is None:
            inline.add_text(_SPACE.sub(" ", html.unescape(part)))
            raw += part
        else:
            inline.add_code(part, node.extent, node.kind)
    extent = Extent(nodes[0].extent.start, nodes[-1].extent.end)

    def write(translations: Sequence[str]) -> Iterator[Edit]:
        yield Edit(*extent, inline.content(translations[0], escape_like(raw)))

    return Segment((inline.text,), source.line(extent.start), write, (inline.text,))
