"""Texts apart from their inline codes: what a translator reads, and what is inserted into its translation.

The words are those of XLIFF 2. A spanning code is a pair of tags around words (<pc>; in XLIFF 1.2 <g>, or <bpt> and <ept>); a
standalone code is a single tag, or another span that is carried over unchanged (<ph>; in XLIFF 1.2 <x/> too). Spanning codes are
taken out of a text and remember their offsets. Standalone codes stay in it as placeholders if the translator can read them there;
those that it cannot read are taken out too.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import NamedTuple

from qkv.text.protected_text import ProtectedSpan

_BREAKS = re.compile(r"[\t\n\r]+")


class Placeholder(NamedTuple):
    """A standalone code that stays in the text, such as %s, {name} or a URL, and is one word of it."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class InlineCode:
    """An inline code that was taken out of a text: a spanning one (<pc> in XLIFF 2), or a standalone one (<ph>)."""

    start: int  # offsets of the characters that a spanning code encloses; those of a standalone one are equal
    end: int
    open: str  # the opening tag, or all of a standalone code
    close: str = ""
    standalone: bool = False
    spaces: tuple[str, str] = ("", "")  # white space before and after a standalone code
    became_space: bool = False  # whether the text has a space for a standalone code that touched words on both sides
    depth: int = 0  # the number of spanning codes around it


@dataclass(frozen=True)
class CodedText:
    """A normalised text with its placeholders, in order, and the codes that were taken out of it, outer before inner."""

    text: str
    placeholders: tuple[Placeholder, ...] = ()
    codes: tuple[InlineCode, ...] = ()

    def part(self, start: int, end: int, codes: Sequence[InlineCode]) -> "CodedText":
        """Return the characters from `start` to `end` with their placeholders, and with some of the codes."""
        inside = [one for one in self.placeholders if start <= one.start and one.end <= end]
        placeholders = [Placeholder(one.start - start, one.end - start, one.text) for one in inside]
        moved = [replace(code, start=min(code.start, end) - start, end=min(code.end, end) - start) for code in codes]
        return CodedText(self.text[start:end], tuple(placeholders), tuple(moved))

    def around_placeholders(self) -> list[str]:
        """Return the stretches of text around the placeholders, one more than there are placeholders."""
        bounds = [0, *(offset for one in self.placeholders for offset in (one.start, one.end)), len(self.text)]
        return [self.text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]


def extract_codes(text: str, spans: Sequence[ProtectedSpan], takes_out: Callable[[str], bool] = lambda _: False) -> CodedText:
    """Take the spanning codes out of a text, and the standalone ones for which `takes_out` says so; the others are placeholders.

    The rest is normalised, without white space at its ends. Where white space stands on both sides of what is taken out, that of
    one side goes with it.
    """
    spans = _merge_empty_pairs(text, spans)
    texts = _texts_between(text, spans)
    made, placeholders, codes, opened = texts[0], [], [], []  # type: ignore[var-annotated]
    for index, span in enumerate(spans):
        raw, after = text[span.start : span.end], texts[index + 1]
        if _is_placeholder(text, span, takes_out):
            placeholders.append(Placeholder(len(made), len(made) + len(raw), raw))
            made += raw + after
            continue
        between = (not made or made[-1].isspace()) and _space_follows(texts, spans, index, text, takes_out)
        if span.kind == "alone":
            before = _last_space(made, placeholders, codes)
            following = after[: len(after) - len(after.lstrip())]
            became_space = made[-1:].isalnum() and after[:1].isalnum()
            next_is_placeholder = index + 1 < len(spans) and _is_placeholder(text, spans[index + 1], takes_out)
            if between and following and (after.strip() or next_is_placeholder):
                after = after.lstrip()
            elif between:
                made = made[: len(made) - len(before)]
            at, spaces = len(made), (before, following)
            codes.append(InlineCode(at, at, raw, "", True, spaces, became_space, depth=len(opened)))
            made += " " if became_space else ""
        elif span.kind == "open":
            if between:
                kept = after.lstrip()
                raw, after = raw + after[: len(after) - len(kept)], kept
            codes.append(InlineCode(len(made), len(made), raw, depth=len(opened)))
            opened.append(len(codes) - 1)
        else:
            if between:
                space = _last_space(made, placeholders, codes)
                raw, made = space + raw, made[: len(made) - len(space)]
            pair = opened.pop()
            codes[pair] = replace(codes[pair], end=len(made), close=raw)
        made += after
    return CodedText(made, tuple(placeholders), tuple(codes))


def _is_placeholder(text: str, span: ProtectedSpan, takes_out: Callable[[str], bool]) -> bool:
    return span.kind == "alone" and not takes_out(text[span.start : span.end])


def _merge_empty_pairs(text: str, spans: Sequence[ProtectedSpan]) -> list[ProtectedSpan]:
    """Make one span of each pair of tags with nothing between them."""
    merged: list[ProtectedSpan] = []
    for span in spans:
        last = merged[-1] if merged else None
        if last and (last.kind, span.kind) == ("open", "close") and not text[last.end : span.start].strip():
            merged[-1] = ProtectedSpan(last.start, span.end)
        else:
            merged.append(span)
    return merged


