"""gettext PO files: what is untranslated is filled in and marked fuzzy; comments, order and wrapping stay.

The format is described in the manual of gettext, section "The Format of PO Files".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qkv.base.errors import DataError
from qkv.text.message_catalogues import declared_encoding, unescape_po
from qkv.text.pair import same_language
from qkv.text.translatable.file import Edit, Extent, FileText, Segment, TranslatableFile, decode
from qkv.text.translatable.plural_forms import PluralRule, plural_rule

WIDTH = 79  # of a line, as gettext's own tools wrap
_KEYWORD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr(?:\[(\d+)\])?)[ \t]*(?=\")")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_COUNT = re.compile(r"%\(?\w|\{|\d")  # signs of a message that names its count
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"}


@dataclass
class _Message:
    """An entry of a PO file."""

    line: int = 0
    first: int = -1  # where its keywords begin
    flags: Extent | None = None  # what follows "#," in its line of flags
    texts: dict[str, str] = field(default_factory=dict)  # by keyword
    strings: dict[str, Extent] = field(default_factory=dict)  # from the first quote to the last
    keywords: dict[str, int] = field(default_factory=dict)  # where each keyword begins
    fuzzy: bool = False

    def forms(self) -> dict[str, str]:
        """Return the translations by keyword."""
        return {keyword: text for keyword, text in self.texts.items() if keyword.startswith("msgstr")}


def parse(path: Path, content: bytes, language: str = "") -> TranslatableFile:
    """Parse a PO file; `language` is the target language where the header does not say."""
    source = decode(path, content, declared_encoding(content[:8192]))
    messages = list(_messages(source))
    if not messages:
        raise DataError(f"{path}: no messages in it; is it a gettext PO file?")
    header = next((m for m in messages if m.texts["msgid"] == "" and "msgctxt" not in m.texts and "msgstr" in m.texts), None)
    text = header.texts.get("msgstr", "") if header else ""
    declared = _field(text, "Language")
    if declared and language and not same_language(declared, language):
        raise DataError(
            f"{path}: its language is {declared}, and the run translates to {language}; give the run of this language"
        )
    rule = _declared_rule(path, text) or plural_rule(declared or language)
    has_plurals = any("msgid_plural" in message.texts for message in messages)
    if has_plurals and rule is None:
        raise DataError(f"{path}: plural forms of which language? its header has no Language; say --set languages=[en,de]")
    writer = _Writer(source)
    segments = []
    for message in messages:
        if message.texts["msgid"]:
            plural = "msgid_plural" in message.texts and rule
            segments.append(writer.plural(message, plural) if plural else writer.singular(message))
    edits = list(_header_edits(source, header, language, rule if has_plurals else None)) if header else []
    charset = None if source.encoding.startswith("utf") else re.search(r"charset=([\w.:-]+)", source.text)
    return TranslatableFile(source, segments, edits, charset=Extent(*charset.span(1)) if charset else None)


class _Writer:
    """Makes segments of messages, in the style of a file."""

    def __init__(self, source: FileText):
        self.source = source
        longest = max((end - start for start, end in source.lines() if source.text[start : start + 1] in '"m'), default=0)
        self.width = WIDTH if longest <= WIDTH + 1 else 0  # 0 if its lines are not wrapped

    def singular(self, message: _Message) -> Segment:
        """Return the segment of a message without a plural."""
        existing = message.texts["msgstr"]

        def write(translations: Sequence[str]) -> Iterator[Edit]:
            yield self._string(message, "msgstr", translations[0])
            yield from self._fuzzy(message)

        return Segment((message.texts["msgid"],), message.line, write, (existing,), bool(existing) or message.fuzzy)

    def plural(self, message: _Message, rule: PluralRule) -> Segment:
        """Return the segment of a message with a plural, whose translations fill the forms of the target language."""
        one, many = message.texts["msgid"], message.texts["msgid_plural"]
        singular = rule.singular_forms(bool(_COUNT.search(one)))
        wanted = {f"msgstr[{index}]": int(index not in singular) for index in range(rule.forms)}
        texts = (one, many) if singular else (many,)
        forms = message.forms()

        def write(translations: Sequence[str]) -> Iterator[Edit]:
            end = max(extent.end for keyword, extent in message.strings.items() if keyword in forms)
            for keyword, number in wanted.items():
                text = translations[min(number, len(translations) - 1)]
                if keyword in forms:
                    yield self._string(message, keyword, text)
                else:
                    yield Edit(end, end, (f"{self.source.newline}{keyword} {self._quoted(keyword, text)}",))
            for keyword in forms:
                if keyword not in wanted:  # a template has two forms, whatever the language
                    start = self.source.text.rindex("\n", 0, message.keywords[keyword])
                    start -= self.source.text[start - 1] == "\r"
                    yield Edit(start, message.strings[keyword].end, ())
            yield from self._fuzzy(message)

        existing = None
        if forms.keys() == wanted.keys():
            found = {wanted[keyword]: text for keyword, text in forms.items()}
            if all(found[wanted[keyword]] == text for keyword, text in forms.items()):
                existing = tuple(found[number] for number in sorted(found))
        return Segment(texts, message.line, write, existing, any(forms.values()) or message.fuzzy)

    def _string(self, message: _Message, keyword: str, text: str) -> Edit:
        return Edit(*message.strings[keyword], (self._quoted(keyword, text),))

    def _quoted(self, keyword: str, text: str) -> str:
        """Return a text as string literals, wrapped as gettext does it: after \\n, and at spaces."""
        ends = re.findall(r"[^\n]*\n|[^\n]+", text) or [""]
        lines = ["".join(_ESCAPES.get(char, char) for char in line) for line in ends]
        if len(lines) == 1 and (not self.width or len(keyword) + 3 + len(lines[0]) <= self.width):
            return f'"{lines[0]}"'
        if self.width:
            lines = [part for line in lines for part in _wrapped(line, self.width - 2)]
        return self.source.newline.join(['""', *(f'"{line}"' for line in lines)])

    def _fuzzy(self, message: _Message) -> Iterator[Edit]:
        if message.fuzzy:
            return
        if message.flags:
            yield Edit(message.flags.start, message.flags.start, (" fuzzy,",))
        else:
            yield Edit(message.first, message.first, (f"#, fuzzy{self.source.newline}",))


def _wrapped(line: str, width: int) -> Iterator[str]:
    """Yield parts of a line that end in spaces and are no longer than the width, where that can be."""
    part = ""
    for word in re.findall(r"\S*\s*", line):
        if part and len(part) + len(word.rstrip()) > width:
            yield part
            part = ""
        part += word
    if part:
        yield part


def _messages(source: FileText) -> Iterator[_Message]:
    """Yield the messages of a file, header included, without obsolete ones."""
    message, last = _Message(), ""
    for start, end in source.lines():
        line = source.text[start:end].lstrip("\ufeff")
        start = end - len(line)
        start += len(line) - len(line.lstrip())
        line = line.strip()
        if last.startswith("msgstr") and line.startswith(("#", "msgctxt", "msgid")) and not line.startswith("msgid_plural"):
            yield _complete(source, message)
            message, last = _Message(), ""
        if line.startswith("#~"):
            message, last = _Message(), ""
        elif line.startswith("#,"):
            message.flags = message.flags or Extent(start + 2, end)
            message.fuzzy |= "fuzzy" in re.split(r"[\s,#]+", line)
        elif line and not line.startswith("#"):
            last = _read_line(source, message, Extent(start, start + len(line)), last)
    if message.texts:
        yield _complete(source, message)


def _read_line(source: FileText, message: _Message, at: Extent, last: str) -> str:
    """Read a keyword with its string, or a string that continues the last one; return the keyword."""
    position = at.start
    if keyword := _KEYWORD.match(source.text, at.start, at.end):
        last, position = keyword[1], keyword.end()
        if last in message.texts:
            raise source.error(at.start, f"{last} occurs twice in one message; an empty line or a msgstr is missing")
        message.line = message.line or source.line(at.start)
        message.first = at.start if message.first < 0 else message.first
        message.keywords[last] = at.start
    string = _STRING.fullmatch(source.text, position, at.end)
    if not string or not last:
        raise source.error(at.start, f"not gettext PO: {source.text[at.start : at.end][:40]!r}")
    message.texts[last] = message.texts.get(last, "") + unescape_po(string[1])
    message.strings[last] = Extent(message.strings[last].start if last in message.strings else position, at.end)
    return last


def _complete(source: FileText, message: _Message) -> _Message:
    """Return a message that has all its parts; refuse one that lacks some."""
    wanted = "msgstr[0]" if "msgid_plural" in message.texts else "msgstr"
    if "msgid" not in message.texts or wanted not in message.texts:
        missing = wanted if "msgid" in message.texts else "msgid"
        raise source.error(message.first, f"not gettext PO: a message has no {missing}")
    return message


def _field(header: str, name: str) -> str:
    found = re.search(rf"^{name}:[ \t]*(.*)$", header, re.MULTILINE)
    return found[1].strip() if found else ""


def _declared_rule(path: Path, header: str) -> PluralRule | None:
    declared = _field(header, "Plural-Forms")
    if not declared or "EXPRESSION" in declared:
        return None
    try:
        return PluralRule(declared)
    except (ValueError, ArithmeticError) as error:
        raise DataError(f"{path}: Plural-Forms cannot be read: {error}; see the manual of gettext") from None


def _header_edits(source: FileText, header: _Message, language: str, rule: PluralRule | None) -> Iterator[Edit]:
    """Yield edits that set the header's language, plural forms and encoding where they are missing or placeholders."""
    extent = header.strings["msgstr"]
    raw = source.text[slice(*extent)]
    if found := re.search(r"charset=CHARSET", raw):
        yield Edit(extent.start + found.start(), extent.start + found.end(), ("charset=UTF-8",))
    for name, value, placeholder in (
        ("Language", language.replace("-", "_"), ""),
        ("Plural-Forms", rule.field if rule else "", "EXPRESSION"),
    ):
        found = re.search(rf'"{name}:[ \t]*(.*?)\\n"', raw)
        declared = _field(header.texts["msgstr"], name)
        if not value or (declared and (not placeholder or placeholder not in declared)):
            continue
        line = f'"{name}: {value}\\n"'
        if found:
            yield Edit(extent.start + found.start(), extent.start + found.end(), (line,))
        else:
            yield Edit(extent.end, extent.end, (source.newline + line,))
