"""Texts without their tags: what a translator reads, and what its translation gets back.

Atoms are protected spans that stay in the text. Marks are taken out of it and remember their place: pairs of tags around words,
and spans that a translator could not read (points).
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import NamedTuple

from qkv.text.protected_text import ProtectedSpan

_BREAKS = re.compile(r"[\t\n\r]+")


class Atom(NamedTuple):
    """A protected span inside a text, which is a word by itself."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Mark:
    """A pair of tags, or a point, that was taken out of a text."""

    start: int  # the characters between the tags; a point has none
    end: int
    open: str
    close: str = ""
    is_point: bool = False
    spaces: tuple[str, str] = ("", "")  # white space before and after a point
    glued: bool = False  # whether a point stood between two words, where the text now has a space
    depth: int = 0  # the number of pairs around it


@dataclass(frozen=True)
class MarkedText:
    """A normalised text with its atoms, in order, and its marks, outer before inner."""

    text: str
    atoms: tuple[Atom, ...] = ()
    marks: tuple[Mark, ...] = ()

    def part(self, start: int, end: int, marks: Sequence[Mark]) -> "MarkedText":
        """Return the characters from `start` to `end` with their atoms, and with some of the marks."""
        atoms = [Atom(a.start - start, a.end - start, a.text) for a in self.atoms if start <= a.start and a.end <= end]
        moved = [replace(mark, start=min(mark.start, end) - start, end=min(mark.end, end) - start) for mark in marks]
        return MarkedText(self.text[start:end], tuple(atoms), tuple(moved))

    def around_atoms(self) -> list[str]:
        """Return the stretches of text around the atoms, one more than there are atoms."""
        bounds = [0, *(place for atom in self.atoms for place in (atom.start, atom.end)), len(self.text)]
        return [self.text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]


def mark_text(text: str, spans: Sequence[ProtectedSpan], is_point: Callable[[str], bool] = lambda _: False) -> MarkedText:
    """Take the tags out of a text, and the spans that are points; normalise the rest, without white space at its ends.

    Where white space stands on both sides of what is taken out, that of one side goes with it.
    """
    spans = _merge_empty_pairs(text, spans)
    texts = _texts_between(text, spans)
    made, atoms, marks, opened = texts[0], [], [], []  # type: ignore[var-annotated]
    for index, span in enumerate(spans):
        raw, after = text[span.start : span.end], texts[index + 1]
        if _is_atom(text, span, is_point):
            atoms.append(Atom(len(made), len(made) + len(raw), raw))
            made += raw + after
            continue
        between = (not made or made[-1].isspace()) and _space_follows(texts, spans, index, text, is_point)
        if span.kind == "alone":
            before = _last_space(made, atoms, marks)
            following = after[: len(after) - len(after.lstrip())]
            glued = made[-1:].isalnum() and after[:1].isalnum()
            next_is_atom = index + 1 < len(spans) and _is_atom(text, spans[index + 1], is_point)
            if between and following and (after.strip() or next_is_atom):
                after = after.lstrip()
            elif between:
                made = made[: len(made) - len(before)]
            marks.append(
                Mark(len(made), len(made), raw, is_point=True, spaces=(before, following), glued=glued, depth=len(opened))
            )
            made += " " if glued else ""
        elif span.kind == "open":
            if between:
                kept = after.lstrip()
                raw, after = raw + after[: len(after) - len(kept)], kept
            marks.append(Mark(len(made), len(made), raw, depth=len(opened)))
            opened.append(len(marks) - 1)
        else:
            if between:
                space = _last_space(made, atoms, marks)
                raw, made = space + raw, made[: len(made) - len(space)]
            pair = opened.pop()
            marks[pair] = replace(marks[pair], end=len(made), close=raw)
        made += after
    return MarkedText(made, tuple(atoms), tuple(marks))


