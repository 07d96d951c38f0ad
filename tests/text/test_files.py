"""Files: compressed or not, split on newline only, and every failure is an error of one line."""

import gzip
import lzma
import os
import sys
from pathlib import Path

import pytest
import zstandard

from qkv.base.errors import ConfigError, DataError
from qkv.text.files import find_files, open_uncompressed, read_byte_chunks, read_lines, read_text, uncompressed_suffix

TEXT = "first\nzweite Zeile ß\n\nhalf\u2028half \x85 \x0b\r\nno newline at the end".encode()
LINES = ["first", "zweite Zeile ß", "", "half\u2028half \x85 \x0b\r", "no newline at the end"]
PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}


@pytest.mark.parametrize("ending", PACK)
def test_lines_are_the_same_however_packed(tmp_path, ending):
    path = tmp_path / f"text.txt{ending}"
    path.write_bytes(PACK[ending](TEXT))
    assert list(read_lines(path)) == LINES
    assert uncompressed_suffix(path) == ".txt"


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_files_joined_by_cat_are_read_to_the_end(tmp_path, ending):
    path = tmp_path / f"text{ending}"
    path.write_bytes(PACK[ending](b"one\n" * 50_000) + PACK[ending](b"two\n"))
    lines = list(read_lines(path))
    assert len(lines) == 50_001 and lines[-1] == "two"


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("harm", ["cut", "garbage"])
def test_a_damaged_file_is_refused(tmp_path, ending, harm):
    whole = PACK[ending](b"".join(b"%d line\n" % n for n in range(20_000)))
    path = tmp_path / f"text{ending}"
    path.write_bytes(whole[: len(whole) // 2] if harm == "cut" else b"not packed at all")
    with pytest.raises(DataError, match="damaged"):
        list(read_lines(path))


def test_byte_order_mark_is_no_text(tmp_path):
    path = tmp_path / "bom.txt"
    path.write_bytes(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")
    assert list(read_lines(path)) == ["a", "\ufeffb"]
    assert read_text(path) == "a\n\ufeffb\n"


def test_a_line_that_is_not_utf8_is_reported_and_reading_goes_on(tmp_path):
    path = tmp_path / "mixed.txt"
    path.write_bytes(b"a good line\nGr\xfc\xdfe\nanother good line\n")
    assert list(read_lines(path)) == ["a good line", None, "another good line"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
        ("Привет, мир! Как дела?\n".encode("cp1251") * 20, "another encoding"),
        ("text".encode("utf-16"), "UTF-16"),
        (gzip.compress(b"text", mtime=0), ".gz"),
        (lzma.compress(b"text"), ".xz"),
        (zstandard.compress(b"text"), ".zst"),
        (b"PK\x03\x04 xlsx", "spreadsheet"),
    ],
)
def test_a_binary_file_is_not_taken_for_text(tmp_path, content, words):
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as error:
        list(read_lines(path))
    assert "\n" not in str(error.value)
    with pytest.raises(DataError, match=words):
        read_text(path)


def test_an_empty_file_has_no_lines(tmp_path):
    path = tmp_path / "empty.txt"
    path.touch()
    assert list(read_lines(path)) == []


def test_globs_are_sorted_and_hold_files_only(tmp_path):
    for name in ("b.tsv", "a.tsv", "c.txt"):
        (tmp_path / name).touch()
    (tmp_path / "d.tsv").mkdir()
    assert [path.name for path in find_files(f"{tmp_path}/*.tsv")] == ["a.tsv", "b.tsv"]
    (tmp_path / "odd[1].tsv").touch()
    assert [path.name for path in find_files(f"{tmp_path}/odd[1].tsv")] == ["odd[1].tsv"]


def test_relative_globs(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.tsv").touch()
    monkeypatch.chdir(tmp_path)
    assert [str(path) for path in find_files("**/*.tsv")] == [os.path.join("deep", "a.tsv")]  # noqa: PTH118


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.tsv", "no such file"),
        ("no*.tsv", "no file matches"),
        ("", "folder"),
        ("a**/b", "looked up"),
        ("a" * 999, "looked up"),
    ],
)
def test_nothing_to_read_is_one_clear_line(tmp_path, name, words):
    with pytest.raises(DataError, match=words):
        find_files(f"{tmp_path}/{name}")


def test_trouble_while_opening(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="is a folder"), open_uncompressed(tmp_path):
        pass
    with pytest.raises(DataError, match="no such file"), open_uncompressed(tmp_path / "gone"):
        pass

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(DataError, match="not allowed to read"), open_uncompressed(tmp_path / "secret"):
        pass


def test_zstd_without_its_library_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "a.zst"
    path.write_bytes(zstandard.compress(b"a"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ConfigError, match=r"pip install 'qkv\[data\]'"):
        list(read_lines(path))


def test_text_that_is_read_whole_must_be_utf8(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a": "mostly good, but \xff"}')
    with pytest.raises(DataError, match="not UTF-8 at byte 24"):
        read_text(path)


@pytest.mark.parametrize("longest", [4, 7, 16, 1000])
@pytest.mark.parametrize("text", ["one two three\n\nfour\tfive\nlast", "天气很好很好很好\n", "\ufeffonelongword a b\n", ""])
def test_long_lines_come_in_parts_that_are_whole_words(text: str, longest: int, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    parts = [*read_byte_chunks(tmp_path / "a.txt", longest)]
    joined = b"".join(parts).decode()
    assert joined == text.removeprefix("\ufeff") + ("" if text.endswith("\n") or not text else "\n")
    assert all(len(part) <= 2 * longest + 1 for part in parts)
    for part in parts:
        part.decode()
    if "one two" in text and longest > 5:
        assert [word for part in parts for word in part.split()] == joined.encode().split()
