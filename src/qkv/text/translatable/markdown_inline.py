"""Inline markup of Markdown as protected spans: code, links, emphasis, HTML tags and escapes (CommonMark 0.31, section 6)."""

import re
import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

from qkv.text.protected_text import ProtectedSpan, ProtectedText
from qkv.text.translatable.html_page import VOID

ATTRIBUTES = r"\{(?::|[#.][\w-]|[\w-]+=)[^{}]*\}"  # {#id .class width=50} of Pandoc, {: .class} of Kramdown
_TOKEN = re.compile(
    r"(?P<escape>\\[!-/:-@\[-`{-~])"
    rf"|(?P<code>(?<!`)(`+)(?!`).+?(?<!`)\3(?!`)(?:{ATTRIBUTES})?)"
    r"|(?P<alone><[A-Za-z][A-Za-z0-9+.-]*:[^\s<>]*>|<[\w.+-]+@[\w.-]+>|<!--.*?-->|\[\^[^\]\s]+\]"
    r"|\$\$[^$]+\$\$|\$(?=\S)[^$]*[\\^_{}=][^$]*(?<=\S)\$(?!\d)|\{\{[%<].*?[%>]\}\}"
    rf"|{ATTRIBUTES})"
    r"|(?P<tag><(?P<close>/?)(?P<name>[A-Za-z][\w-]*)(?:\s(?:[^<>\"']|\"[^\"]*\"|'[^']*')*|\s*)(?P<empty>/?)>)"
    r"|(?P<open>!?\[)|(?P<end>\])|(?P<run>\*+|_+|~~)",
    re.DOTALL,
)
_TARGET = re.compile(
    r"(?:\(\s*(?:<[^<>\n]*>|(?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*)(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*\)|\[[^\[\]]+\])"
    rf"(?:{ATTRIBUTES})?|{ATTRIBUTES}"
)
_DEFINITION = re.compile(r"^[ >\t]*\[(?!\^)([^\]]+)\]:", re.MULTILINE)


@dataclass
class _Run:
    """A run of *, _ or ~ that may open or close emphasis."""

    sign: str
    start: int
    end: int
    opens: bool
    closes: bool
    link: int  # start of the innermost link around it


class _Link(NamedTuple):
    start: int  # of the [ or ![
    opening_end: int
    closing: int  # of the ]
    end: int


def reference_names(text: str) -> set[str]:
    """Return the names that link definitions such as [name]: url define."""
    return {" ".join(name.lower().split()) for name in _DEFINITION.findall(text)}


def with_inline_spans(text: str, references: set[str]) -> str:
    """Return a text with its inline markup as protected spans, where it has any."""
    tokens = list(_TOKEN.finditer(text))
    links, shortcuts = _links(text, tokens, references)
    spans = [ProtectedSpan(*found) for found in shortcuts]
    for link in links:
        spans += [ProtectedSpan(link.start, link.opening_end, "open"), ProtectedSpan(link.closing, link.end, "close")]
    covered = [*shortcuts, *((link.closing, link.end) for link in links)]
    tokens = [token for token in tokens if not any(start <= token.start() < end for start, end in covered)]
    for token in tokens:
        if token["escape"] or token["code"] or token["alone"]:
            spans.append(ProtectedSpan(*token.span()))
        elif token["tag"]:
            is_alone = token["empty"] or token["name"].lower() in VOID
            spans.append(ProtectedSpan(*token.span(), "alone" if is_alone else "close" if token["close"] else "open"))
    spans += _emphasis([_run(text, token, links) for token in tokens if token["run"]])
    spans.sort()
    return ProtectedText(text, spans if _is_nested(spans) else [span._replace(kind="alone") for span in spans]) if spans else text


def _is_nested(spans: list[ProtectedSpan]) -> bool:
    depth = 0
    for span in spans:
        depth += (span.kind == "open") - (span.kind == "close")
        if depth < 0:
            return False
    return depth == 0


def _links(text: str, tokens: list[re.Match[str]], references: set[str]) -> tuple[list[_Link], list[tuple[int, int]]]:
    """Return the links, and the extents of [name] and [name][], whose text is the name of a definition."""
    links: list[_Link] = []
    shortcuts: list[tuple[int, int]] = []
    opened: list[re.Match[str]] = []
    for token in tokens:
        if any(link.closing <= token.start() < link.end for link in links):  # inside a target
            continue
        if token["open"]:
            opened.append(token)
        elif token["end"] and opened:
            start = opened.pop()
            name = " ".join(text[start.end() : token.start()].lower().split())
            if target := _TARGET.match(text, token.end()):
                links.append(_Link(start.start(), start.end(), token.start(), target.end()))
            elif name in references:
                end = token.end() + 2 * text.startswith("[]", token.end())
                shortcuts.append((start.start(), end))
    return links, shortcuts


def _run(text: str, token: re.Match[str], links: list[_Link]) -> _Run:
    before = text[token.start() - 1] if token.start() else " "
    after = text[token.end()] if token.end() < len(text) else " "
    opens = not after.isspace() and (not _is_punctuation(after) or before.isspace() or _is_punctuation(before))
    closes = not before.isspace() and (not _is_punctuation(before) or after.isspace() or _is_punctuation(after))
    if token[0][0] == "_":  # not inside a word
        opens, closes = opens and (not closes or _is_punctuation(before)), closes and (not opens or _is_punctuation(after))
    link = max((link.start for link in links if link.start < token.start() < link.closing), default=-1)
    return _Run(token[0][0], token.start(), token.end(), opens, closes, link)


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS"


def _emphasis(runs: list[_Run]) -> list[ProtectedSpan]:
    """Return the spans of delimiters that make emphasis, paired as CommonMark does it."""
    spans: list[ProtectedSpan] = []
    opened: list[_Run] = []
    for run in runs:
        while run.closes and run.start < run.end:
            partner = next((other for other in reversed(opened) if (other.sign, other.link) == (run.sign, run.link)), None)
            if partner is None:
                break
            size = 2 if min(partner.end - partner.start, run.end - run.start) >= 2 else 1
            del opened[opened.index(partner) + 1 :]
            spans.append(ProtectedSpan(partner.end - size, partner.end, "open"))
            spans.append(ProtectedSpan(run.start, run.start + size, "close"))
            partner.end -= size
            run.start += size
            if partner.start == partner.end:
                opened.pop()
        if run.opens and run.start < run.end:
            opened.append(run)
    return spans
