"""Corpora: the config, the choice of format, tables and aligned files."""

import gzip
import itertools
import json
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from qkv.base.config import parse
from qkv.base.errors import ConfigError, DataError
from qkv.text.corpus import ParallelCorpusConfig, corpus_files, read_pairs


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def texts(languages=None, **keys):
    return [(p.source, p.target) for p in read_pairs(ParallelCorpusConfig(**keys), languages) if not p.problem]


def problems(**keys):
    return [(p.line, p.problem) for p in read_pairs(ParallelCorpusConfig(**keys)) if p.problem]


# The config


@pytest.mark.parametrize(
    "keys",
    [{}, {"source": "a"}, {"target": "a"}, {"pairs": "a", "source": "b"}, {"pairs": "a", "source": "b", "target": "c"}],
)
def test_files_are_named_in_one_way(keys):
    with pytest.raises(ConfigError, match=r"either pairs: .* or both source: and target:"):
        parse(ParallelCorpusConfig, keys, "data.train")


@pytest.mark.parametrize("weight", [0, -1, float("inf"), float("nan")])
def test_weights_are_positive(weight):
    with pytest.raises(ConfigError, match="weight"):
        parse(ParallelCorpusConfig, {"pairs": "a.tsv", "weight": weight}, "data.train")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"pairs": "a", "format": "xls"},
            "'xls' is not known; here it is one of tsv, csv, jsonl, parquet, po, mo, tmx",
        ),
        ({"pairs": "a", "format": "lines"}, "'lines' is for source: and target:"),
        ({"source": "a", "target": "b", "format": "tsv"}, "'tsv' is for pairs:; here it is one of lines, json"),
        ({"source": "a", "target": "b", "columns": ["x", "y"]}, "columns: is for one file"),
        ({"pairs": "a", "columns": [0, 1]}, "counted from 1"),
        ({"pairs": "a", "columns": ["en"]}, "columns"),
    ],
)
def test_what_cannot_be_is_refused(keys, words):
    with pytest.raises(ConfigError, match=words):
        parse(ParallelCorpusConfig, keys, "data.train")


def test_columns_may_be_numbers():
    assert parse(ParallelCorpusConfig, {"pairs": "a.tsv", "columns": [2, 1]}, "data.train").columns == ("2", "1")


# The choice of format


@pytest.mark.parametrize("name", ["a.tsv", "a.TSV", "a.tab", "a.tsv.gz"])
def test_the_ending_tells_the_format(write, name):
    content = b"a\tb\n"
    assert texts(pairs=write(name, gzip.compress(content) if name.endswith("gz") else content)) == [("a", "b")]


@pytest.mark.parametrize(
    ("name", "words"), [("a.txt", "say format: tsv, csv"), ("a", "say format:"), ("a.json", "source: and target:")]
)
def test_an_ending_that_tells_nothing(write, name, words):
    path = write(name, "a\tb\n")
    with pytest.raises(ConfigError, match=words):
        read_pairs(ParallelCorpusConfig(pairs=path))
    assert texts(pairs=path, format="tsv") == [("a", "b")]


def test_two_files_of_a_format_that_holds_both_sides(write):
    source, target = write("a.po", "x"), write("b.po", "y")
    with pytest.raises(ConfigError, match="po holds both sides"):
        read_pairs(ParallelCorpusConfig(source=source, target=target))
    assert texts(source=source, target=target, format="lines") == [("x", "y")]
    with pytest.raises(ConfigError, match="one is JSON"):
        read_pairs(ParallelCorpusConfig(source=write("a.json", "{}"), target=write("a.txt", "y")))


def test_several_files_name_their_lines(write, tmp_path):
    write("2.tsv", "c\td\n")
    write("1.csv", "a,b\n")
    corpus = ParallelCorpusConfig(pairs=f"{tmp_path}/*.?sv")
    pairs = list(read_pairs(corpus))
    assert [(p.source, p.target, p.line) for p in pairs] == [("a", "b", 1), ("c", "d", 1)]
    assert [p.file for p in pairs] == [str(tmp_path / "1.csv"), str(tmp_path / "2.tsv")]
    assert corpus_files(corpus) == [tmp_path / "1.csv", tmp_path / "2.tsv"]


