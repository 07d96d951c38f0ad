"""Files of people's formats as segments to translate, written back with everything else byte for byte the same."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from qkv.base.errors import ConfigError, DataError
from qkv.text.pair import SideNames
from qkv.text.translatable import docx, html_page, json_catalogue, markdown, plain_text, po, subtitles, table, tmx, xliff
from qkv.text.translatable.file import TranslatableFile
from qkv.text.translatable.icu import with_icu_branches


class NothingToTranslate(DataError):
    """A file has no text, or none that needs a translation."""


class ReadOptions(NamedTuple):
    """Languages and columns, which a reader may need beside the file."""

    languages: SideNames = None  # of the translator
    columns: SideNames = None  # of a table

    @property
    def target(self) -> str:
        """The target language; "" if it is not known."""
        return self.languages[1] if self.languages else ""


FORMATS: dict[str, Callable[[Path, bytes, ReadOptions], TranslatableFile]] = {
    "po": lambda path, content, options: po.parse(path, content, options.target),
    "xliff": lambda path, content, options: xliff.parse(path, content, options.languages),
    "tmx": lambda path, content, options: tmx.parse(path, content, options.languages),
    "json": lambda path, content, options: json_catalogue.parse(path, content, options.target),
    "csv": lambda path, content, options: table.parse(path, content, ",", options.columns, options.languages),
    "tsv": lambda path, content, options: table.parse(path, content, "\t", options.columns, options.languages),
    "srt": lambda path, content, _: subtitles.parse(path, content, is_webvtt=False),
    "vtt": lambda path, content, _: subtitles.parse(path, content, is_webvtt=True),
    "html": lambda path, content, options: html_page.parse(path, content, options.target),
    "markdown": lambda path, content, _: markdown.parse(path, content),
    "docx": lambda path, content, _: docx.parse(path, content),
    "text": lambda path, content, _: plain_text.parse(path, content),
}
SUFFIXES = {
    ".po": "po",
    ".pot": "po",
    ".xlf": "xliff",
    ".xliff": "xliff",
    ".tmx": "tmx",
    ".json": "json",
    ".arb": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".srt": "srt",
    ".vtt": "vtt",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".docx": "docx",
    ".txt": "text",
}


def format_of(path: Path) -> str | None:
    """Return the format that the suffix of a file shows; None if it shows none."""
    return SUFFIXES.get(path.suffix.lower())


def read_translatable(path: Path, file_format: str | None = None, options: ReadOptions | None = None) -> TranslatableFile:
    """Parse a file in a format of `FORMATS`, by default the one that its suffix shows."""
    chosen = file_format or format_of(path)
    if chosen is None:
        raise ConfigError(f"{path}: cannot tell the format from the suffix; give --format {'|'.join(FORMATS)}")
    if chosen not in FORMATS:
        raise ConfigError(f"no format {chosen!r}; known are {', '.join(FORMATS)}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    return parse_translatable(path, content, chosen, options or ReadOptions())


def parse_translatable(path: Path, content: bytes, file_format: str, options: ReadOptions) -> TranslatableFile:
    """Parse the content of a file; messages name its path."""
    if not content.strip():
        raise NothingToTranslate(f"{path}: is empty; nothing to translate")
    parsed = FORMATS[file_format](path, content, options)
    if not parsed.segments:
        raise NothingToTranslate(f"{path}: no text to translate in it, read as {file_format}")
    return replace(parsed, segments=[with_icu_branches(segment) for segment in parsed.segments])
