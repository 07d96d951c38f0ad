"""Checking: every reason to drop a pair by itself, and the report."""

import json
import random
import unicodedata

import pytest
from rich.console import Console

from qkv.base.config import parse
from qkv.base.errors import ConfigError
from qkv.text.check import (
    EMPTY,
    IDENTICAL,
    RATIO,
    TOO_LONG,
    CheckConfig,
    CheckReport,
    check_pairs,
    normalise,
)
from qkv.text.pair import TextPair


def run(pairs, **rules):
    report = CheckReport()
    numbered = [TextPair(*pair, line) if len(pair) == 2 else pair for line, pair in enumerate(pairs, 1)]
    return [pair[:2] for pair in check_pairs(numbered, CheckConfig(**rules), report)], report


def dropped(report):
    return {reason: (found.count, [line for _, line in found.first]) for reason, found in report.dropped.items()}


def test_normalise():
    assert normalise(" u\u0308ber\t\r\nall  \r") == "über all"
    assert normalise("a\u2028b\u00a0c") == "a\u2028b\u00a0c"
    assert normalise("\ufb01") == "\ufb01"  # NFC, not NFKC


def test_normalise_twice_is_normalise_once():
    rng = random.Random(1)
    signs = "ab \t\r\n\u0301\u0308\u2028\u3000\u1100\u1161한é"
    for _ in range(2000):
        text = normalise("".join(rng.choices(signs, k=rng.randrange(8))))
        assert normalise(text) == text == unicodedata.normalize("NFC", text)
        assert not set(text) & set("\t\r\n")


def test_each_reason_is_counted_with_its_lines():
    pairs = [
        ("good", "gut"),
        ("", "x"),
        ("x", " \r"),
        ("long " * 300, "lang " * 300),
        ("a" * 30, "b"),
        ("same", " same"),
        TextPair("", "", 7, "undecodable bytes"),
        ("half \ud800", "x"),
        ("better", "besser"),
    ]
    kept, report = run(pairs)
    assert kept == [("good", "gut"), ("better", "besser")]
    assert dropped(report) == {
        EMPTY: (2, [2, 3]),
        TOO_LONG: (1, [4]),
        RATIO: (1, [5]),
        IDENTICAL: (1, [6]),
        "undecodable bytes": (2, [7, 8]),
    }
    assert (report.read, report.kept) == (9, 2)


def test_limits_are_inclusive_and_can_be_set():
    assert run([("a" * 1000, "b" * 1000), ("a" * 1001, "b" * 1000)])[1].kept == 1
    assert run([("a" * 18, "bb"), ("c" * 20, "d"), ("a" * 27, "eee"), ("f" * 28, "ggg")])[1].kept == 3
    assert run([("a" * 50, "b")], max_ratio=50)[1].kept == 1
    assert run([("abc", "de")], max_chars=2)[1].kept == 0


def test_identical_sides_can_be_kept():
    assert len(run([("same", "same"), ("a", "b")], identical="keep")[0]) == 2


def test_a_reason_found_later_lowers_what_was_kept():
    kept, report = run([("a", "b"), ("c", "d")])
    report.drop("too long (tokens)", 2, "train.tsv")
    report.drop("too long (tokens)")
    assert len(kept) == 2 and report.kept == 0
    assert report.dropped["too long (tokens)"].first == [("train.tsv", 2)]


def test_checking_streams():
    endless = (TextPair(f"source {n}", f"target {n}", n) for n in iter(lambda: 1, 2))
    assert next(check_pairs(endless, CheckConfig(), CheckReport()))[:2] == ("source 1", "target 1")


def test_the_report_survives_json():
    _, report = run([("a", "b"), ("", "x")])
    report.overlap, report.overlap_pairs = 2, 1
    again = CheckReport.from_dict(json.loads(json.dumps(report.as_dict())))
    assert again == report
    assert report.as_dict()["kept"] == 1 and report.as_dict()["dropped"][EMPTY] == {"count": 1, "first": [["", 2]]}


def shown(report):
    console = Console(width=160, record=True, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        console.print(report.table("train"))
    return capture.get()


def test_the_table_shows_counts_and_first_lines_by_file():
    report = CheckReport()
    pairs = [TextPair("", "x", line, "", f"data/{file}.tsv") for file in "ab" for line in (3, 17, 40)]
    list(check_pairs([*pairs, TextPair("a", "b", 1), TextPair("s", "s", 9)], CheckConfig(), report))
    report.overlap = 1
    table = shown(report)
    assert "kept" in table and "12.5 %" in table
    assert "dropped: empty side" in table and "a.tsv: 3, 17, 40; b.tsv: 3, 17" in table and "75.0 %" in table
    assert "warning: source also in dev or test" in table and "0 with the same target" in table
    assert shown(CheckReport()).count("0.0 %") == 1


@pytest.mark.parametrize("keys", [{"max_chars": 0}, {"max_ratio": 0.5}, {"identical": "warn"}, {"overlap": "keep"}])
def test_rules_that_make_no_sense(keys):
    with pytest.raises(ConfigError, match=next(iter(keys))):
        parse(CheckConfig, keys, "data.check")
