"""Texts with spans that a translation must carry over unchanged: placeholders, tags, addresses, code."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from qkv.base.errors import ConfigError

# Full-width signs and scripts without spaces end an address, since text in them follows without a space.
_ADDRESS = r"[^\s<>\"()\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]"
_URL = rf"(?:{_ADDRESS}|\({_ADDRESS}*\))*(?:(?={_ADDRESS})[\w/}}=#&~-]|\({_ADDRESS}*\))"  # parentheses in it are balanced
_VALUE = r"(?:[^\s<>\"']|\"[^\"]{0,400}\"|'[^']{0,400}'){1,400}"
_BARE = (  # attributes without a value; other words could be text: i<b and c>d
    r"(?:allowfullscreen|async|autofocus|autoplay|checked|controls|defer|disabled|download|hidden|loop|multiple|muted|nowrap|open"
    r"|readonly|required|reversed|selected|[\w@:#*]{0,60}[-@:#*{%$][^\s<>\"'=]{0,60})(?=[\s/>])"
)
_ATTRIBUTE = rf"\s+(?:[^\s<>\"'=/]{{1,60}}\s*=\s*{_VALUE}|{_BARE})"
_BRANCHES = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]{0,400}\}){0,2000}\}){0,2000}"  # of a message in ICU's format
# Runs are bounded or begin at their first character, so that time stays linear in the length of a text.
PATTERNS = "|".join(
    [
        rf"(?:https?|ftp)://{_URL}|(?<![A-Za-z0-9])www\.{_URL}",
        r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]++@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
        r"<!--.{0,400}?-->|<%.{0,200}?%>",
        rf"</?[A-Za-z][\w:.-]{{0,60}}(?:{_ATTRIBUTE}){{0,40}}\s{{0,40}}/?>|</?\d+/?>",  # <0> is i18next's
        r"\{\{.{0,200}?\}\}|\{%.{0,200}?%\}|[$%#]?\{ {0,2}[\w.:!@$\[\]-]{0,100} {0,2}\}|\$\([A-Za-z_]\w{0,100}\)",
        r"\{[\w.\[\]]{0,100}(?:![rsa])?:[^\s{}]{0,60}\}|\{\d{1,3},-?\d{1,3}(?::[^{}]{0,60})?\}",  # formats of Python and .NET
        r"\{\s?\w{1,100},\s?(?:number|date|time|ordinal|spellout|duration)\s?(?:,[^{}]{0,100})?\}",  # ICU
        rf"\{{\s?\w{{1,100}},\s?(?:plural|select|selectordinal)\s?,{_BRANCHES}\}}",
        r"%\(\w{1,100}\)[-+#0]*\d*(?:\.\d+)?[A-Za-z]",
        r"(?<![\d%])%(?:\d+\$)?[-+#0]*(?:\d+|\*)?(?:\.\d+)?(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGcsSpn@]|%%",  # printf
        r"(?<![\d%])(?<!\d\s)%[1-9]\d?%(?![\w%])",  # Boost, and a number of Qt with its percent sign
        r"(?<![\d%])(?<!\d\s)%L?[1-9](?![\w%]|[.,]\d)",  # Qt
        r"\$[A-Za-z_]\w*",
        r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});",
    ]
)
_HINT = re.compile(r"[{%$&<@]|://|www\.")  # a text without any of these has no match, which is found out ten times faster
_TAG = re.compile(r"<(/?)([\w:.-]+)(?:\s(?:[^<>\"']|\"[^\"]*\"|'[^']*')*?)?(/?)>")

_PLACEHOLDERS = re.compile(PATTERNS)


class ProtectedSpan(NamedTuple):
    """Characters of a text that are carried over unchanged, exactly once."""

    start: int
    end: int
    kind: Literal["alone", "open", "close"] = "alone"  # open and close are tags around words, in pairs


class ProtectedText(str):
    """A text whose reader knows spans to protect that patterns would not recognise, in order and without overlap."""

    spans: tuple[ProtectedSpan, ...]

    def __new__(cls, text: str, spans: Sequence[ProtectedSpan]) -> "ProtectedText":
        made = super().__new__(cls, text)
        made.spans = tuple(spans)
        return made


@lru_cache(maxsize=64)
def compile_patterns(expressions: tuple[str, ...] = ()) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of spans to protect: the given regular expressions, and those of placeholders, tags and addresses."""
    compiled = []
    for expression in expressions:
        try:
            compiled.append(re.compile(expression))
        except (re.error, TypeError) as error:
            raise ConfigError(f"protect: {expression!r} is not a valid regular expression: {error}") from None
    return (*compiled, _PLACEHOLDERS)


