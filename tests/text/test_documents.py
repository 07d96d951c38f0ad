"""Documents are what stands between blank lines, in any number of files."""

import gzip
from pathlib import Path

import pytest

from qkv.base.errors import DataError
from qkv.text.documents import Counts, document_files, read_documents


def read(*files: Path) -> tuple[list[tuple[list[str], int]], Counts]:
    counts = Counts()
    return [(d.sentences, d.line) for d in read_documents(files, counts)], counts


def test_blank_lines_divide(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\nOne. Two!\nThree.\n \n\nFour?\n")
    found, counts = read(tmp_path / "a.txt")
    assert found == [(["One.", "Two!", "Three."], 3), (["Four?"], 7)]
    assert (counts.documents, counts.sentences) == (2, 4)


def test_chinese_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("今天天气很好。我们去公园吧！\n", encoding="utf-8")
    assert read(tmp_path / "a.txt")[0] == [(["今天天气很好。", "我们去公园吧！"], 1)]


def test_files_end_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One.")
    with gzip.open(tmp_path / "b.txt.gz", "wt") as file:
        file.write("Two.\n")
    files = document_files([str(tmp_path / "*.txt*"), str(tmp_path / "a.txt")])
    assert [path.name for path in files] == ["a.txt", "b.txt.gz"]
    assert [sentences for sentences, _ in read(*files)[0]] == [["One."], ["Two."]]


def test_lines_that_are_no_text_are_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"A good line, of some length, to begin with.\n\xff\xfe\nAnother good line.\n")
    found, counts = read(tmp_path / "a.txt")
    assert found == [(["A good line, of some length, to begin with.", "Another good line."], 1)]
    assert counts.lines_left_out == 1 and counts.undecodable == [(str(tmp_path / "a.txt"), 2)]


def test_no_text_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n \n\n")
    with pytest.raises(DataError, match="no text was found"):
        read(tmp_path / "a.txt")
