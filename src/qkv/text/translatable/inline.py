"""Inline markup of a segment: tags and codes that stand in its text, and that its translation holds exactly once."""

import html
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from qkv.text.protected_text import ProtectedSpan, ProtectedText, find_spans
from qkv.text.translatable.file import Extent

SpanKind = Literal["alone", "open", "close"]

# Placeholders that take their arguments by order, and commands around parts of a template.
_ORDERED = re.compile(
    r"%[-+#0]*(?:\d+|\*)?(?:\.\d+)?[A-Za-z]{0,2}[A-Za-z@]"  # printf
    r"|\{(?:![rsa])?(?::[^{}]*)?\}"  # Python
    r"|\{%.*%\}|\{\{~?\s*(?:[#/^]|else\b).*\}\}|<%(?!=).*%>",  # Jinja, Handlebars, ERB
    re.DOTALL,
)
_PLACEHOLDER_ELEMENT = re.compile(r"<(?:\w+:)?ph\b[^<>]*>([^<>]*)</[^<>]*>")  # XLIFF and TMX: <ph id="1">%d</ph>


class InlineText:
    """The text of a segment, put together from texts and codes; each code knows the characters of the file that it stands for."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._spans: list[ProtectedSpan] = []
        self._extents: list[Extent] = []

    def add_text(self, text: str) -> None:
        """Add text that is translated."""
        self._parts.append(text)
        self._length += len(text)

    def add_code(self, code: str, extent: Extent, kind: SpanKind = "alone") -> None:
        """Add markup that is carried over."""
        self._spans.append(ProtectedSpan(self._length, self._length + len(code), kind))
        self._extents.append(extent)
        self.add_text(code)

    @property
    def text(self) -> str:
        """The text, with its codes as protected spans if it has any."""
        joined = "".join(self._parts)
        if not self._spans:
            return joined
        spans = self._spans
        if _partners([span.kind for span in spans]) is None:  # codes that overlap, as bpt and ept may
            spans = [span._replace(kind="alone") for span in spans]
        return ProtectedText(joined, spans)

    def content(self, translation: str, escape: Callable[[str], str]) -> tuple[str | Extent, ...]:
        """Return a translation as the content of an edit: codes as they are in the file, and text escaped."""
        text = self.text
        extents = defaultdict[str, deque[Extent]](deque)
        for span, extent in zip(self._spans, self._extents, strict=True):
            extents[text[span.start : span.end]].append(extent)
        content: list[str | Extent] = []
        for part, is_code in split_codes(translation, list(extents)):
            if is_code and extents[part]:
                content.append(extents[part].popleft())
            elif part:
                content.append(escape(part))
        return tuple(content)


def escape_like(raw: str) -> Callable[[str], str]:
    """Return a function that escapes text for XML or HTML with the references that `raw` uses, such as &nbsp; or &quot;."""
    references = {"&": "&amp;", "<": "&lt;"}
    references |= {html.unescape(found): found for found in re.findall(r"&#?\w+;", raw)}
    table = {ord(char): reference for char, reference in references.items() if len(char) == 1}
    return lambda text: text.translate(table).replace("]]>", "]]&gt;")


def markup_problem(source: str, translation: str) -> str:
    """Return why a translation cannot be written in place of a text with markup; "" if it can.

    Each code must occur as often as in the source, and paired tags must be nested.
    """
    if not isinstance(source, ProtectedText):
        return ""
    codes = [source[span.start : span.end] for span in source.spans]
    wanted, found = ([part for part, is_code in split_codes(text, codes) if is_code] for text in (source, translation))
    expected, got = Counter(wanted), Counter(found)
    for code in expected:
        if expected[code] != got[code]:
            return f"the translation has {code!r} {got[code]} times instead of {expected[code]}"
    # Text that looks like a code, such as the * in 2 * 3, or codes that touch, as in ***: which is which cannot be told.
    if wanted != codes:
        return ""
    partners = _partners([span.kind for span in source.spans]) or {}
    indices = defaultdict[str, deque[int]](deque)
    for index, code in enumerate(codes):
        indices[code].append(index)
    opened: list[int] = []
    for code in found:
        index = indices[code].popleft()
        kind = source.spans[index].kind
        if kind == "open":
            opened.append(index)
        elif kind == "close" and (not opened or codes[opened.pop()] != codes[partners[index]]):
            return f"the translation has {code!r} where it closes nothing"
    return ""


def with_spans_of(source: str, translation: str) -> str:
    """Return the translation of a text with the codes of the text as its protected spans, so that it can be translated again."""
    if not isinstance(source, ProtectedText):
        return translation
    kinds = defaultdict[str, deque[SpanKind]](deque)
    for span in source.spans:
        kinds[source[span.start : span.end]].append(span.kind)
    spans, position = list[ProtectedSpan](), 0
    for part, is_code in split_codes(translation, list(kinds)):
        if is_code and kinds[part]:
            spans.append(ProtectedSpan(position, position + len(part), kinds[part].popleft()))
        position += len(part)
    if _partners([span.kind for span in spans]) is None:  # the translation has lost or moved one
        spans = [span._replace(kind="alone") for span in spans]
    return ProtectedText(translation, spans)


def placeholder_problem(source: str, translation: str, patterns: Sequence[re.Pattern[str]]) -> str:
    """Return which placeholders, tags and addresses outside of markup a translation lacks, adds or exchanges; "" if none.

    In a text with placeholders of printf, each other percent sign counts as well, since it may begin one. Placeholders without a
    number or name, and the commands of a template, keep their order.
    """
    codes = [source[span.start : span.end] for span in getattr(source, "spans", ())]
    parts = [list(_placeholders(text, codes, patterns)) for text in (source, translation)]
    wanted, found = (Counter(span for span, is_code in spans if not is_code) for spans in parts)
    if any(text.startswith("%") for text in wanted):
        for text, counted in ((source, wanted), (translation, found)):
            counted["%"] = text.count("%") - sum(span.count("%") * number for span, number in counted.items())
    lacking, added = wanted - found, found - wanted
    problems = [f"{word} {', '.join(map(repr, spans))}" for word, spans in (("lacks", lacking), ("adds", added)) if spans]
    if problems:
        return f"the translation {' and '.join(problems)}"
    orders = ([span for span, _ in spans if _ORDERED.fullmatch(span)] for spans in parts)
    exchanged = next(((old, new) for old, new in zip(*orders, strict=False) if old != new), None)
    return f"the translation has {exchanged[1]!r} before {exchanged[0]!r}" if exchanged else ""


def _placeholders(text: str, codes: Sequence[str], patterns: Sequence[re.Pattern[str]]) -> Iterator[tuple[str, bool]]:
    """Yield the protected spans of a text in order, with line breaks in them as spaces, and whether they are codes."""
    for part, is_code in split_codes(text, codes):
        if is_code:
            yield _PLACEHOLDER_ELEMENT.sub(r"\1", part), True
        else:
            plain = str(part)
            yield from ((" ".join(plain[span.start : span.end].split()), False) for span in find_spans(plain, patterns))


def split_codes(text: str, codes: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text and whether they are codes."""
    if not codes:
        yield text, False
        return
    longest_first = sorted(set(codes), key=len, reverse=True)
    for number, part in enumerate(re.split(f"({'|'.join(map(re.escape, longest_first))})", text)):
        yield part, number % 2 == 1


def _partners(kinds: Sequence[SpanKind]) -> dict[int, int] | None:
    """Return the opening span of each closing one, by index; None if they are not nested."""
    partners: dict[int, int] = {}
    opened: list[int] = []
    for index, kind in enumerate(kinds):
        if kind == "open":
            opened.append(index)
        elif kind == "close":
            if not opened:
                return None
            partners[index] = opened.pop()
    return None if opened else partners