def test_a_missing_file_is_refused_before_the_first_pair(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_pairs(ParallelCorpusConfig(pairs=str(tmp_path / "gone.tsv")))


# Aligned files


def test_aligned_files(write):
    source = write("a.en", "one\ntwo\u2028still two\r\nthree")
    target = write("a.de", "eins\nzwei\ndrei\n")
    assert texts(source=source, target=target) == [("one", "eins"), ("two\u2028still two\r", "zwei"), ("three", "drei")]


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 2)])
def test_misaligned_files_stream_and_then_say_both_counts(write, left, right):
    source, target = write("a.en", "x\n" * left), write("a.de", "y\n" * right)
    pairs = read_pairs(ParallelCorpusConfig(source=source, target=target))
    assert len(list(itertools.islice(pairs, min(left, right)))) == min(left, right)
    with pytest.raises(DataError, match=rf"a\.en has {left} lines, .*a\.de has {right}; "):
        next(pairs)


def test_aligned_globs_need_equally_many_files(write, tmp_path):
    for name in ("1.en", "2.en", "1.de"):
        write(name, name)
    corpus = ParallelCorpusConfig(source=f"{tmp_path}/*.en", target=f"{tmp_path}/*.de")
    with pytest.raises(DataError, match=r"matches 2 files, .* matches 1"):
        read_pairs(corpus)
    write("2.de", "2.de")
    assert [p[:2] for p in read_pairs(corpus)] == [("1.en", "1.de"), ("2.en", "2.de")]
    assert [path.name for path in corpus_files(corpus)] == ["1.en", "1.de", "2.en", "2.de"]


def test_a_bad_line_in_either_of_two_files(write):
    keys = {"source": write("a.en", b"good one\nb\xe4d\ngood\n"), "target": write("a.de", b"gut\nx\nsch\xf6n\n")}
    assert problems(**keys) == [(2, "undecodable bytes"), (3, "undecodable bytes")]


# TSV and CSV


def test_tsv_takes_the_first_two_columns_and_counts_what_it_cannot_use(write):
    path = write("a.tsv", b'a\tb\n"c\td"\tmore\nlonely\n\ne\t\n' + b"\xff\xfebad\tx\nlast\tline")
    pairs = list(read_pairs(ParallelCorpusConfig(pairs=path)))
    assert texts(pairs=path) == [("a", "b"), ('"c', 'd"'), ("", ""), ("e", ""), ("last", "line")]
    assert problems(pairs=path) == [(3, "fewer than 2 columns"), (6, "undecodable bytes")]
    assert [p.line for p in pairs] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_named_columns_stand_in_the_header(write, name):
    rows = [["id", "de", " en\r"], ["1", "eins", "one"], ["2", "zwei"]]
    path = write(name, "\n".join(("\t" if name == "a.tsv" else ",").join(row) for row in rows))
    assert texts(pairs=path, columns=("en", "de")) == [("one", "eins")]
    assert texts(pairs=path, columns=("3", "2")) == [("one", "eins")]
    assert texts(("en", "de"), pairs=path) == [("one", "eins")]
    assert problems(pairs=path, columns=("en", "de")) == [(3, "fewer than 3 columns")]
    with pytest.raises(DataError, match="no column 'fr'; it has id, de, en"):
        list(read_pairs(ParallelCorpusConfig(pairs=path, columns=("en", "fr"))))


def test_a_first_line_of_language_codes_is_a_header(write):
    path = write("a.tsv", "en\tde\none\teins\n")
    assert texts(pairs=path) == [("one", "eins")]
    assert texts(("de", "en"), pairs=path) == [("eins", "one")]


def test_csv_quotes_line_ends_and_carriage_returns(write):
    path = write("a.csv", b'"a, ""b""\nsecond",c\r\nd\re,f\n"\xff",g\n\nlonely\nlast,one\n')
    pairs = list(read_pairs(ParallelCorpusConfig(pairs=path)))
    assert texts(pairs=path) == [('a, "b"\nsecond', "c"), ("d e", "f"), ("", ""), ("last", "one")]
    assert problems(pairs=path) == [(4, "undecodable bytes"), (6, "fewer than 2 columns")]
    assert pairs[-1].line == 7


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_a_line_of_a_million_characters_is_only_a_line(write, name):
    long = "x" * 1_000_000
    lines = {"a.tsv": f"{long}\tb\n", "a.csv": f"{long},b\n", "a.jsonl": json.dumps({"source": long, "target": "b"})}
    assert texts(pairs=write(name, lines[name])) == [(long, "b")]


