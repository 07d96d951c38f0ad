"""Sentences with dependency trees: CoNLL-U (Universal Dependencies), and JSON Lines with heads.

The head of a word is the number, from 1, of the word that governs it; a root has 0. A text may have several roots, since it may
hold several sentences.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from qkv.base.errors import DataError
from qkv.text.conll import TaggedExample
from qkv.text.input_files import InputFile
from qkv.text.pair import is_decodable

HEADS = "heads"  # the key of the heads in JSON Lines of pairs and of texts to translate
UPOS, HEAD = 4, 7  # columns of CoNLL-U, from 1; the first is the number of a word, the second the word
SHOWN = 8  # words of a cycle in an error


class TextWithHeads(str):
    """A text with the heads of its words, which are separated by white space."""

    heads: list[int]

    def __new__(cls, text: str, heads: list[int]) -> "TextWithHeads":
        made = super().__new__(cls, text)
        made.heads = heads
        return made

    @classmethod
    def from_record(cls, text: str, record: dict[str, Any], where: str) -> "TextWithHeads":
        """Build it from a text and the JSON object that holds its heads."""
        return cls(text, read_heads(record, HEADS, [len(text.split())], where)[0])

    @classmethod
    def coerce(cls, text: str, where: str) -> "TextWithHeads":
        """Return a text with heads unchanged; parse any other text as a JSON object."""
        return text if isinstance(text, TextWithHeads) else cls.from_line(text, where)

    @classmethod
    def from_line(cls, line: str, where: str) -> "TextWithHeads":
        """Parse a JSON object with a `text` and its heads; a blank line is a text without words."""
        if not line.strip():
            return cls("", [])
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("text"), str) or not isinstance(record.get(HEADS), list):
            raise DataError(
                f"{where}: not a JSON object with a text and its heads, which this model's structural positions need; "
                'give {"text": "good dogs", "heads": [2, 0]}'
            )
        if not is_decodable(record["text"]):
            raise DataError(f"{where}: the text holds half a character (an escape of JSON); write both halves")
        return cls.from_record(record["text"], record, where)


def read_conllu(
    path: InputFile, lines: Iterable[tuple[int, str]], column: int | None, labelled: bool, trees: bool
) -> Iterator[TaggedExample]:
    """Yield the sentences; `column` (from 1, by default UPOS) is the tag. Multiword tokens and empty nodes are left out."""
    wanted = max(2, (column or UPOS) if labelled else 0, HEAD if trees else 0)
    rows: list[tuple[int, list[str]]] = []
    for number, line in lines:
        if not line.strip():
            if rows:
                yield _sentence(path, rows, column or UPOS, labelled, trees)
            rows = []
        elif not line.startswith("#"):
            cells = line.split("\t")
            if "-" in cells[0] or "." in cells[0]:
                continue
            _check_row(path, number, cells, wanted, len(rows) + 1)
            rows.append((number, cells))
    if rows:
        yield _sentence(path, rows, column or UPOS, labelled, trees)


def _check_row(path: InputFile, line: int, cells: list[str], wanted: int, word: int) -> None:
    if len(cells) < wanted or not all(cell.strip() for cell in cells[:wanted]):
        found = sum(bool(cell.strip()) for cell in cells)
        raise DataError(f"{path}, line {line}: {found} columns between tabs, {wanted} are wanted; is this CoNLL-U?")
    if cells[0].strip() != str(word):
        raise DataError(
            f"{path}, line {line}: the word has the number {cells[0]!r} instead of {word}; number a sentence's words from 1"
        )


def _sentence(path: InputFile, rows: list[tuple[int, list[str]]], column: int, labelled: bool, trees: bool) -> TaggedExample:
    lines = [number for number, _ in rows]
    heads = None
    if trees:
        cells_of_heads = [cells[HEAD - 1] for _, cells in rows]
        numbers = [int(cell) if cell.strip().isdecimal() else cell for cell in cells_of_heads]
        heads = validate_heads(numbers, len(rows), lambda word: f"{path}, line {lines[word]}")
    tags = [cells[column - 1].strip() for _, cells in rows] if labelled else []
    return TaggedExample([cells[1].strip() for _, cells in rows], tags, str(path), lines[0], lines, heads)


def read_tagged_records(
    path: InputFile, records: Iterable[tuple[int, dict[str, Any]]], labelled: bool, key: str | None
) -> Iterator[TaggedExample]:
    """Yield sentences from JSON objects with `words`, `tags` and, under `key`, heads."""
    for line, record in records:
        where = f"{path}, line {line}"
        words = _texts(record, "words", where)
        tags = _texts(record, "tags", where) if labelled else []
        if labelled and len(tags) != len(words):
            raise DataError(f"{where}: {len(tags)} tags for {len(words)} words; give each word one")
        heads = None if key is None else read_heads(record, key, [len(words)], where)[0]
        yield TaggedExample(words, tags, str(path), line, [line] * len(words), heads)


def _texts(record: dict[str, Any], key: str, where: str) -> list[str]:
    found = record.get(key)
    if not isinstance(found, list) or not found or not all(isinstance(text, str) and text.strip() for text in found):
        raise DataError(f"{where}: no list of words under {key!r}, or one of them is empty; give one, or say what the format is")
    if not all(map(is_decodable, found)):
        raise DataError(f"{where}: the {key} hold half a character (an escape of JSON); write both halves")
    return [text.strip() for text in found]


def read_heads(record: dict[str, Any], key: str, words: Sequence[int], where: str) -> list[list[int]]:
    """Return the heads under `key` for texts with these numbers of words: a list, or a list per text if there are several."""
    found = record.get(key)
    lists = [found] if len(words) == 1 else found
    if not isinstance(lists, list) or len(lists) != len(words) or not all(isinstance(heads, list) for heads in lists):
        wanted = "a list of heads, one for each word" if len(words) == 1 else f"{len(words)} lists of heads, one for each text"
        raise DataError(f"{where}: no {key!r}, {wanted}; this model's structural positions need it")
    return [validate_heads(heads, count, lambda _: where) for heads, count in zip(lists, words, strict=True)]


def validate_heads(heads: Sequence[Any], words: int, line_of: Callable[[int], str]) -> list[int]:
    """Return the heads if they form trees over `words` words; `line_of` names the line of a word, from 0."""
    if len(heads) != words:
        raise DataError(f"{line_of(0)}: {len(heads)} heads for {words} words (separated by white space); give each word one")
    for word, head in enumerate(heads):
        if type(head) is not int or not 0 <= head <= words:
            raise DataError(
                f"{line_of(word)}: word {word + 1} has the head {head!r}; give the number of a word, 1 to "
                f"{words}, or 0 for a root"
            )
    cycle = _find_cycle(heads)
    if cycle:
        shown = ", ".join(map(str, cycle[:SHOWN])) + (", ..." if len(cycle) > SHOWN else "")
        raise DataError(f"{line_of(cycle[0] - 1)}: the heads form a cycle over the words {shown}; each must lead to a root, 0")
    return list(heads)


def _find_cycle(heads: Sequence[int]) -> list[int]:
    """Return the words of a cycle, in order; empty if every word leads to a root."""
    rooted = {0}
    for word in range(1, len(heads) + 1):
        path: dict[int, None] = {}
        while word not in rooted:
            if word in path:
                return list(path)[list(path).index(word) :]
            path[word] = None
            word = heads[word - 1]
        rooted.update(path)
    return []
