"""gettext PO files: what is untranslated is filled in and marked fuzzy; comments, order and wrapping stay."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from qkv.base.errors import DataError
from qkv.text.pair import same_language
from qkv.text.translatable.file import Edit, Extent, FileText, Segment, TranslatableFile, decode
from qkv.text.translatable.plural_forms import PluralRule, plural_rule
from qkv.text.translatable.po_messages import PoMessage, declared_encoding, read_messages

WIDTH = 79  # of a line, as gettext's own tools wrap
_COUNT = re.compile(r"%\(?\w|\{|\d")  # signs of a message that names its count
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"}


def parse(path: Path, content: bytes, language: str = "") -> TranslatableFile:
    """Parse a PO file; `language` is the target language where the header does not say."""
    source = decode(path, content, declared_encoding(content[:8192]))
    messages = [_complete(source, message) for message in read_messages(source)]
    if not messages:
        raise DataError(f"{path}: no messages in it; is it a gettext PO file?")
    header = next((m for m in messages if m.texts["msgid"] == "" and "msgctxt" not in m.texts and "msgstr" in m.texts), None)
    text = header.texts.get("msgstr", "") if header else ""
    declared = _field(text, "Language")
    if declared and language and not same_language(declared, language):
        raise DataError(f"{path}: its language is {declared}, not {language}; choose a model that translates to {declared}")
    rule = _declared_rule(path, text) or plural_rule(declared or language)
    has_plurals = any("msgid_plural" in message.texts for message in messages)
    if has_plurals and rule is None:
        wanted = "plural forms of which language? name it in the field Language of its header"
        raise DataError(f"{path}: {wanted}", "or say --set languages=[en,de]")
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

    def singular(self, message: PoMessage) -> Segment:
        """Return the segment of a message without a plural."""
        existing = message.texts["msgstr"]

        def write(translations: Sequence[str]) -> Iterator[Edit]:
            yield self._string(message, "msgstr", translations[0])
            yield from self._fuzzy(message)

        return Segment((message.texts["msgid"],), message.line, write, (existing,), bool(existing) or message.fuzzy)

    def plural(self, message: PoMessage, rule: PluralRule) -> Segment:
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

    def _string(self, message: PoMessage, keyword: str, text: str) -> Edit:
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

    def _fuzzy(self, message: PoMessage) -> Iterator[Edit]:
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


def _complete(source: FileText, message: PoMessage) -> PoMessage:
    """Return a message that has all its parts; refuse one that lacks some, or that gettext would not read."""
    if message.problem is not None:
        raise message.problem
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


def _header_edits(source: FileText, header: PoMessage, language: str, rule: PluralRule | None) -> Iterator[Edit]:
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