def find_spans(text: str, patterns: Iterable[re.Pattern[str]]) -> list[ProtectedSpan]:
    """Return the spans of a text to protect: those that it brings, then those of earlier patterns before later ones.

    Tags that belong together are open and close; a tag without its other half is alone.
    """
    given = text.spans if isinstance(text, ProtectedText) else ()
    spans: list[tuple[ProtectedSpan, str | None]] = [(span, None) for span in given]
    for pattern in patterns:
        if pattern is _PLACEHOLDERS and not _HINT.search(text):
            continue
        taken = [span for span, _ in spans]
        for match in pattern.finditer(text):
            if match.end() > match.start() and not any(s.start < match.end() and match.start() < s.end for s in taken):
                spans.append((ProtectedSpan(*match.span(), _kind_of_tag(match[0])), match[0]))
    spans.sort(key=lambda entry: entry[0].start)
    return _pair_tags(spans)


def _kind_of_tag(text: str) -> Literal["alone", "open", "close"]:
    tag = _TAG.fullmatch(text)
    if tag is None or tag[3]:
        return "alone"
    return "close" if tag[1] else "open"


def _pair_tags(spans: list[tuple[ProtectedSpan, str | None]]) -> list[ProtectedSpan]:
    """Keep the kind of tags that come in nested pairs, and make all others stand alone."""
    paired: set[int] = set()
    stack: list[tuple[int, str | None]] = []  # index and name of open tags
    for index, (span, text) in enumerate(spans):
        tag = _TAG.fullmatch(text) if text else None
        name = tag[2] if tag else None  # the tags that a text brings are matched by their order alone
        if span.kind == "open":
            stack.append((index, name))
        elif span.kind == "close":
            depth = next((i for i in reversed(range(len(stack))) if stack[i][1] == name), None)
            if depth is not None:
                paired |= {index, stack[depth][0]}
                del stack[depth:]
    return [span if index in paired else span._replace(kind="alone") for index, (span, _) in enumerate(spans)]


def outside_spans(text: str, spans: Sequence[ProtectedSpan]) -> str:
    """Return the characters of a text that are in none of these spans, which are in order."""
    bounds = [0, *(bound for span in spans for bound in (span.start, span.end)), len(text)]
    return "".join(text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True))


def has_letters(text: str) -> bool:
    """Return whether a text has a letter of any script; one without, such as 42 or ---, needs no translation."""
    return any(char.isalpha() for char in text)


def any_of(spans: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds these spans, the longest first: one address may begin another."""
    return re.compile("|".join(map(re.escape, sorted(set(spans), key=len, reverse=True))))


def keep_spans_apart(text: str, source: str, spans: Iterable[str], patterns: Sequence[re.Pattern[str]]) -> str:
    """Return a translation with spaces beside those of its spans that would otherwise not be found as in the source.

    An address that touches another, or a letter, is found as a longer one.
    """

    def count(text: str) -> Counter[str]:
        return Counter(text[span.start : span.end] for span in find_spans(text, patterns))

    wanted = count(source)
    if count(text) == wanted:
        return text
    edges = sorted({edge for match in any_of(spans).finditer(text) for edge in match.span() if 0 < edge < len(text)})
    edges = [edge for edge in edges if not (text[edge - 1].isspace() or text[edge].isspace())]

    def spaced(edges: list[int]) -> str:
        return " ".join(text[start:end] for start, end in pairwise([0, *edges, len(text)]))

    def wrong(text: str) -> int:
        found = count(text)
        return ((wanted - found) + (found - wanted)).total()

    fewest = wrong(spaced(edges))
    if fewest >= wrong(text):
        return text
    for edge in list(edges):  # only the spaces that are needed
        fewer = [other for other in edges if other != edge]
        edges = fewer if wrong(spaced(fewer)) == fewest else edges
    return spaced(edges)
