"""Parallel corpora: their configuration, and one reader for each format."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from qkv.base.config import Config
from qkv.base.errors import ConfigError, DataError
from qkv.text.files import find_input_files, uncompressed_suffix
from qkv.text.input_files import InputFile, WholeFile
from qkv.text.message_catalogues import read_json_catalogues, read_mo, read_po
from qkv.text.pair import PairReader, TextPair
from qkv.text.table_layout import TableLayout, detect_layout
from qkv.text.tables import read_aligned, read_csv, read_jsonl, read_parquet, read_tsv
from qkv.text.tmx_xliff import read_tmx, read_xliff

__all__ = ["ParallelCorpusConfig", "TextPair", "corpus_files", "read_pairs", "table_layouts"]

ONE_FILE: dict[str, PairReader] = {
    "tsv": read_tsv,
    "csv": read_csv,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
    "po": read_po,
    "mo": read_mo,
    "tmx": read_tmx,
    "xliff": read_xliff,
}
TWO_FILES: dict[str, Callable[[InputFile, InputFile], Iterator[TextPair]]] = {"lines": read_aligned, "json": read_json_catalogues}
# Readers that give other pairs than they did before; a number is raised so that no cached corpus of the older one is used.
READER_VERSIONS = {"po": 2, "xliff": 2, "json": 2}
TABLES = {"tsv": "\t", "csv": ","}  # with their usual delimiter
PLAIN_LAYOUTS = (("\t", False, ()), (",", True, ()))  # delimiter, quotes, header
OTHER_SUFFIXES = {"tab": "tsv", "ndjson": "jsonl", "pq": "parquet", "gmo": "mo", "xlf": "xliff", "arb": "json"}


class ParallelCorpusConfig(Config):
    """A parallel corpus: files that hold both sides, or files for each side."""

    pairs: str | None = None  # a file with both sides, or a glob: TSV, CSV, JSONL, Parquet, PO, MO, TMX, XLIFF
    source: str | None = None  # or two files (or globs): aligned lines of text, or two JSON catalogues joined by key
    target: str | None = None
    format: str | None = None  # by default from the suffix
    columns: tuple[str, str] | None = None  # the two sides: column names or numbers (from 1), fields, or languages
    prefix: str = ""  # text before each source, and a space, to name the task
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)  # times that each pair occurs in an epoch

    @field_validator("columns", mode="before")
    @classmethod
    def _columns_may_be_numbers(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return value
        if any(str(name) == "0" for name in value):
            raise ValueError("columns are counted from 1")
        return tuple(str(name) if type(name) is int else name for name in value)

    @model_validator(mode="after")
    def _one_way_to_name_files(self) -> Self:
        two = self.source is not None and self.target is not None
        either = self.source is not None or self.target is not None
        if (self.pairs is not None) == two or (either and not two):
            raise ValueError("give either pairs: (one file with both sides), or both source: and target:")
        known = TWO_FILES if two else ONE_FILE
        if self.format is not None and self.format not in known:
            other = "pairs:" if self.format in ONE_FILE else "source: and target:"
            hint = f"is for {other}" if self.format in {**ONE_FILE, **TWO_FILES} else "is not known"
            raise ValueError(f"format {self.format!r} {hint}; here it is one of {', '.join(known)}")
        if two and self.columns is not None:
            raise ValueError("columns: is for one file with both sides; leave it out beside source: and target:")
        return self

    @property
    def name(self) -> str:
        """The file, or the two files, as the recipe gives them."""
        return self.pairs or f"{self.source}, {self.target}"


def read_pairs(corpus: ParallelCorpusConfig, languages: tuple[str, str] | None = None, trees: bool = False) -> Iterator[TextPair]:
    """Yield all pairs of a corpus; a missing file or an unknown format is refused before the first pair.

    With `trees`, sources are `treebank.TextWithHeads`, which only JSON Lines can hold.
    """
    if trees:
        return _read_with_heads(corpus, languages)
    if corpus.pairs is not None:
        files = find_input_files(corpus.pairs)
        readers = [ONE_FILE[format_of(file, corpus)] for file in files]
        streams = (read(file, corpus.columns, languages) for read, file in zip(readers, files, strict=True))
    else:
        aligned = aligned_files(corpus)
        formats = [format_of_two(*files, corpus) for files in aligned]
        streams = (TWO_FILES[name](*files) for name, files in zip(formats, aligned, strict=True))
    return with_prefix(itertools.chain.from_iterable(streams), corpus)


def with_prefix(pairs: Iterator[TextPair], corpus: ParallelCorpusConfig) -> Iterator[TextPair]:
    """Put the prefix of a corpus before each source."""
    if not corpus.prefix:
        return pairs
    prefix = corpus.prefix.strip()
    return (pair._replace(source=f"{prefix} {pair.source}") if pair.source.strip() else pair for pair in pairs)


def _read_with_heads(corpus: ParallelCorpusConfig, languages: tuple[str, str] | None) -> Iterator[TextPair]:
    if corpus.prefix:
        raise ConfigError(
            f"prefix {corpus.prefix!r}: the words of a prefix have no heads, which this model needs; leave the prefix out"
        )
    files = corpus_files(corpus)
    for file in files:
        if corpus.pairs is None or format_of(file, corpus) != "jsonl":
            raise ConfigError(
                f"{file}: the file has no heads, which this model's structural positions need; give pairs: "
                "in JSON Lines, with heads"
            )
    return itertools.chain.from_iterable(read_jsonl(file, corpus.columns, languages, trees=True) for file in files)


def corpus_files(corpus: ParallelCorpusConfig) -> list[WholeFile]:
    """Return the files of a corpus, in order."""
    if corpus.pairs is not None:
        return find_input_files(corpus.pairs)
    return [file for files in aligned_files(corpus) for file in files]


def table_layouts(corpus: ParallelCorpusConfig, languages: tuple[str, str] | None) -> dict[WholeFile, TableLayout]:
    """Return how the CSV and TSV files of a corpus are read; refuse those whose columns must be named."""
    files = find_input_files(corpus.pairs) if corpus.pairs is not None else []
    defaults = {file: sign for file in files if (sign := TABLES.get(format_of(file, corpus)))}
    return {file: detect_layout(file, sign, corpus.columns, languages) for file, sign in defaults.items()}


def reader_versions(corpus: ParallelCorpusConfig, languages: tuple[str, str] | None) -> dict[str, Any]:
    """Return the versions of a corpus's readers by format, without first versions, and layouts that those did not know."""
    layouts = [layout for layout in table_layouts(corpus, languages).values() if layout[:3] not in PLAIN_LAYOUTS]
    if corpus.pairs is not None:
        formats = {format_of(file, corpus) for file in find_input_files(corpus.pairs)}
    else:
        formats = {format_of_two(*files, corpus) for files in aligned_files(corpus)}
    versions: dict[str, Any] = {name: READER_VERSIONS[name] for name in sorted(formats & {*READER_VERSIONS})}
    return {**versions, "tables": layouts} if layouts else versions


