"""JSON catalogues, nested or flat (i18next), and ARB: texts are replaced by their translations; keys, codes and layout stay."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from qkv.base.errors import DataError
from qkv.text.protected_text import ProtectedSpan, ProtectedText, compile_patterns, find_spans, has_letters, outside_spans
from qkv.text.translatable.file import Edit, Extent, FileText, Segment, TranslatableFile, decode
from qkv.text.translatable.icu import QUOTED, without_new_quotes

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_NESTING = re.compile(r"\$t\([^)]*\)")  # i18next: the text of another key
_CODE = re.compile(r"[/:_.#\d]|[a-z][A-Z]")  # a sign of an identifier, path, colour or address


def parse(path: Path, content: bytes, language: str = "") -> TranslatableFile:
    """Parse a JSON catalogue or an ARB file; `language` is the target language, which `@@locale` gets."""
    source = decode(path, content)
    try:
        catalogue = json.loads(source.text.removeprefix("\ufeff"))
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise DataError(f"{path}, line {getattr(error, 'lineno', 1)}: not valid JSON: {reason}") from None
    except RecursionError:
        raise DataError(f"{path}: is nested too deeply") from None
    if not isinstance(catalogue, dict | list):
        raise DataError(f"{path}: no catalogue; an object with keys and texts is wanted")
    metadata = metadata_keys(catalogue)
    segments: list[Segment] = []
    edits: list[Edit] = []
    codes = 0
    for key, extent in _strings(source):
        if key == ("@@locale",) and language:
            edits.append(Edit(*extent, (json.dumps(language),)))
        elif key[0] not in metadata and (text := json.loads(source.text[slice(*extent)])).strip():
            if _is_code(text):
                codes += 1
            else:
                segments.append(_segment(source, extent, text))
    return TranslatableFile(source, segments, edits, codes=codes)


def _is_code(text: str) -> bool:
    """Return whether a value is an identifier, a path, a colour or an address: one word of ASCII that shows it, or no word."""
    if not text.isascii() or len(text.split()) != 1:
        return False
    word = outside_spans(text, find_spans(text, compile_patterns()))
    # Full stops and colons at the end are those of a text.
    return not has_letters(word) or _CODE.search(word.rstrip(".: \n")) is not None


def metadata_keys(catalogue: Any) -> set[str]:
    """Return the top keys by which ARB describes itself (@@locale) and a message (@title beside title)."""
    keys = list(catalogue) if isinstance(catalogue, dict) else []
    is_arb = any(key.startswith("@@") for key in keys)
    return {key for key in keys if key.startswith("@") and (is_arb or key[1:] in catalogue)}


def _strings(source: FileText) -> Iterator[tuple[tuple[str, ...], Extent]]:
    """Yield the path of keys and the extent of each string value, quotes included."""
    path: list[str] = []  # keys of the objects, and "" for arrays, around the token
    nesting: list[str] = []
    is_key = False
    for token in _TOKEN.finditer(source.text):
        sign = token[0]
        if sign in "{[":
            nesting.append(sign)
            path.append("")
            is_key = sign == "{"
        elif sign in "}]":
            nesting.pop()
            path.pop()
        elif sign == ",":
            is_key = nesting[-1] == "{"
        elif sign == ":":
            is_key = False
        elif sign.startswith('"') and is_key:
            path[-1] = json.loads(sign)
        elif sign.startswith('"'):
            yield tuple(path), Extent(*token.span())


def _segment(source: FileText, extent: Extent, text: str) -> Segment:
    raw = source.text[slice(*extent)]
    is_ascii = source.text.isascii() and "\\u" in source.text

    def write(translations: Sequence[str]) -> Iterator[Edit]:
        written = json.dumps(without_new_quotes(translations[0], text), ensure_ascii=is_ascii)
        yield Edit(*extent, (written.replace("/", "\\/") if "\\/" in raw else written,))

    spans = [ProtectedSpan(*found.span()) for found in re.finditer(f"{_NESTING.pattern}|{QUOTED.pattern}", text)]
    return Segment((ProtectedText(text, spans) if spans else text,), source.line(extent.start), write, (text,))
