"""Documents: separated by blank lines, or one JSON object per line with spans, in any number of files."""

import gzip
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from qkv.base.errors import DataError
from qkv.text import documents
from qkv.text.documents import Document, DocumentCounts, find_document_files, read_documents


def read(*files: Path) -> tuple[list[tuple[list[str], int]], DocumentCounts]:
    counts = DocumentCounts()
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
    files = find_document_files([str(tmp_path / "*.txt*"), str(tmp_path / "a.txt")])
    assert [path.name for path in files] == ["a.txt", "b.txt.gz"]
    assert [sentences for sentences, _ in read(*files)[0]] == [["One."], ["Two."]]


def test_lines_that_are_no_text_are_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"A good line, of some length, to begin with.\n\xff\xfe\nAnother good line.\n")
    found, counts = read(tmp_path / "a.txt")
    assert found == [(["A good line, of some length, to begin with.", "Another good line."], 1)]
    assert counts.lines_left_out == 1 and counts.undecodable == [(str(tmp_path / "a.txt"), 2)]


def test_no_text_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n \n\n")
    with pytest.raises(DataError, match=r"a\.txt: no text was found"):
        read(tmp_path / "a.txt")
    with pytest.raises(DataError, match=r"(\S+a\.txt, ){4}\S+a\.txt and 2 more: no text was found"):
        read(*[tmp_path / "a.txt"] * 7)


def test_a_long_document_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LONGEST", 10)
    (tmp_path / "a.txt").write_text("One.\nTwo.\nThree.\nFour.\n\nFive.\n")
    found, counts = read(tmp_path / "a.txt")
    assert found == [(["One.", "Two.", "Three."], 1), (["Four."], 4), (["Five."], 6)]
    assert [d.continues for d in read_documents([tmp_path / "a.txt"] * 2, DocumentCounts())] == [False, True, False] * 2
    assert counts.documents == 2


def records(folder: Path, *lines: Any) -> list[Document]:
    path = folder / "a.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return list(read_documents([path], DocumentCounts()))


def span_texts(document: Document) -> list[list[str]]:
    return [[s[a:b] for a, b in spans] for s, spans in zip(document.sentences, document.spans, strict=True)]


def spans_of(text: str, *found: str) -> list[list[int]]:
    return [[text.index(part), text.index(part) + len(part)] for part in found]


def test_records(tmp_path: Path) -> None:
    text = "He met Dr. Smith. Then\the went to\r\n  New York  City!  And\nhome."
    spans = spans_of(text, "Dr. Smith", "York  City", "Then\the", "home")
    one, two = records(tmp_path, {"text": text, "spans": spans, "title": "A walk"}, {"text": "Two."})
    assert one.sentences == ["He met Dr. Smith.", "Then he went to", "New York  City!", "And", "home."]
    assert span_texts(one) == [["Dr. Smith"], ["Then he"], ["York  City"], [], ["home"]]
    assert (two.sentences, two.spans, two.line) == (["Two."], [[]], 2)


def test_compressed_records(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(json.dumps({"text": "今天。明天。", "spans": [[3, 5]]}))
    (found,) = read_documents([tmp_path / "a.jsonl.gz"], DocumentCounts())
    assert found.sentences == ["今天。", "明天。"] and span_texts(found) == [[], ["明天"]]


def test_no_sentence_ends_within_a_span_but_a_paragraph_does(tmp_path: Path) -> None:
    text = "The Yahoo! Inc. sale. It was\nover."
    (found,) = records(tmp_path, {"text": text, "spans": spans_of(text, "Yahoo! Inc", "was\nover")})
    assert found.sentences == ["The Yahoo! Inc. sale.", "It was", "over."]
    assert span_texts(found) == [["Yahoo! Inc"], ["was"], ["over"]]


def test_spans_follow_what_normalising_moves(tmp_path: Path) -> None:
    text = unicodedata.normalize(
        "NFD", "  \u00c9t\u00e9 \u00e0 la  caf\u00e9t\u00e9ria \t\t de No\u00ebl, \u1112\u1161\u11ab\uae00 \u00e9"
    )
    parts = [unicodedata.normalize("NFD", part) for part in ("caf\u00e9t\u00e9ria \t", "No\u00ebl", "\ud55c\uae00 \u00e9")]
    (found,) = records(tmp_path, {"text": text, "spans": spans_of(text, *parts)})
    assert found.sentences == ["\u00c9t\u00e9 \u00e0 la  caf\u00e9t\u00e9ria   de No\u00ebl, \ud55c\uae00 \u00e9"]
    assert span_texts(found) == [["caf\u00e9t\u00e9ria", "No\u00ebl", "\ud55c\uae00 \u00e9"]]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"text": "Ten signs.", "spans": [[4, 11]]}, r"span \[4, 11\] is not within the text, which has 10 characters"),
        ({"text": "Ten signs.", "spans": [[-1, 2]]}, r"span \[-1, 2\] is not within"),
        ({"text": "Ten signs.", "spans": [[3, 3]]}, "or is empty"),
        ({"text": "Ten signs.", "spans": [[2, 4], [0, 3]]}, r"spans \[0, 3\] and \[2, 4\] overlap"),
        ({"text": "Ten signs.", "spans": [[0, 3, 1]]}, "spans must be a list of"),
        ({"text": "Ten signs.", "spans": [[0, True]]}, "spans must be a list of"),
        ({"text": "Ten signs.", "spans": None}, "spans must be a list of"),
        ({"text": " \n "}, "the document is empty"),
        ({"text": 3}, "not a document; give"),
        ({"txt": "a"}, "not a document; give"),
        (["a"], "not a document; give"),
        ("{'text': 'a'}", "not a document; give"),
        ("", "not a document; give"),
        ('{"text": "\\ud800 a"}', "half a character"),
    ],
)
def test_bad_records_are_named(tmp_path: Path, line: Any, problem: str) -> None:
    with pytest.raises(DataError, match=rf"a\.jsonl, line 2: .*{problem}") as found:
        records(tmp_path, {"text": "Good."}, line)
    assert "\n" not in str(found.value)


def test_documents_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("One line. And more.\r\n  An indented\tone.\n\n\nÄnother café.\n".encode())
    record = json.dumps({"text": " Two lines.\n\nwith a blank one \n", "spans": [[1, 4]]})
    (tmp_path / "b.jsonl").write_text(f"{record}\n")
    counts = DocumentCounts()
    found = list(read_documents([tmp_path / "a.txt", tmp_path / "b.jsonl"], counts, whole=True))
    assert [document.sentences for document in found] == [
        ["One line. And more.\n  An indented\tone."],
        ["Änother café."],
        [" Two lines.\n\nwith a blank one \n"],
    ]
    assert [document.spans for document in found] == [[[]]] * 3 and counts.documents == 3


def test_a_long_document_as_it_stands_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.text.documents.LONGEST", 20)
    text = "\n".join(f"line {number} of some" for number in range(9))
    (tmp_path / "a.txt").write_text(f"{text}\n\nanother\n")
    *parts, last = read_documents([tmp_path / "a.txt"], DocumentCounts(), whole=True)
    assert len(parts) > 2 and [part.continues for part in parts] == [False] + [True] * (len(parts) - 1)
    assert "".join(part.sentences[0] for part in parts) == text and last.sentences == ["another"] and not last.continues
