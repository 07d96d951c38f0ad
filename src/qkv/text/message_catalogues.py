"""Readers of pairs in message catalogues of programs: gettext PO and MO, and JSON files joined by key."""

import gettext
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qkv.base.errors import DataError
from qkv.text.files import open_uncompressed, read_text
from qkv.text.input_files import InputFile
from qkv.text.pair import UNDECODABLE, SideNames, TextPair, is_decodable, is_reversed
from qkv.text.translatable.file import FileText
from qkv.text.translatable.json_catalogue import metadata_keys
from qkv.text.translatable.po_messages import declared_encoding, read_messages

FUZZY = "marked fuzzy"
CONTEXT = "\x04"  # between a message's context and the message in a MO file
ONE, MANY = 1, 5  # counts that select the singular and the plural


@dataclass
class _Header:
    """The header of a catalogue, which is the translation of the empty message."""

    language: str = ""
    singular: int = 0  # index of the plural form for one, and for many
    plural: int = 1


def read_po(path: InputFile, columns: SideNames, languages: SideNames) -> Iterator[TextPair]:
    """Read messages and their translations; a plural gives two pairs, an obsolete message none."""
    with open_uncompressed(path) as file:
        encoding = declared_encoding(file.read(8192))
    header = _Header()
    for message in read_messages(FileText(path, read_text(path, encoding, errors="surrogateescape"), encoding)):
        singular, forms = message.texts.get("msgid", ""), list(message.forms().values()) or [""]
        if not singular:
            header = _read_header(forms[0])
            continue
        for pair in _singular_and_plural(singular, message.texts.get("msgid_plural"), forms, header):
            yield _directed_pair(pair, columns or languages, header, message.line, FUZZY if message.fuzzy else "", path)


def _singular_and_plural(one: str, many: str | None, forms: list[str], header: _Header) -> Iterator[tuple[str, str]]:
    """Yield a message and its translation; for a plural, the singular (if the language has one) and the plural."""
    if many is None:
        yield one, forms[0]
        return
    singular, plural = (min(form, len(forms) - 1) for form in (header.singular, header.plural))
    if singular != plural:
        yield one, forms[singular]
    yield many, forms[plural]


def _directed_pair(
    pair: tuple[str, str], names: SideNames, header: _Header, line: int, problem: str, path: InputFile
) -> TextPair:
    """Return the pair in the direction that the user named."""
    if not is_decodable("".join(pair)):
        return TextPair("", "", line, UNDECODABLE, str(path))
    source, target = reversed(pair) if is_reversed(names, header.language) else pair
    return TextPair(source, target, line, problem, str(path))


def _read_header(text: str) -> _Header:
    rows = (row.partition(":") for row in text.split("\n"))
    values = {name.strip().lower(): value.strip() for name, _, value in rows}
    language = values.get("language", "")
    rule = re.search(r"\bplural\s*=\s*([^;]+)", values.get("plural-forms", ""))
    try:
        form = gettext.c2py(rule[1] if rule else "n != 1")
        return _Header(language, max(0, form(ONE)), max(0, form(MANY)))
    except (ValueError, ArithmeticError):  # gettext would refuse the formula too
        return _Header(language)


def read_mo(path: InputFile, columns: SideNames, languages: SideNames) -> Iterator[TextPair]:
    """Read messages and translations of a compiled catalogue, which has no fuzzy or obsolete messages."""
    with open_uncompressed(path) as file:
        content = file.read()
    try:
        messages = _mo_messages(content)
    except (struct.error, KeyError):
        raise DataError(f"{path}: damaged, or not a compiled gettext catalogue (MO)") from None
    top = next((text for message, text in messages if not message), b"")
    encoding = declared_encoding(top)
    header = _read_header(top.decode(encoding, errors="surrogateescape"))
    for number, couple in enumerate(messages, 1):
        message, text = (side.decode(encoding, errors="surrogateescape") for side in couple)
        one, *many = message.rpartition(CONTEXT)[2].split("\0")
        for pair in _singular_and_plural(one, many[0] if many else None, text.split("\0"), header) if message else ():
            yield _directed_pair(pair, columns or languages, header, number, "", path)


def _mo_messages(content: bytes) -> list[tuple[bytes, bytes]]:
    """Return messages and translations, from two tables of lengths and offsets."""
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}[content[:4]]
    count, left, right = struct.unpack_from(order + "3I", content, 8)
    offsets = range(0, 8 * count, 8)
    return [(_mo_text(content, order, left + offset), _mo_text(content, order, right + offset)) for offset in offsets]


def _mo_text(content: bytes, order: str, offset: int) -> bytes:
    size, start = struct.unpack_from(order + "2I", content, offset)
    text: bytes = struct.unpack_from(f"{size}s", content, start)[0]
    return text


def read_json_catalogues(source: InputFile, target: InputFile) -> Iterator[TextPair]:
    """Read texts with the same key in two JSON files; a key of only one file is a problem."""
    left, right = flatten_json(source), flatten_json(target)
    if left and not left.keys() & right.keys():
        raise DataError(f"{source} and {target} share no key; are they catalogues of the same program?")
    for number, (key, text) in enumerate(left.items(), 1):
        problem = "" if key in right else "key missing in target"
        yield TextPair(text, right.get(key, ""), number, problem, str(source))
    for number, key in enumerate(right, 1):
        if key not in left:
            yield TextPair("", "", number, "key missing in source", str(target))


def flatten_json(path: InputFile) -> dict[str, str]:
    """Return the texts of a JSON catalogue by outer.inner.key, without the metadata of an ARB file."""
    text = read_text(path)
    try:
        catalogue = json.loads(text)
        if metadata := metadata_keys(catalogue):
            catalogue = {key: value for key, value in catalogue.items() if key not in metadata}
        texts = dict(_leaves(catalogue, ""))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON: {error}") from None
    if not texts and text.strip() not in ("{}", "[]"):
        raise DataError(f"{path}: no texts in it; a JSON catalogue holds keys and texts, nested or not")
    return texts


def _leaves(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, (dict, list)):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(child, f"{at}.{key}" if at else str(key))