def _is_atom(text: str, span: ProtectedSpan, is_point: Callable[[str], bool]) -> bool:
    return span.kind == "alone" and not is_point(text[span.start : span.end])


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
    bounds = [0, *(place for span in spans for place in (span.start, span.end)), len(text)]
    pieces = [text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
    texts = [_BREAKS.sub(" ", unicodedata.normalize("NFC", piece)) for piece in pieces]
    texts[0] = texts[0].lstrip()
    texts[-1] = texts[-1].rstrip()
    return texts


def _space_follows(
    texts: list[str], spans: Sequence[ProtectedSpan], index: int, text: str, is_point: Callable[[str], bool]
) -> bool:
    """Return whether white space, or the end of the text, follows a span that is taken out, after others that are."""
    for later in range(index + 1, len(texts)):
        if texts[later]:
            return texts[later][0].isspace()
        if later < len(spans) and _is_atom(text, spans[later], is_point):
            return False
    return True


def _last_space(made: str, atoms: list[Atom], marks: list[Mark]) -> str:
    """Return the white space at the end of a text, after its last atom and mark."""
    taken = max([len(made.rstrip()), *(a.end for a in atoms[-1:]), *(max(m.start, m.end) for m in marks)])
    return made[taken:]


def put_back(text: str, placed: Sequence[tuple[int, int, Mark]]) -> str:
    """Return a text with marks at these characters (start, end), given outer before inner; the tags of the result are nested."""
    tree: list[_Node] = []
    path: list[_Node] = []  # the pairs around the next mark
    for start, end, mark in placed:
        while path and path[-1].mark.depth >= mark.depth:
            path.pop()
        node = _Node(start, end, mark, [])
        (path[-1].children if path else tree).append(node)
        if not mark.is_point:
            path.append(node)
    return _emit(text, tree, 0, len(text))


class _Node(NamedTuple):
    """A mark with its place in a text, and the marks between its tags."""

    start: int
    end: int
    mark: Mark
    children: list["_Node"]


def _emit(text: str, nodes: list[_Node], low: int, high: int) -> str:
    """Return the characters from `low` to `high` with marks, which may neither leave this range nor overlap."""
    made, position = "", low
    for node in sorted(nodes, key=lambda node: node.start):
        start, mark = min(max(position, node.start), high), node.mark
        made += text[position:start]
        position = start
        if not mark.is_point:
            position = min(max(start, node.end), high)
            made += mark.open + _emit(text, node.children, start, position) + mark.close
            continue
        if mark.glued:
            made, position = made.rstrip(), position + len(text[position:high]) - len(text[position:high].lstrip())
        space_before = start > 0 and not text[start - 1].isspace()
        space_after = position < len(text) and not text[position].isspace()
        made += f"{mark.spaces[0] * space_before}{mark.open}{mark.spaces[1] * space_after}"
    return made + text[position:high]


class MarkedPart(NamedTuple):
    """A part of a marked text, with what stands around it."""

    marked: MarkedText
    before: str  # tags
    after: str  # tags
    space: str  # white space up to the next part


def _cross(one: tuple[int, int, Mark], other: tuple[int, int, Mark]) -> bool:
    """Return whether one mark begins in parts before another, and ends between its first and its last part."""
    return one[0] < other[0] <= one[1] < other[1]


def cut_marked(marked: MarkedText, ends: Sequence[int]) -> list[MarkedPart]:
    """Cut a marked text; tags around whole parts, or around words of several, stand at the edges of these parts."""
    ranges = list(pairwise([0, *ends]))
    inside: list[list[Mark]] = [[] for _ in ranges]
    outside: list[tuple[int, int, Mark]] = []  # first and last part
    for mark in marked.marks:
        first = max(index for index, (start, _) in enumerate(ranges) if start <= mark.start)
        last = max([first, *(index for index, (start, _) in enumerate(ranges) if start < mark.end)])
        start, end = ranges[first][0], ranges[last][0] + len(marked.text[slice(*ranges[last])].rstrip())
        if mark.is_point or (first == last and (mark.start > start or mark.end < end)):
            inside[first].append(mark)
            continue
        outside.append((first, last, mark))
    while crossing := next((p for p in permutations(range(len(outside)), 2) if _cross(*(outside[i] for i in p))), None):
        first, last = outside[crossing[0]][0], outside[crossing[1]][1]
        for index in crossing:  # both then stand around the parts of both
            outside[index] = (first, last, outside[index][2])
    outside.sort(key=lambda entry: (entry[0], -entry[1]))  # outer before inner
    parts = []
    for index, (start, end) in enumerate(ranges):
        text = marked.text[start:end].rstrip()
        before = "".join(mark.open for first, _, mark in outside if first == index)
        after = "".join(mark.close for _, last, mark in reversed(outside) if last == index)
        part = marked.part(start, start + len(text), inside[index])
        parts.append(MarkedPart(part, before, after, marked.text[start + len(text) : end]))
    return parts
