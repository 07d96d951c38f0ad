"""Pieces of a text that a translator reads one by one: its lines, without the white space, tags and dashes around them."""

import re
from collections.abc import Sequence
from itertools import accumulate

from qkv.text.protected_text import ProtectedSpan, ProtectedText, find_spans, has_letters, outside_spans

_BREAK = re.compile(r"[ \t]*\r?\n\s*")
_BULLET = re.compile(r"[-–—•]\s+")  # of a list, or of a speaker in a dialogue
LONG_LINE = 40  # characters from which a line may be broken inside a sentence
_SENTENCE_END = tuple(".!?:;…。！？：；")


class TextPieces:
    """A text cut at line breaks. `join` puts translations of `pieces` in their places, with breaks and white space kept.

    A break inside a sentence of long lines does not cut: the translation is wrapped to the same width instead. A line without
    letters outside of markup, and of what the `patterns` of placeholders match, is no piece and stays as it is.
    """

    def __init__(self, text: str, patterns: Sequence[re.Pattern[str]] = ()):
        self.text = text
        spans = getattr(text, "spans", ())
        self._extents: list[tuple[int, int]] = []
        self.pieces: list[str] = []
        start = 0
        for found in [*_BREAK.finditer(text), None]:
            end, following = found.span() if found else (len(text), len(text))
            if found and (any(span.start < end < span.end for span in spans) or self._is_soft(start, end, following)):
                continue
            extent = self._trimmed(start, end, spans)
            piece = self._piece(*extent)
            if has_letters(outside_spans(piece, find_spans(piece, patterns))):
                self._extents.append(extent)
                self.pieces.append(piece)
            start = following

    def join(self, translations: Sequence[str]) -> str:
        """Return the text with a translation in place of each piece, which neither begins nor ends with white space."""
        parts: list[str] = []
        position = 0
        for (start, end), translation in zip(self._extents, translations, strict=True):
            parts += [self.text[position:start], self._wrapped(self.text[start:end], translation.strip())]
            position = end
        return "".join([*parts, self.text[position:]])

    def _is_soft(self, start: int, end: int, following: int) -> bool:
        """Return whether a break stands inside a sentence."""
        line = self.text[start:end].rpartition("\n")[2]
        return len(line) >= LONG_LINE and not line.endswith(_SENTENCE_END) and self.text[following : following + 1].islower()

    def _trimmed(self, start: int, end: int, spans: Sequence[ProtectedSpan]) -> tuple[int, int]:
        """Leave out white space, tags around the whole, and then the dash of a list or a dialogue."""
        while True:
            line = self.text[start:end]
            start, end = start + len(line) - len(line.lstrip()), start + len(line.rstrip())
            inside = [span for span in spans if start <= span.start < end]
            if not inside or (inside[0].start, inside[-1].end) != (start, end) or not _is_pair(inside):
                break
            start, end = inside[0].end, inside[-1].start
        bullet = _BULLET.match(self.text, start, end)
        return bullet.end() if bullet else start, end

    def _piece(self, start: int, end: int) -> str:
        inside = [span for span in getattr(self.text, "spans", ()) if start <= span.start < end]
        if not inside:
            return self.text[start:end]
        depth, lowest = 0, 0
        for span in inside:
            depth += (span.kind == "open") - (span.kind == "close")
            lowest = min(lowest, depth)
        is_nested = depth == lowest == 0  # else a tag has its partner in another piece
        moved = [ProtectedSpan(s.start - start, s.end - start, s.kind if is_nested else "alone") for s in inside]
        return ProtectedText(self.text[start:end], moved)

    def _wrapped(self, original: str, translation: str) -> str:
        if "\n" not in original or "\n" in translation:
            return translation
        width = max(map(len, original.splitlines()))
        breaks = _BREAK.search(original)
        assert breaks is not None
        lines: list[str] = []
        for word in translation.split(" "):
            if lines and len(lines[-1]) + 1 + len(word) <= width:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        return breaks[0].join(lines)


def _is_pair(spans: Sequence[ProtectedSpan]) -> bool:
    """Return whether the first span is a tag that the last one closes."""
    depths = list(accumulate((span.kind == "open") - (span.kind == "close") for span in spans))
    return depths[-1] == 0 and all(depth > 0 for depth in depths[:-1]) and len(spans) > 1
