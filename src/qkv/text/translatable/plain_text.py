"""Plain text, one segment a line; empty lines and white space at the ends of lines stay."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from qkv.text.translatable.file import Edit, Extent, FileText, Segment, TranslatableFile, decode


def parse(path: Path, content: bytes) -> TranslatableFile:
    """Parse a text file."""
    source = decode(path, content)
    return TranslatableFile(
        source, [_segment(source, line) for line in source.lines() if source.text[slice(*line)].strip("\ufeff \t")]
    )


def _segment(source: FileText, line: Extent) -> Segment:
    start = line.start + (source.text[line.start] == "\ufeff")
    text = source.text[start : line.end]

    def write(translations: Sequence[str]) -> Iterator[Edit]:
        yield Edit(start, line.end, (translations[0],))

    return Segment((text,), source.line(start), write, (text,))