def aligned_files(corpus: ParallelCorpusConfig) -> list[tuple[WholeFile, WholeFile]]:
    """Return source and target files side by side; both globs must match the same number of files."""
    sources, targets = find_input_files(corpus.source or ""), find_input_files(corpus.target or "")
    if len(sources) != len(targets):
        raise DataError(
            f"{corpus.source} matches {len(sources)} files, {corpus.target} matches {len(targets)}; "
            "each source file needs its target file"
        )
    return list(zip(sources, targets, strict=True))


def format_of(file: InputFile, corpus: ParallelCorpusConfig) -> str:
    name = corpus.format or _format_from_suffix(file)
    if name == "json":
        raise ConfigError(f"{file}: a JSON catalogue holds one language; give source: and target:, or say format: jsonl")
    if name not in ONE_FILE:
        raise ConfigError(f"{file}: the suffix does not show the format; say format: {', '.join(ONE_FILE)}")
    return name


def format_of_two(source: InputFile, target: InputFile, corpus: ParallelCorpusConfig) -> str:
    """Return the format of two files; any suffix may hold lines of text (a.en, a.de), except those of other formats."""
    if corpus.format is not None:
        return corpus.format
    formats = {_format_from_suffix(source), _format_from_suffix(target)}
    for name in formats & {*ONE_FILE}:
        raise ConfigError(f"{source}, {target}: {name} holds both sides, give pairs:; or say format: lines")
    if formats == {"json"}:
        return "json"
    if "json" in formats:
        raise ConfigError(f"{source}, {target}: one is JSON, the other is not; say format: {' or '.join(TWO_FILES)}")
    return "lines"


def _format_from_suffix(file: InputFile) -> str:
    suffix = uncompressed_suffix(file).removeprefix(".")
    return OTHER_SUFFIXES.get(suffix, suffix)
