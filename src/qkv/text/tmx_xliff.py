"""Pairs from the XML that translators exchange: TMX, XLIFF 1.2 and 2.0, one unit in memory at a time."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers import expat

from qkv.base.errors import DataError
from qkv.text.files import open_uncompressed
from qkv.text.pair import SideNames, TextPair, same_language

# Inline elements whose content is code of the original document, not text.
CODES = {"bpt", "ept", "it", "ph", "ut", "x", "bx", "ex"}
UNTRANSLATED = {"new", "needs-translation", "initial"}  # states in which the target is no translation yet
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def read_tmx(path: Path, columns: SideNames, languages: SideNames) -> Iterator[TextPair]:
    """A pair for each unit that speaks both languages."""
    names = columns or languages
    found: dict[str, None] = {}  # languages met, in order
    first, number, both = "", 0, 0
    for element, _ in _units(path, {"header", "tu"}):
        if _tag(element) == "header":
            first = element.get("srclang", "")
            continue
        number += 1
        variants = _variants(element)
        found.update(dict.fromkeys(variants))
        names = names or _two_languages(path, variants, first)
        source, target = (_spoken(variants, name) for name in names)
        both += source is not None and target is not None
        problem = "language missing" if source is None or target is None else ""
        yield TextPair(source or "", target or "", number, problem, str(path))
    if number and not both and names:
        raise DataError(
            f"{path}: no unit has both {names[0]!r} and {names[1]!r}; "
            f"it has {', '.join(found) or 'no language'}; name two of them in columns:"
        )


def _variants(unit: Element) -> dict[str, str]:
    """The texts of a unit by language, the first of each."""
    texts: dict[str, str] = {}
    for variant in unit:
        segment = next((child for child in variant if _tag(child) == "seg"), None)
        if _tag(variant) == "tuv" and segment is not None:
            texts.setdefault(variant.get(LANGUAGE) or variant.get("lang") or "", _text(segment))
    return texts


def _two_languages(path: Path, variants: dict[str, str], first: str) -> tuple[str, str]:
    """Source and target where the user named none: clear only if the first unit has two."""
    if len(variants) != 2:
        raise DataError(f"{path}: which languages? it has {', '.join(variants) or 'none'}; name two in columns:")
    left, right = variants
    return (right, left) if same_language(right, first) and not same_language(left, first) else (left, right)


def _spoken(variants: dict[str, str], wanted: str) -> str | None:
    """The text in the wanted language, by its very name before a near one (en for en-US)."""
    near = [tag for tag in variants if tag and same_language(tag, wanted)]
    near.sort(key=lambda tag: tag.lower() != wanted.lower())
    return variants[near[0]] if near else None


def read_xliff(path: Path, columns: SideNames, languages: SideNames) -> Iterator[TextPair]:
    """A pair for each trans-unit (1.2) or segment (2.0)."""
    for number, (unit, above) in enumerate(_units(path, {"trans-unit", "segment"}), 1):
        source, target = (_child(unit, name) for name in ("source", "target"))
        texts = ["" if side is None else _text(side) for side in (source, target)]
        if _swapped(path, above, columns or languages):
            texts.reverse()
        state = unit.get("state") or ("" if target is None else target.get("state"))
        problem = "not translated yet" if state in UNTRANSLATED or target is None else ""
        yield TextPair(texts[0], texts[1], number, problem, str(path))


def _swapped(path: Path, above: list[Element], names: SideNames) -> bool:
    """Whether the wanted source is the file's target; languages that are not there at all are refused."""
    if names is None:
        return False
    declared = {name: value for element in above for name, value in element.items()}
    source = declared.get("source-language") or declared.get("srcLang") or ""
    target = declared.get("target-language") or declared.get("trgLang") or ""
    for left, right in (names, names[::-1]):
        if _may_be(source, left) and _may_be(target, right):
            return (left, right) != names
    raise DataError(f"{path}: holds {source} -> {target or '?'}, not {names[0]} -> {names[1]}; set columns:")


def _may_be(tag: str, wanted: str) -> bool:
    return not tag or same_language(tag, wanted)


def _child(element: Element, tag: str) -> Element | None:
    return next((child for child in element if _tag(child) == tag), None)


def _tag(element: Element) -> str:
    """The name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _text(element: Element) -> str:
    """What a translator sees of a segment: its text without the codes in it."""
    parts = [element.text or ""]
    for child in element:
        if _tag(child) not in CODES:
            parts.append(_text(child))
        parts.append(child.tail or "")
    return "".join(parts)


def _units(path: Path, names: set[str]) -> Iterator[tuple[Element, list[Element]]]:
    """Each element of these names with those around it; whatever has been read is let go at once."""
    _refuse_entities(path)
    with open_uncompressed(path) as file, _one_line_for_bad_xml(path):
        around: list[Element] = []
        inside = 0  # depth of the unit we are in
        for event, element in ElementTree.iterparse(file, ("start", "end")):
            if event == "start":
                around.append(element)
                if not inside and _tag(element) in names:
                    inside = len(around)
                continue
            around.pop()
            if len(around) + 1 == inside:
                yield element, around
                inside = 0
            if around and not inside:
                around[-1].remove(element)


def _refuse_entities(path: Path) -> None:
    """Read up to the first element, before which entities are declared: nested ones can fill any memory."""
    parser = expat.ParserCreate()
    begun = []

    def refuse(*_: object) -> NoReturn:
        raise DataError(f"{path}: declares XML entities, which a corpus has no need of; remove its DOCTYPE")

    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = lambda *_: begun.append(True)
    with open_uncompressed(path) as file, _one_line_for_bad_xml(path):
        while not begun and (block := file.read(4096)):
            parser.Parse(block)


@contextlib.contextmanager
def _one_line_for_bad_xml(path: Path) -> Iterator[None]:
    try:
        yield
    except (ElementTree.ParseError, expat.ExpatError, LookupError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: not well-formed XML: {error}") from None
