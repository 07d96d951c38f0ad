"""TMX 1.4: each unit without the target language gets a variant of it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from qkv.base.errors import DataError
from qkv.text.pair import SideNames, match_language, same_language
from qkv.text.translatable.file import Edit, FileText, Segment, TranslatableFile
from qkv.text.translatable.inline import SpanKind
from qkv.text.translatable.xml import XmlElement, XmlText, parse_xml

CODES: dict[str, SpanKind] = {"ph": "alone", "it": "alone", "ut": "alone", "bpt": "open", "ept": "close"}


def parse(path: Path, content: bytes, languages: SideNames = None) -> TranslatableFile:
    """Parse a TMX file; `languages` are those of the translator."""
    source, root = parse_xml(path, content)
    if root.name != "tmx":
        raise DataError(f"{path}: not TMX; its root element is <{root.name}>")
    if languages is None:
        wanted = "which languages? the model does not name its own; choose one that does"
        raise DataError(f"{path}: {wanted}", "or say --set languages=[en,de]")
    units = [[variant for variant in unit.children("tuv") if variant.children("seg")] for unit in root.descendants({"tu"})]
    found = dict.fromkeys(_language(variant) for variants in units for variant in variants)
    tags = [tag for tag in found if tag and same_language(tag, languages[1])]
    language = tags[0] if len(tags) == 1 else languages[1]  # of new variants, as the file writes it: de-DE for de
    segments: list[Segment] = []
    for variants in units:
        original = _variant(variants, languages[0])
        if original is not None:
            segments.append(_segment(source, original, _variant(variants, languages[1]), variants[-1], language))
    if found and not segments:
        has = ", ".join(found)[:200]
        raise DataError(f"{path}: no unit has a text in {languages[0]}; it has {has}; choose a model of these languages")
    return TranslatableFile(source, segments, encoding_errors="xmlcharrefreplace")


def _language(variant: XmlElement) -> str:
    return variant.attributes.get("xml:lang") or variant.attributes.get("lang") or ""


def _variant(variants: list[XmlElement], language: str) -> XmlElement | None:
    """Return the first variant in a language."""
    tag = match_language(map(_language, variants), language)
    return next((variant for variant in variants if _language(variant) == tag), None)


def _segment(source: FileText, original: XmlElement, target: XmlElement | None, last: XmlElement, language: str) -> Segment:
    text = XmlText(source, original.children("seg")[0], CODES)
    existing = XmlText(source, target.children("seg")[0], CODES).text if target else None

    def write(translations: Sequence[str]) -> Iterator[Edit]:
        content = text.content(translations[0])
        if target is not None:
            yield target.children("seg")[0].with_content(content)
            return
        indent = source.indent(original.tag.start)
        name = "xml:lang" if "xml:lang" in original.attributes else "lang"
        yield Edit(last.end, last.end, (f'{indent}<tuv {name}="{language}"><seg>', *content, "</seg></tuv>"))

    line = source.line(original.tag.start)
    return Segment((text.text,), line, write, None if existing is None else (existing,), bool(existing and existing.strip()))
