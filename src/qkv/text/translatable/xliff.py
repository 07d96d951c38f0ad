"""XLIFF 1.2 and 2: what is untranslated gets a target, in a state that asks for review (OASIS, xliff-core 1.2 and 2.1)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from qkv.base.errors import DataError
from qkv.text.pair import SideNames, same_language
from qkv.text.tmx_xliff import UNTRANSLATED
from qkv.text.translatable.file import Edit, FileText, Segment, TranslatableFile
from qkv.text.translatable.inline import SpanKind
from qkv.text.translatable.xml import XmlElement, XmlText, parse_xml

# Inline elements of 1.2 whose content is code of the original document; in 2, code stands in attributes and <data>.
CODES: dict[str, SpanKind] = {"ph": "alone", "it": "alone", "ut": "alone", "x": "alone", "bpt": "open", "ept": "close"}
REVIEW = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}  # of a target in 1.2
TRANSLATED = {"state": "translated", "subState": "qkv:machine-translation"}  # of a segment in 2


def parse(path: Path, content: bytes, languages: SideNames = None) -> TranslatableFile:
    """Parse an XLIFF file; `languages` are those of the translator, which must be the file's."""
    source, root = parse_xml(path, content)
    if root.name != "xliff":
        raise DataError(f"{path}: not XLIFF; its root element is <{root.name}>")
    version = root.attributes.get("version", "")
    if version[:1] not in ("1", "2"):
        raise DataError(f"{path}: XLIFF of version {version or '?'}; 1.2 and 2 can be read")
    is_first = version[0] == "1"
    owners = list(root.descendants({"file"})) if is_first else [root]
    names = ("source-language", "target-language") if is_first else ("srcLang", "trgLang")
    edits = []
    for owner in owners:
        declared = [owner.attributes.get(name, "") for name in names]
        for has, wanted in zip(declared, languages or (), strict=False):
            if has and not same_language(has, wanted):
                raise DataError(
                    f"{path}: is {declared[0]} -> {declared[1] or '?'}, not {' -> '.join(languages or ())}; "
                    "choose a model of these languages",
                    "or say --set languages=[...]",
                )
        if languages and not declared[1]:
            edits.append(owner.with_attribute(names[1], languages[1]))
    units = root.descendants({"trans-unit"} if is_first else {"segment"})
    segments = [found for unit in units for found in _segments(source, unit, is_first)]
    return TranslatableFile(source, segments, edits, encoding_errors="xmlcharrefreplace")


def _segments(source: FileText, unit: XmlElement, is_first: bool) -> Iterator[Segment]:
    originals, targets = unit.children("source"), unit.children("target")
    if not originals or unit.inherited("translate") == "no":
        return
    last = (unit.children("seg-source") or originals)[0]  # seg-source has the same text, with marks around its segments
    text = XmlText(source, last, CODES)
    if not text.text.strip():
        return
    target = targets[0] if targets else None
    existing = XmlText(source, target, CODES).text if target else None
    state = (unit if not is_first else target or unit).attributes.get("state", "")
    line = source.line(originals[0].tag.start)

    def write(translations: Sequence[str]) -> Iterator[Edit]:
        content = text.content(translations[0])
        if not is_first:
            yield from (unit.with_attribute(name, value) for name, value in TRANSLATED.items())
        elif unit.attributes.get("approved") == "yes":
            yield unit.with_attribute("approved", "no")
        if target is not None:
            yield target.with_content(content)
            if is_first:
                yield from (target.with_attribute(name, value) for name, value in REVIEW.items())
        else:
            indent = source.indent(originals[0].tag.start)
            name = originals[0].raw_name.replace("source", "target")
            marks = "".join(f' {key}="{value}"' for key, value in REVIEW.items()) if is_first else ""
            yield Edit(last.end, last.end, (f"{indent}<{name}{marks}>", *content, f"</{name}>"))

    translated = bool(existing and existing.strip()) and state not in UNTRANSLATED
    yield Segment((text.text,), line, write, None if existing is None else (existing,), translated)
