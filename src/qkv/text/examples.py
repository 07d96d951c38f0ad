"""Examples for fine-tuning: texts and pairs with a class or a number, sentences with tags, questions with answers.

A corpus may lose its bad lines; examples may not, since predictions are written beside the lines. Every mistake is an error with
its line. Blank lines are skipped in training; for prediction, which needs one text per line, they are errors too.
"""

import csv
import difflib
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator

from qkv.base.config import Config
from qkv.base.errors import ConfigError, DataError
from qkv.text.check import normalise
from qkv.text.conll import TaggedExample, read_conll
from qkv.text.files import find_input_files, read_lines, uncompressed_suffix
from qkv.text.input_files import InputFile
from qkv.text.pair import is_decodable
from qkv.text.squad import Question, read_squad
from qkv.text.treebank import read_conllu, read_heads, read_tagged_records

__all__ = [
    "ExamplesConfig",
    "Question",
    "TaggedExample",
    "TextExample",
    "check_labels",
    "count_labels",
    "find_headers",
    "find_labels",
    "read_examples",
]

OTHER_SUFFIXES = {"tab": "tsv", "ndjson": "jsonl", "txt": "conll", "json": "squad"}
LONGEST_CELL = 1 << 26  # characters of a cell in CSV; a longer one is a quote that is never closed
SHOWN = 200  # characters of a list in an error


class ExampleColumns(Config):
    """The format of a file of examples, and which of its columns hold the text and the label."""

    # By default from the suffix; `lines` are unlabelled texts for prediction, one per line.
    format: Literal["tsv", "csv", "jsonl", "lines", "conll", "conllu", "squad"] | None = None
    # Columns of TSV and CSV by name (the file has a header) or by number, from 1 (it has none); keys of JSONL.
    text: str = "text"
    pair: str | None = None  # the second text of a pair
    label: str = "label"  # the class or the number
    # The tag's column in CoNLL, from 1; by default the last, and in CoNLL-U the fourth.
    column: int | None = Field(default=None, gt=0)
    heads: str = "heads"  # the key in JSONL of the words' heads, which structural positions need

    @field_validator("text", "pair", "label", mode="before")
    @classmethod
    def _may_be_a_number(cls, given: Any) -> Any:
        if str(given) == "0":
            raise ValueError("columns are counted from 1")
        return str(given) if type(given) is int else given


