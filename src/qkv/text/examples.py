"""Examples to be learned from: texts and pairs with a class or a number, sentences with tags, questions with answers.

A bad line of a corpus is left out; here none can be, as predictions are put beside the lines: every mistake is refused, with its
line. Blank lines are passed over in training; where predictions are wanted, one for each line, they are mistakes too.
"""

import csv
import difflib
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator

from qkv.base.config import Config
from qkv.base.errors import ConfigError, DataError
from qkv.text.check import normalise
from qkv.text.conll import TaggedExample, read_conll, tag_type
from qkv.text.files import find_files, read_lines, uncompressed_suffix
from qkv.text.pair import is_decodable
from qkv.text.squad import Question, read_squad
from qkv.text.treebank import read_conllu, read_heads, read_tagged_records

__all__ = [
    "ExamplesConfig",
    "Question",
    "TaggedExample",
    "TaskKind",
    "TextExample",
    "check_labels",
    "count_labels",
    "find_headers",
    "find_labels",
    "read_examples",
]

TaskKind = Literal["classification", "regression", "tagging", "answering"]
ENDINGS = {"tab": "tsv", "ndjson": "jsonl", "txt": "conll", "json": "squad"}
LONGEST_CELL = 1 << 26  # of a CSV: longer is a quote never closed, not text
SHOWN = 200  # characters of a list in an error


class ExampleColumns(Config):
    """What in a file of examples is what."""

    # Told by the ending when not given; lines are texts without labels, one each, of which something is to be predicted.
    format: Literal["tsv", "csv", "jsonl", "lines", "conll", "conllu", "squad"] | None = None
    # Columns of TSV and CSV by name (then there is a header) or by number, from 1 (then there is none); keys of JSONL.
    text: str = "text"
    pair: str | None = None  # the second text of a pair
    label: str = "label"  # the class or the number
    # Of the tag in CoNLL, from 1; when not given the last, and in CoNLL-U the fourth.
    column: int | None = Field(default=None, gt=0)
    heads: str = "heads"  # the key of JSONL for the heads of words, which structural positions need

    @field_validator("text", "pair", "label", mode="before")
    @classmethod
    def _may_be_a_number(cls, given: Any) -> Any:
        if str(given) == "0":
            raise ValueError("columns are counted from 1")
        return str(given) if type(given) is int else given


