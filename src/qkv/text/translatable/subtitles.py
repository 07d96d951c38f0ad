"""Subtitles: SubRip (.srt) and WebVTT (.vtt). The text of each cue is translated; numbers, times and settings stay."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from qkv.base.errors import DataError
from qkv.text.translatable.file import Edit, Extent, FileText, Segment, TranslatableFile, decode
from qkv.text.translatable.inline import InlineText, SpanKind, escape_like

_TIME = r"(?:\d+:)?\d{1,2}:\d{1,2}[.,]\d{1,3}"
_TIMING = re.compile(rf"\ufeff?\s*{_TIME}\s*-->\s*{_TIME}")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<\d[\d:.]*>|\{\\[^{}]*\}")
_SPEAKER = re.compile(r"\s*[-–—]\s*\S")  # begins the line of another speaker
_VOICE = r"\s*<v[.\s][^<>]*>"  # WebVTT's name of a speaker, which holds to the end of the cue where it is not closed
# Codes such as {\an8}, and the dash of a speaker, but not that of a number.
_CODES, _DASH = r"\s*\{\\[^{}]*\}", r"\s*(?:[-–—](?:\s+|(?=[^\d\s.,-])))?"
_BEFORE_TEXT = re.compile(f"(?:{_CODES})*{_DASH}")
_BEFORE_VOICED = re.compile(f"(?:{_CODES}|{_VOICE})*{_DASH}")


def parse(path: Path, content: bytes, is_webvtt: bool) -> TranslatableFile:
    """Parse a subtitle file."""
    source = decode(path, content)
    if is_webvtt and not source.text.removeprefix("\ufeff").startswith("WEBVTT"):
        raise DataError(f"{path}, line 1: not WebVTT; it must begin with WEBVTT")
    segments: list[Segment] = []
    in_cue = False
    for block in _blocks(source):
        lines = [source.text[slice(*line)] for line in block]
        timing = next((number for number, line in enumerate(lines[:2]) if _TIMING.match(line)), None)
        in_cue |= timing is not None
        if timing is not None:
            segments += _cue(source, block[timing + 1 :], is_webvtt)
        elif in_cue and not is_webvtt and not any("->" in line for line in lines[:2]):
            segments += _cue(source, block, is_webvtt)  # after an empty line inside a cue
        elif not is_webvtt:
            raise source.error(block[0].start, f"not SubRip: no times such as 00:00:01,000 --> 00:00:02,000 in {lines[0][:30]!r}")
    return TranslatableFile(source, segments)


def _blocks(source: FileText) -> Iterator[list[Extent]]:
    """Yield the lines of each block, which an empty line ends."""
    block: list[Extent] = []
    for line in source.lines():
        if source.text[slice(*line)].strip("\ufeff \t\r"):
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _cue(source: FileText, lines: list[Extent], is_webvtt: bool) -> Iterator[Segment]:
    """Yield the segment of a cue; of a dialogue, one for each speaker's line."""
    texts = [source.text[slice(*line)] for line in lines]
    if len(lines) > 1 and all(_SPEAKER.match(_TAG.sub("", text)) or re.match(_VOICE, text) for text in texts):
        for line in lines:
            yield _segment(source, [line], is_webvtt)
    elif lines:
        yield _segment(source, lines, is_webvtt)


def _segment(source: FileText, lines: list[Extent], is_webvtt: bool) -> Segment:
    is_closed = "</v>" in source.text[lines[0].start : lines[-1].end]
    before = (_BEFORE_TEXT if is_closed else _BEFORE_VOICED).match(source.text, *lines[0])
    lines = [Extent(before.end() if before else lines[0].start, lines[0].end), *lines[1:]]
    inline = InlineText()
    for number, line in enumerate(lines):
        if number:
            inline.add_text(" ")
        position = line.start
        for tag in _TAG.finditer(source.text, *line):
            inline.add_text(_unescaped(source.text[position : tag.start()], is_webvtt))
            inline.add_code(tag[0], Extent(*tag.span()), _kind(tag[0]))
            position = tag.end()
        inline.add_text(_unescaped(source.text[position : line.end], is_webvtt))
    extent = Extent(lines[0].start, lines[-1].end)
    escape = escape_like(source.text[slice(*extent)]) if is_webvtt else str

    def write(translations: Sequence[str]) -> Iterator[Edit]:
        content = inline.content(translations[0], escape)
        # Tags of one line are short: the edit is one string, which is broken as the cue was.
        joined = "".join(part if isinstance(part, str) else source.text[slice(*part)] for part in content)
        yield Edit(*extent, (source.newline.join(_balanced(joined, len(lines))),))

    return Segment((inline.text,), source.line(extent.start), write, (inline.text,))


def _unescaped(text: str, is_webvtt: bool) -> str:
    references = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&nbsp;": "\u00a0", "&lrm;": "\u200e", "&rlm;": "\u200f"}
    return re.sub("|".join(references), lambda found: references[found[0]], text) if is_webvtt else text


def _kind(tag: str) -> SpanKind:
    if tag.startswith("{") or tag[1].isdigit():
        return "alone"
    return "close" if tag.startswith("</") else "open"


def _balanced(text: str, count: int) -> list[str]:
    """Break a text at spaces into lines of about the same length; spaces inside tags do not count."""
    words = re.findall(r"(?:<[^<>]*>|\{[^{}]*\}|\S)+", text)
    if count < 2 or len(words) < count:
        return [text]
    lines: list[str] = []
    rest = len(_TAG.sub("", text))
    for number in range(count, 1, -1):
        taken: list[str] = []
        size, wanted = 0, rest / number
        while len(words) > number - 1 and (not taken or size + len(_TAG.sub("", words[0])) / 2 <= wanted):
            taken.append(words.pop(0))
            size += len(_TAG.sub("", taken[-1])) + 1
        lines.append(" ".join(taken))
        rest -= size
    return [*lines, " ".join(words)]