def _texts_between(text: str, spans: Sequence[ProtectedSpan]) -> list[str]:
    """Return the normalised texts before, between and after the spans."""
    bounds = [0, *(offset for span in spans for offset in (span.start, span.end)), len(text)]
    pieces = [text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
    texts = [_BREAKS.sub(" ", unicodedata.normalize("NFC", piece)) for piece in pieces]
    texts[0] = texts[0].lstrip()
    texts[-1] = texts[-1].rstrip()
    return texts


def _space_follows(
    texts: list[str], spans: Sequence[ProtectedSpan], index: int, text: str, takes_out: Callable[[str], bool]
) -> bool:
    """Return whether white space, or the end of the text, follows a span that is taken out, after others that are."""
    for later in range(index + 1, len(texts)):
        if texts[later]:
            return texts[later][0].isspace()
        if later < len(spans) and _is_placeholder(text, spans[later], takes_out):
            return False
    return True


def _last_space(made: str, placeholders: list[Placeholder], codes: list[InlineCode]) -> str:
    """Return the white space at the end of a text, after its last placeholder and code."""
    taken = max([len(made.rstrip()), *(one.end for one in placeholders[-1:]), *(max(one.start, one.end) for one in codes)])
    return made[taken:]


def insert_codes(text: str, placed: Sequence[tuple[int, int, InlineCode]]) -> str:
    """Return a text with codes at these offsets (start, end), given outer before inner; the tags of the result are nested."""
    tree: list[_Node] = []
    path: list[_Node] = []  # the spanning codes around the next code
    for start, end, code in placed:
        while path and path[-1].code.depth >= code.depth:
            path.pop()
        node = _Node(start, end, code, [])
        (path[-1].children if path else tree).append(node)
        if not code.standalone:
            path.append(node)
    return _emit(text, tree, 0, len(text))


class _Node(NamedTuple):
    """A code with its offsets in a text, and the codes inside it."""

    start: int
    end: int
    code: InlineCode
    children: list["_Node"]


def _emit(text: str, nodes: list[_Node], low: int, high: int) -> str:
    """Return the characters from `low` to `high` with codes, which may neither leave this range nor overlap."""
    made, position = "", low
    for node in sorted(nodes, key=lambda node: node.start):
        start, code = min(max(position, node.start), high), node.code
        made += text[position:start]
        position = start
        if not code.standalone:
            position = min(max(start, node.end), high)
            made += code.open + _emit(text, node.children, start, position) + code.close
            continue
        if code.became_space:
            made, position = made.rstrip(), position + len(text[position:high]) - len(text[position:high].lstrip())
        space_before = start > 0 and not text[start - 1].isspace()
        space_after = position < len(text) and not text[position].isspace()
        made += f"{code.spaces[0] * space_before}{code.open}{code.spaces[1] * space_after}"
    return made + text[position:high]


class CodedPart(NamedTuple):
    """A part of a coded text, with what stands around it."""

    coded: CodedText
    before: str  # tags
    after: str  # tags
    space: str  # white space up to the next part


def _cross(one: tuple[int, int, InlineCode], other: tuple[int, int, InlineCode]) -> bool:
    """Return whether one code begins in parts before another, and ends between its first and its last part."""
    return one[0] < other[0] <= one[1] < other[1]


def cut_coded(coded: CodedText, ends: Sequence[int]) -> list[CodedPart]:
    """Cut a coded text; tags around whole parts, or around words of several, stand at the edges of these parts."""
    ranges = list(pairwise([0, *ends]))
    inside: list[list[InlineCode]] = [[] for _ in ranges]
    outside: list[tuple[int, int, InlineCode]] = []  # first and last part
    for code in coded.codes:
        first = max(index for index, (start, _) in enumerate(ranges) if start <= code.start)
        last = max([first, *(index for index, (start, _) in enumerate(ranges) if start < code.end)])
        start, end = ranges[first][0], ranges[last][0] + len(coded.text[slice(*ranges[last])].rstrip())
        if code.standalone or (first == last and (code.start > start or code.end < end)):
            inside[first].append(code)
            continue
        outside.append((first, last, code))
    while crossing := next((p for p in permutations(range(len(outside)), 2) if _cross(*(outside[i] for i in p))), None):
        first, last = outside[crossing[0]][0], outside[crossing[1]][1]
        for index in crossing:  # both then stand around the parts of both
            outside[index] = (first, last, outside[index][2])
    outside.sort(key=lambda entry: (entry[0], -entry[1]))  # outer before inner
    parts = []
    for index, (start, end) in enumerate(ranges):
        text = coded.text[start:end].rstrip()
        before = "".join(code.open for first, _, code in outside if first == index)
        after = "".join(code.close for _, last, code in reversed(outside) if last == index)
        part = coded.part(start, start + len(text), inside[index])
        parts.append(CodedPart(part, before, after, coded.text[start + len(text) : end]))
    return parts