def test_a_quote_never_closed_does_not_fill_the_memory(write, monkeypatch):
    monkeypatch.setattr("qkv.text.tables.LONGEST_CELL", 1000)
    path = write("a.csv", 'a,b\nc,"d\n' + "e,f\n" * 1000)
    with pytest.raises(DataError, match=r"line 2: not valid CSV .* quote opened and never closed"):
        list(read_pairs(ParallelCorpusConfig(pairs=path)))


# JSONL


def test_jsonl_fields_by_name_by_language_and_nested(write):
    records = [{"id": 1, "translation": {"en": "one", "de": "eins"}}, {"id": 2, "translation": {"en": "two"}}]
    path = write("a.jsonl", "\n".join(map(json.dumps, records)) + "\n{broken\n" + "[" * 100_000 + "\n\n")
    assert texts(("de", "en"), pairs=path)[0] == ("eins", "one")
    assert texts(pairs=path, columns=("translation.en", "translation.de"))[0] == ("one", "eins")
    assert problems(pairs=path, columns=("translation.en", "translation.de")) == [
        (2, "field missing or not text"),
        (3, "not valid JSON"),
        (4, "not valid JSON"),
    ]
    with pytest.raises(DataError, match=r"which two columns .* it has id, translation, translation.en"):
        list(read_pairs(ParallelCorpusConfig(pairs=path)))
    with pytest.raises(DataError, match="no column 'fr'"):
        list(read_pairs(ParallelCorpusConfig(pairs=path, columns=("fr", "de"))))


def test_jsonl_of_lists(write):
    path = write("a.jsonl", '["a", "b", "c"]\n["d"]\n7\n')
    assert texts(pairs=path) == [("a", "b")]
    assert texts(pairs=path, columns=("3", "1")) == [("c", "a")]
    assert [line for line, _ in problems(pairs=path)] == [2, 3]


# Parquet


def test_parquet_columns_and_structs(tmp_path):
    rows = [{"en": "one", "de": "eins"}, {"en": None, "de": "zwei"}, {"en": "three", "de": "drei"}] * 5000
    plain, nested = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"id": list(range(15_000)), **_columns(rows)}), plain)
    pyarrow.parquet.write_table(pyarrow.table({"translation": rows}), nested)
    for path in (plain, nested):
        found = list(read_pairs(ParallelCorpusConfig(pairs=path), ("de", "en")))
        assert [p.line for p in found] == list(range(1, 15_001))
        assert found[0][:2] == ("eins", "one") and found[-1][:2] == ("drei", "three")
        assert sum(p.problem == "field missing or not text" for p in found) == 5000
    assert texts(pairs=plain, columns=("3", "2")) == texts(pairs=plain, columns=("de", "en"))
    with pytest.raises(DataError, match="no column 'fr'; it has id, en, de"):
        list(read_pairs(ParallelCorpusConfig(pairs=plain, columns=("fr", "de"))))


def _columns(rows):
    return {name: [row[name] for row in rows] for name in ("en", "de")}


def test_parquet_with_undecodable_text(tmp_path):
    bad = pyarrow.Array.from_buffers(pyarrow.string(), 2, pyarrow.array([b"ok", b"\xff"]).buffers())
    pyarrow.parquet.write_table(pyarrow.table({"source": bad, "target": ["gut", "x"]}), tmp_path / "a.parquet")
    assert texts(pairs=str(tmp_path / "a.parquet")) == [("ok", "gut")]
    assert problems(pairs=str(tmp_path / "a.parquet")) == [(2, "undecodable bytes")]


def test_parquet_that_is_none_or_cannot_be_read(write, monkeypatch):
    path = write("a.parquet", b"not parquet at all")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        list(read_pairs(ParallelCorpusConfig(pairs=path)))
    with pytest.raises(DataError, match=r"decompress the \.gz"):
        list(read_pairs(ParallelCorpusConfig(pairs=write("b.parquet.gz", b""))))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'qkv\[data\]'"):
        list(read_pairs(ParallelCorpusConfig(pairs=path)))


def test_a_first_row_that_names_the_sides_is_a_header(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("target\tsource\nHaus\thouse\n", encoding="utf-8")
    assert [pair[:2] for pair in read_pairs(ParallelCorpusConfig(pairs=str(path)))] == [("house", "Haus")]