class ExamplesConfig(ExampleColumns):
    """Where examples are, and what in them is what."""

    files: tuple[str, ...] = Field(min_length=1)  # paths or globs, compressed or not
    trees: bool = False  # whether heads are read: the model's positions decide

    @field_validator("files", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given


class TextExample(NamedTuple):
    """A text, or a pair of texts, and what is to be said of it."""

    text: str
    pair: str | None
    label: str | None
    file: str
    line: int
    heads: list[list[int]] | None = None  # of each text, see treebank.py; words are what stands between white space

    @property
    def where(self) -> str:
        return f"{self.file}, line {self.line}"


Example = TextExample | TaggedExample | Question
Row = tuple[int, list[str]]  # line, cells


def read_examples(kind: TaskKind, config: ExamplesConfig, labelled: bool = True) -> list[Any]:
    """All examples of some files: TextExamples, TaggedExamples or Questions by kind; unlabelled ones are to be predicted."""
    files = list(dict.fromkeys(path for pattern in config.files for path in find_files(pattern)))
    examples: list[Any] = [example for path in files for example in _reader(kind, path, config, labelled)(path, config, labelled)]
    if not examples:
        raise DataError(f"{', '.join(config.files)[:SHOWN]}: no examples there; at least one is wanted")
    if kind == "regression" and labelled:
        for example in examples:
            _refuse_other_than_number(example)
    return examples


def _refuse_other_than_number(example: TextExample) -> None:
    try:
        fine = math.isfinite(float(example.label or ""))
    except ValueError:
        fine = False
    if not fine:
        raise DataError(
            f"{example.where}: the label {example.label!r} is not a number; give one, or say --set objective.kind=classification"
        )


def find_labels(kind: TaskKind, examples: Sequence[Any]) -> tuple[str, ...]:
    """The labels of training examples in a fixed order, by value if they are whole numbers; refused if there is only one.

    Where tags begin with B-, I- and the like, the inside of every type is among them even if it was never seen.
    """
    labels = {label for example in examples for label in _labels(example)}
    if len(labels) < 2:
        file, found = examples[0].file, ", ".join(labels) or "none"
        raise DataError(f"{file}: only one label ({found}) in all {len(examples)} training examples; at least two are wanted")
    if kind == "tagging":
        labels |= {f"I-{tag_type(label)}" for label in labels if label.startswith("B-")}
    return tuple(sorted(labels, key=_order))


def count_labels(examples: Sequence[Any]) -> Counter[str]:
    """How often each label occurs."""
    return Counter(label for example in examples for label in _labels(example))


def find_headers(examples: Sequence[Any]) -> list[TextExample]:
    """Examples that look like headers, read as if they were none: on first lines, with a label that is on such lines alone."""
    others = {example.label for example in examples if example.line > 1}
    return [example for example in examples if example.line == 1 and example.label not in others]


def _labels(example: TextExample | TaggedExample) -> Sequence[str]:
    if isinstance(example, TaggedExample):
        return example.tags
    return () if example.label is None else (example.label,)


def _order(label: str) -> tuple[int, int, str]:
    """Whole numbers first, by value; then the tag that says nothing; then the alphabet."""
    number = label.removeprefix("-").isdecimal()
    return (0, int(label), label) if number else (1, label != "O", label)


def check_labels(examples: Sequence[Any], labels: Sequence[str]) -> None:
    """Refuse a label that training does not have."""
    known = set(labels)
    for example in examples:
        for place, label in enumerate(_labels(example)):
            if label not in known:
                where = example.line_of(place) if isinstance(example, TaggedExample) else example.where
                near = difflib.get_close_matches(label, labels, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(labels)[:SHOWN]}"
                raise DataError(f"{where}: the label {label!r} is not in the training examples; {hint}")


ExampleReader = Callable[[Path, ExamplesConfig, bool], Iterator[Example]]


def _reader(kind: TaskKind, path: Path, config: ExamplesConfig, labelled: bool) -> ExampleReader:
    """What reads that file; the format must be one that holds what the kind needs."""
    ending = uncompressed_suffix(path).removeprefix(".")
    known = READERS[kind] if labelled or kind not in OF_TEXTS else {**READERS[kind], "lines": _text_lines}
    name = config.format or ("lines" if ending == "txt" and "lines" in known else ENDINGS.get(ending, ending))
    if name not in known:
        told = f"the format {name}" if config.format else f"its ending {uncompressed_suffix(path)!r}"
        ways = " or ".join(f"--set data.format={way}" for way in known)
        raise ConfigError(f"{path}: {told} is not one that {kind} reads; say {ways}")
    if config.trees and name not in WITH_TREES:
        ways = " or ".join(way for way in WITH_TREES if way in known) or "a file of another objective"
        raise ConfigError(f"{path}: {name} holds no heads, and this model's positions are structural; give {ways}")
    return known[name]


def _text_lines(path: Path, config: ExamplesConfig, labelled: bool) -> Iterator[TextExample]:
    """A text a line, nothing else."""
    if config.pair is not None:
        raise ConfigError(f"{path}: lines hold one text each, and pairs are wanted; give a table, and say --set data.format=tsv")
    for line, content in _lines(path):
        if not content.strip():
            _refuse_blank(path, line)
        yield _example(path, line, {"text": content})


def _tsv(path: Path, config: ExamplesConfig, labelled: bool) -> Iterator[TextExample]:
    """Cells between tabs; quotes mean nothing."""
    rows = ((number, line.split("\t")) for number, line in _lines(path))
    return _pick(path, rows, config, labelled)


def _csv(path: Path, config: ExamplesConfig, labelled: bool) -> Iterator[TextExample]:
    """Cells between commas, quoted where they hold commas, quotes or line ends."""
    return _pick(path, _csv_rows(path), config, labelled)


def _csv_rows(path: Path) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_CELL)
    # The csv module takes \r for a line end; for us it is white space.
    reader = csv.reader((line.replace("\r", " ") + "\n" for _, line in _lines(path)), strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: not valid CSV ({error}); is a quote opened and never closed?") from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of UTF-8 with their numbers."""
    for number, line in enumerate(read_lines(path), 1):
        if line is None:
            raise DataError(f"{path}, line {number}: not UTF-8; convert the file with iconv")
        yield number, line.removesuffix("\r")


def _pick(path: Path, rows: Iterator[Row], config: ExamplesConfig, labelled: bool) -> Iterator[TextExample]:
    """The wanted cells of each row; blank lines are passed over where there are labels."""
    first = next(rows, None)
    if first is None:
        return
    wanted = _wanted(config, labelled)
    named = not all(name.isdecimal() for name in wanted.values())
    places = {key: _place(path, key, name, first[1], named) for key, name in wanted.items()}
    width = max(places.values()) + 1
    for line, cells in rows if named else itertools.chain([first], rows):
        if not any(cells) and labelled:
            continue
        if not any(cells):
            _refuse_blank(path, line)
        if len(cells) < width:
            raise DataError(f"{path}, line {line}: {len(cells)} columns, at least {width} are wanted; check the line")
        if any(cells[len(first[1]) :]):  # what stands behind it would be read from the wrong column
            raise DataError(
                f"{path}, line {line}: {len(cells)} columns, the first line has {len(first[1])}; is one of them part of a text?"
            )
        yield _example(path, line, {key: cells[place] for key, place in places.items()})


def _wanted(config: ExamplesConfig, labelled: bool) -> dict[str, str]:
    """What is read, and the name or number of its column."""
    names = {"text": config.text, "pair": config.pair, "label": config.label if labelled else None}
    return {key: name for key, name in names.items() if name is not None}


def _place(path: Path, key: str, name: str, cells: list[str], named: bool) -> int:
    """Where a column stands; a number counts as one unless the header has it for a name."""
    names = [cell.strip() for cell in cells] if named else []
    if name in names:
        return names.index(name)
    if not name.isdecimal():
        _refuse_missing(path, key, name, names, without="; or, if this line is no header, the column's number")
    return int(name) - 1


def _refuse_missing(path: Path, key: str, name: str, there: list[str], line: int = 1, without: str = "") -> None:
    found = ", ".join(there)[:SHOWN] or "none"
    raise DataError(
        f"{path}, line {line}: no column {name!r} for the {key}; there are: {found}; "
        f"say --set data.{key}= and one of them{without}"
    )


def _refuse_blank(path: Path, line: int) -> None:
    raise DataError(f"{path}, line {line}: it is blank, and every line is to have a prediction; fill it in, or take it out")


def _jsonl(path: Path, config: ExamplesConfig, labelled: bool) -> Iterator[TextExample]:
    """One JSON object a line."""
    wanted = _wanted(config, labelled)
    for line, record in _records(path, labelled):
        for key, name in wanted.items():
            if record.get(name) is None:
                _refuse_missing(path, key, name, list(record), line)
        example = _example(path, line, {key: _plain(record[name]) for key, name in wanted.items()})
        if config.trees:
            words = [len(text.split()) for text in (example.text, example.pair) if text is not None]
            example = example._replace(heads=read_heads(record, config.heads, words, example.where))
        yield example


def _records(path: Path, labelled: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """JSON objects and their lines."""
    for line, content in _lines(path):
        if not content.strip():
            if not labelled:
                _refuse_blank(path, line)
            continue
        try:
            record = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {line}: not valid JSON ({str(error)[:100]}); one object a line is wanted") from None
        if not isinstance(record, dict):
            raise DataError(f"{path}, line {line}: a JSON {type(record).__name__}; an object with keys is wanted")
        yield line, record


def _plain(value: Any) -> str:
    """A number or a truth value as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def _example(path: Path, line: int, cells: dict[str, str]) -> TextExample:
    cells = {key: normalise(cell) for key, cell in cells.items()}
    for key, cell in cells.items():
        if not cell:
            raise DataError(f"{path}, line {line}: the {key} is empty; fill it in, or leave the line out")
        if not is_decodable(cell):
            raise DataError(f"{path}, line {line}: the {key} holds half a character (an escape of JSON); write both halves")
    return TextExample(cells["text"], cells.get("pair"), cells.get("label"), str(path), line)


def _conll(path: Path, config: ExamplesConfig, labelled: bool) -> Iterator[TaggedExample]:
    return read_conll(path, _lines(path), config.column, labelled)


def _conllu(path: Path, config: ExamplesConfig, labelled: bool) -> Iterator[TaggedExample]:
    return read_conllu(path, _lines(path), config.column, labelled, config.trees)


def _tagged_jsonl(path: Path, config: ExamplesConfig, labelled: bool) -> Iterator[TaggedExample]:
    return read_tagged_records(path, _records(path, labelled), labelled, config.heads if config.trees else None)


def _squad(path: Path, config: ExamplesConfig, labelled: bool) -> Iterator[Question]:
    return read_squad(path, labelled)


OF_TEXTS = ("classification", "regression")  # kinds that say something of a text or a pair
WITH_TREES = ("conllu", "jsonl")  # formats that may hold heads
TABLES: dict[str, ExampleReader] = {"tsv": _tsv, "csv": _csv, "jsonl": _jsonl}
READERS: dict[TaskKind, dict[str, ExampleReader]] = {
    "classification": TABLES,
    "regression": TABLES,
    "tagging": {"conll": _conll, "conllu": _conllu, "jsonl": _tagged_jsonl},
    "answering": {"squad": _squad},
}
