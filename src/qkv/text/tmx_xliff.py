"""Readers of pairs in the XML of translators: TMX, XLIFF 1.2 and 2.0, with one unit in memory at a time."""

import contextlib
from collections.abc import Iterator
from typing import NoReturn
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers import expat

from qkv.base.errors import DataError
from qkv.text.files import open_uncompressed
from qkv.text.input_files import InputFile
from qkv.text.pair import SideNames, TextPair, match_language, same_language

# Inline elements that hold code of the original document, not text.
CODES = {"bpt", "ept", "it", "ph", "ut", "x", "bx", "ex"}
UNTRANSLATED = {"new", "needs-translation", "initial"}  # states of a target that is not translated yet
NOT_FOR_TRANSLATION = 'marked translate="no"'
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def read_tmx(path: InputFile, columns: SideNames, languages: SideNames) -> Iterator[TextPair]:
    """Read a pair from each unit that has both languages."""
    names = columns or languages
    found: dict[str, None] = {}  # languages of all units, in order
    first, number, both = "", 0, 0
    for element, _ in _units(path, {"header", "tu"}):
        if _tag(element) == "header":
            first = element.get("srclang", "")
            continue
        number += 1
        variants = _variants(element)
        found.update(dict.fromkeys(variants))
        names = names or _two_languages(path, variants, first)
        tags = [match_language(variants, name) for name in names]
        source, target = (None if tag is None else variants[tag] for tag in tags)
        both += source is not None and target is not None
        problem = "language missing" if source is None or target is None else ""
        yield TextPair(source or "", target or "", number, problem, str(path))
    if number and not both and names:
        raise DataError(
            f"{path}: no unit has both {names[0]!r} and {names[1]!r}; "
            f"it has {', '.join(found) or 'no language'}; name two of them in columns:"
        )


def _variants(unit: Element) -> dict[str, str]:
    """Return the texts of a unit by language, the first of each."""
    texts: dict[str, str] = {}
    for variant in unit:
        segment = next((child for child in variant if _tag(child) == "seg"), None)
        if _tag(variant) == "tuv" and segment is not None:
            texts.setdefault(variant.get(LANGUAGE) or variant.get("lang") or "", _text(segment))
    return texts


def _two_languages(path: InputFile, variants: dict[str, str], first: str) -> tuple[str, str]:
    """Return source and target if the user named none; the first unit must have exactly two languages."""
    if len(variants) != 2:
        raise DataError(f"{path}: which languages? it has {', '.join(variants) or 'none'}; name two in columns:")
    left, right = variants
    return (right, left) if same_language(right, first) and not same_language(left, first) else (left, right)


def read_xliff(path: InputFile, columns: SideNames, languages: SideNames) -> Iterator[TextPair]:
    """Read a pair from each trans-unit (1.2) or segment (2.0)."""
    for number, (unit, above) in enumerate(_units(path, {"trans-unit", "segment"}), 1):
        source, target = (next((child for child in unit if _tag(child) == name), None) for name in ("source", "target"))
        texts = ["" if side is None else _text(side) for side in (source, target)]
        if _swapped(path, above, columns or languages):
            texts.reverse()
        state = unit.get("state") or ("" if target is None else target.get("state"))
        problem = "not translated yet" if state in UNTRANSLATED or target is None else ""
        if _inherited(unit, above, "translate") == "no":
            problem = NOT_FOR_TRANSLATION
        yield TextPair(texts[0], texts[1], number, problem, str(path))


def _inherited(unit: Element, above: list[Element], name: str) -> str:
    """Return an attribute of a unit, or else of the innermost unit, group or file around it that has it."""
    return next((value for element in (unit, *reversed(above)) if (value := element.get(name)) is not None), "")


def _swapped(path: InputFile, above: list[Element], names: SideNames) -> bool:
    """Return whether the wanted source is the file's target; refuse languages that the file does not have."""
    if names is None:
        return False
    declared = {name: value for element in above for name, value in element.items()}
    source = declared.get("source-language") or declared.get("srcLang") or ""
    target = declared.get("target-language") or declared.get("trgLang") or ""
    for left, right in (names, names[::-1]):
        if all(not tag or same_language(tag, wanted) for tag, wanted in ((source, left), (target, right))):
            return (left, right) != names
    raise DataError(f"{path}: holds {source} -> {target or '?'}, not {names[0]} -> {names[1]}; set columns:")


def _tag(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _text(element: Element) -> str:
    """Return the text of a segment without inline codes."""
    parts = [element.text or ""]
    for child in element:
        if _tag(child) not in CODES:
            parts.append(_text(child))
        parts.append(child.tail or "")
    return "".join(parts)


def _units(path: InputFile, names: set[str]) -> Iterator[tuple[Element, list[Element]]]:
    """Yield each element with one of these names, and its ancestors; elements are freed after reading."""
    _refuse_entities(path)
    with open_uncompressed(path) as file, _refuse_bad_xml(path):
        ancestors: list[Element] = []
        inside = 0  # depth of the unit we are in
        for event, element in ElementTree.iterparse(file, ("start", "end")):
            if event == "start":
                ancestors.append(element)
                if not inside and _tag(element) in names:
                    inside = len(ancestors)
                continue
            ancestors.pop()
            if len(ancestors) + 1 == inside:
                yield element, ancestors
                inside = 0
            if ancestors and not inside:
                ancestors[-1].remove(element)


def _refuse_entities(path: InputFile) -> None:
    """Refuse a file that declares entities before its first element: nested entities can fill any memory."""
    parser = expat.ParserCreate()
    started = []

    def refuse(*_: object) -> NoReturn:
        raise DataError(f"{path}: declares XML entities, which a corpus does not need; remove its DOCTYPE")

    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = lambda *_: started.append(True)
    with open_uncompressed(path) as file, _refuse_bad_xml(path):
        while not started and (block := file.read(4096)):
            parser.Parse(block)


@contextlib.contextmanager
def _refuse_bad_xml(path: InputFile) -> Iterator[None]:
    try:
        yield
    except (ElementTree.ParseError, expat.ExpatError, LookupError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: not well-formed XML: {error}") from None