class ExamplesConfig(ExampleColumns):
    """The files of examples and their format."""

    files: tuple[str, ...] = Field(min_length=1)  # paths or globs, compressed or not
    trees: bool = False  # whether to read heads; the model's positions decide

    @field_validator("files", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given


class TextExample(NamedTuple):
    """A text, or a pair of texts, with its label."""

    text: str
    pair: str | None
    label: str | None
    file: str
    line: int
    heads: list[list[int]] | None = None  # for each text, see treebank.py; words are separated by white space

    @property
    def where(self) -> str:
        return f"{self.file}, line {self.line}"

    @property
    def texts(self) -> list[str]:
        return [self.text] if self.pair is None else [self.text, self.pair]

    @property
    def labels(self) -> list[str]:
        return [] if self.label is None else [self.label]

    def line_of(self, label: int) -> str:
        return self.where


Example = TextExample | TaggedExample | Question
Row = tuple[int, list[str]]  # line, cells


def read_examples(readers: Mapping[str, "ExampleReader"], config: ExamplesConfig, labelled: bool = True) -> list[Any]:
    """Read all examples of some files with the `readers` of a task; without labels for prediction.

    >>> read_examples(Classification.readers, ExamplesConfig(files="test.tsv"))
    """
    files = list(dict.fromkeys(path for pattern in config.files for path in find_input_files(pattern)))
    examples: list[Any] = [
        example for path in files for example in _find_reader(readers, path, config, labelled)(path, config, labelled)
    ]
    if not examples:
        raise DataError(f"{', '.join(config.files)[:SHOWN]}: no examples there; at least one is wanted")
    return examples


def find_labels(examples: Sequence[Any], more: Collection[str] = ()) -> tuple[str, ...]:
    """Return the labels of training examples, and `more`: integers by value, then O, then the others by alphabet.

    One label is an error.
    """
    labels = {label for example in examples for label in example.labels}
    if len(labels) < 2:
        file, found = examples[0].file, ", ".join(labels) or "none"
        raise DataError(f"{file}: only one label ({found}) in all {len(examples)} training examples; at least two are wanted")

    def order(label: str) -> tuple[int, int, str]:
        return (0, int(label), label) if label.removeprefix("-").isdecimal() else (1, label != "O", label)

    return tuple(sorted(labels.union(more), key=order))


def count_labels(examples: Sequence[Any]) -> Counter[str]:
    """Count the labels."""
    return Counter(label for example in examples for label in example.labels)


def find_headers(examples: Sequence[Any]) -> list[TextExample]:
    """Return examples that look like headers: on a first line, with a label that occurs on first lines only."""
    others = {example.label for example in examples if example.line > 1}
    return [example for example in examples if example.line == 1 and example.label not in others]


def check_labels(examples: Sequence[Any], labels: Sequence[str]) -> None:
    """Refuse a label that no training example has."""
    in_training = set(labels)
    for example in examples:
        for index, label in enumerate(example.labels):
            if label not in in_training:
                near = difflib.get_close_matches(label, labels, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(labels)[:SHOWN]}"
                raise DataError(f"{example.line_of(index)}: the label {label!r} is not in the training examples; {hint}")


ExampleReader = Callable[[InputFile, ExamplesConfig, bool], Iterator[Example]]


def _find_reader(readers: Mapping[str, ExampleReader], path: InputFile, config: ExamplesConfig, labelled: bool) -> ExampleReader:
    """Return the reader for a file; its format must be one of the task's."""
    suffix = uncompressed_suffix(path).removeprefix(".")
    readers = {name: reader for name, reader in readers.items() if name != "lines" or not labelled}
    name = config.format or ("lines" if suffix == "txt" and "lines" in readers else OTHER_SUFFIXES.get(suffix, suffix))
    if name not in readers:
        given = f"the format {name}" if config.format else f"the suffix {uncompressed_suffix(path)!r}"
        choices = " or ".join(f"--set data.format={choice}" for choice in readers)
        raise ConfigError(f"{path}: {given} is not one that this objective reads; say {choices}")
    if config.trees and name not in WITH_TREES:
        choices = " or ".join(choice for choice in WITH_TREES if choice in readers) or "a file of another objective"
        raise ConfigError(f"{path}: {name} has no heads, which this model's structural positions need; give {choices}")
    return readers[name]


def _read_lines(path: InputFile, config: ExamplesConfig, labelled: bool) -> Iterator[TextExample]:
    """Read one text per line."""
    if config.pair is not None:
        raise ConfigError(f"{path}: a line holds one text, and pairs are wanted; give a table, and say --set data.format=tsv")
    for line, content in _lines(path):
        if not content.strip():
            _refuse_blank(path, line)
        yield _example(path, line, {"text": content})


def _read_lines_of_words(path: InputFile, config: ExamplesConfig, labelled: bool) -> Iterator[TaggedExample]:
    """Read one text per line, with spaces between its words."""
    for line, content in _lines(path):
        if not content.strip():
            _refuse_blank(path, line, "; or, if the file has one word per line, say --set format=conll")
        words = _example(path, line, {"text": content}).text.split()
        yield TaggedExample(words, [], str(path), line, [line] * len(words))


def _read_tsv(path: InputFile, config: ExamplesConfig, labelled: bool) -> Iterator[TextExample]:
    """Read cells between tabs; quotes have no meaning."""
    rows = ((number, line.split("\t")) for number, line in _lines(path))
    return _read_rows(path, rows, config, labelled)


def _read_csv(path: InputFile, config: ExamplesConfig, labelled: bool) -> Iterator[TextExample]:
    """Read cells between commas, quoted if they hold commas, quotes or line ends."""
    return _read_rows(path, _csv_rows(path), config, labelled)


def _csv_rows(path: InputFile) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_CELL)
    # The csv module treats \r as a line end; here it is white space.
    reader = csv.reader((line.replace("\r", " ") + "\n" for _, line in _lines(path)), strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: not valid CSV ({error}); is a quote opened and never closed?") from None


def _lines(path: InputFile) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; all must be UTF-8."""
    for number, line in enumerate(read_lines(path), 1):
        if line is None:
            raise DataError(f"{path}, line {number}: not UTF-8; convert the file with iconv")
        yield number, line.removesuffix("\r")


def _read_rows(path: InputFile, rows: Iterator[Row], config: ExamplesConfig, labelled: bool) -> Iterator[TextExample]:
    """Yield an example from each row; blank lines are skipped if there are labels."""
    first = next(rows, None)
    if first is None:
        return
    wanted = _wanted(config, labelled)
    named = not all(name.isdecimal() for name in wanted.values())
    header = [cell.strip() for cell in first[1]] if named else []
    columns = {}
    for key, name in wanted.items():
        if name not in header and not name.isdecimal():
            _refuse_missing(path, key, name, header, without="; or, if this line is no header, the column's number")
        columns[key] = header.index(name) if name in header else int(name) - 1
    width = max(columns.values()) + 1
    for line, cells in rows if named else itertools.chain([first], rows):
        if not any(cells) and labelled:
            continue
        if not any(cells):
            _refuse_blank(path, line)
        if len(cells) < width:
            raise DataError(f"{path}, line {line}: {len(cells)} columns, at least {width} are wanted; check the line")
        if any(cells[len(first[1]) :]):  # the columns after it would be read from the wrong place
            raise DataError(
                f"{path}, line {line}: {len(cells)} columns, the first line has {len(first[1])}; does a "
                "text contain the separator?"
            )
        yield _example(path, line, {key: cells[column] for key, column in columns.items()})


def _wanted(config: ExamplesConfig, labelled: bool) -> dict[str, str]:
    """Return the name or number of the column for each part of an example."""
    names = {"text": config.text, "pair": config.pair, "label": config.label if labelled else None}
    return {key: name for key, name in names.items() if name is not None}


def _refuse_missing(path: InputFile, key: str, name: str, there: list[str], line: int = 1, without: str = "") -> None:
    found = ", ".join(there)[:SHOWN] or "none"
    raise DataError(
        f"{path}, line {line}: no column {name!r} for the {key}; there are: {found}; "
        f"say --set data.{key}= and one of them{without}"
    )


def _refuse_blank(path: InputFile, line: int, hint: str = "") -> None:
    raise DataError(
        f"{path}, line {line}: it is blank, and every line needs a text to predict on; fill it in, or take it out{hint}"
    )


def _read_jsonl(path: InputFile, config: ExamplesConfig, labelled: bool) -> Iterator[TextExample]:
    """Read one JSON object per line."""
    wanted = _wanted(config, labelled)
    for line, record in _records(path, labelled):
        for key, name in wanted.items():
            if record.get(name) is None:
                _refuse_missing(path, key, name, list(record), line)
        values = {key: record[name] for key, name in wanted.items()}
        cells = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        example = _example(path, line, cells)
        if config.trees:
            words = [len(text.split()) for text in (example.text, example.pair) if text is not None]
            example = example._replace(heads=read_heads(record, config.heads, words, example.where))
        yield example


def _records(path: InputFile, labelled: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield JSON objects and their lines."""
    for line, content in _lines(path):
        if not content.strip():
            if not labelled:
                _refuse_blank(path, line)
            continue
        try:
            record = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {line}: not valid JSON ({str(error)[:100]}); give one object per line") from None
        if not isinstance(record, dict):
            raise DataError(f"{path}, line {line}: a JSON {type(record).__name__}; an object with keys is wanted")
        yield line, record


def _example(path: InputFile, line: int, cells: dict[str, str]) -> TextExample:
    cells = {key: normalise(cell) for key, cell in cells.items()}
    for key, cell in cells.items():
        if not cell:
            raise DataError(f"{path}, line {line}: the {key} is empty; fill it in, or leave the line out")
        if not is_decodable(cell):
            raise DataError(f"{path}, line {line}: the {key} holds half a character (an escape of JSON); write both halves")
    return TextExample(cells["text"], cells.get("pair"), cells.get("label"), str(path), line)


WITH_TREES = ("conllu", "jsonl")  # formats that may hold heads
TEXT_READERS: dict[str, ExampleReader] = {"tsv": _read_tsv, "csv": _read_csv, "jsonl": _read_jsonl, "lines": _read_lines}


def is_number(label: str) -> bool:
    """Return whether a label is a finite number."""
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def _with_numbers(reader: ExampleReader) -> ExampleReader:
    """Return a reader whose labels must be numbers."""

    def read(path: InputFile, config: ExamplesConfig, labelled: bool) -> Iterator[Example]:
        for example in reader(path, config, labelled):
            for label in example.labels:
                if not is_number(label):
                    raise DataError(
                        f"{example.where}: the label {label!r} is not a number; "
                        "give one, or say --set objective.kind=classification"
                    )
            yield example

    return read


NUMBER_READERS = {name: _with_numbers(reader) for name, reader in TEXT_READERS.items()}
TAG_READERS: dict[str, ExampleReader] = {
    "conll": lambda path, config, labelled: read_conll(path, _lines(path), config.column, labelled),
    "conllu": lambda path, config, labelled: read_conllu(path, _lines(path), config.column, labelled, config.trees),
    "jsonl": lambda path, config, labelled: read_tagged_records(
        path, _records(path, labelled), labelled, config.heads if config.trees else None
    ),
    "lines": _read_lines_of_words,
}
QUESTION_READERS: dict[str, ExampleReader] = {"squad": lambda path, config, labelled: read_squad(path, labelled)}
