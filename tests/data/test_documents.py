"""Documents come back from the cache as they were read, sentence by sentence."""

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from qkv.data import documents
from qkv.data.documents import Documents, tokenise_documents
from qkv.data.inputs import BEGINS_UNIT, BEGINS_WORD, CAPITAL
from qkv.data.workers import Work
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

TEXT = "The first one. It has two sentences!\n\nThe second.\nOn two lines.\n\n\nThe third has only one.\n"


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind="words"), TEXT.splitlines())


def texts(found: Documents, tokenizer: Tokenizer) -> list[list[str]]:
    return [[tokenizer.decode(ids) for ids in found.sentences_of(number)] for number in range(len(found))]


def test_what_was_read_comes_back_and_is_made_once(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    found, counts = tokenise_documents([tmp_path / "a.txt"], tokenizer, Work())
    wanted = [["The first one.", "It has two sentences!"], ["The second.", "On two lines."], ["The third has only one."]]
    assert texts(found, tokenizer) == wanted
    assert (counts.documents, counts.sentences) == (3, 5)
    monkeypatch.setattr(documents, "read_file", lambda *_: pytest.fail("read again"))
    again, known = tokenise_documents([tmp_path / "a.txt"], tokenizer, Work())
    assert texts(again, tokenizer) == wanted and known == counts


def test_another_text_or_tokenizer_is_another_entry(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "a.txt"
    path.write_text("One.\n")
    assert len(tokenise_documents([path], tokenizer, Work())[0]) == 1
    path.write_text("The one.\n\nAnd another document.\n")
    assert len(tokenise_documents([path], tokenizer, Work())[0]) == 2
    letters = train_tokenizer(TokenizerConfig(kind="characters"), ["The one. And another document"])
    found, _ = tokenise_documents([path], letters, Work())
    assert texts(found, letters) == [["The one."], ["And another document."]]


def test_a_damaged_entry_is_made_again(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    tokenise_documents([path], tokenizer, Work())
    (ids,) = (tmp_path / "cache" / "shards").glob("*/tokens.ids")
    ids.write_bytes(ids.read_bytes()[:-2])
    found, _ = tokenise_documents([path], tokenizer, Work())
    assert texts(found, tokenizer)[2] == ["The third has only one."]


def pieces(found: Documents, tokenizer: Tokenizer, mark: int, number: int = 0) -> list[str]:
    """The pieces of a document that carry a mark."""
    marked = found.flags[number] & mark > 0
    return [piece.removeprefix("▁") for piece in tokenizer.pieces(found.tokens[number][marked])]


def test_marks_come_with_the_tokens(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("The Bank of England. It fell!\n\n他说过。\n", encoding="utf-8")
    letters = train_tokenizer(TokenizerConfig(kind="characters", lowercase=True), ["the bank of england it fell! 他说过。"])
    found, _ = tokenise_documents([path], letters, Work())
    spelled = letters.pieces(found.tokens[0])
    assert (
        "".join(p for p, mark in zip(spelled, found.flags[0], strict=True) if mark & CAPITAL and p != "▁") == "thebankenglandit"
    )
    assert (found.flags[0] & BEGINS_WORD > 0).sum() == len(["The", "Bank", "of", "England", ".", "It", "fell", "!"])
    assert found.flags[1].tolist() == 4 * [BEGINS_WORD | BEGINS_UNIT]


def test_spans_make_units(tmp_path: Path) -> None:
    text = "The Bank of England. It fell."
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "spans": [[4, 19]]}))
    tokenizer = train_tokenizer(TokenizerConfig(kind="wordpiece"), [text])
    found, _ = tokenise_documents([tmp_path / "a.jsonl"], tokenizer, Work())
    assert pieces(found, tokenizer, BEGINS_WORD) == ["The", "Bank", "of", "England", ".", "It", "fell", "."]
    assert pieces(found, tokenizer, BEGINS_UNIT) == ["The", "Bank", ".", "It", "fell", "."]
    assert pieces(found, tokenizer, CAPITAL) == ["The", "Bank", "England", "It"]


def test_other_units_are_another_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", types.SimpleNamespace(lcut=lambda text: [text[:2], text[2:]], setLogLevel=print))
    path = tmp_path / "a.txt"
    path.write_text("银行工作", encoding="utf-8")
    letters = train_tokenizer(TokenizerConfig(kind="characters"), ["银行工作"])
    assert pieces(tokenise_documents([path], letters, Work())[0], letters, BEGINS_UNIT) == list("银行工作")
    assert pieces(tokenise_documents([path], letters, Work(), units="jieba")[0], letters, BEGINS_UNIT) == list("银工")


def test_long_documents_are_kept_in_parts(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_PART", 8)
    monkeypatch.setattr(documents, "CHUNK", 30)
    path = tmp_path / "a.txt"
    path.write_text(TEXT.replace("\n\n", "\n") + "\nThe first one. It " + 9 * "has " + "\n")
    found, _ = tokenise_documents([path], tokenizer, Work())
    wanted = [["The first one.", "It has two sentences!"], ["The second.", "On two lines."], ["The third has only one."]]
    assert texts(found, tokenizer) == [*wanted, ["The first one."], [" ".join(["It", *9 * ["has"]])]]
    assert found.flags.ends.tolist() == found.tokens.ends.tolist()
    assert found.document.tolist() == [0, 0, 1, 2, 2]


def test_what_was_read_in_parts_is_one_document(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.text.documents.LONGEST", 20)
    monkeypatch.setattr(documents, "CHUNK", 30)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(TEXT.replace("\n\n", "\n", 1))
    for _ in ("made", "from the cache"):
        found, counts = tokenise_documents([tmp_path / "a.txt", tmp_path / "b.txt"], tokenizer, Work())
        assert found.document.tolist() == [0, 0, 1, 2, 2, 3] and counts.documents == 4


def test_documents_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_PART", 6)
    tokenizer = train_tokenizer(TokenizerConfig(kind="byte-bpe", vocab=270), TEXT.splitlines())
    text = "one two\n three\tone. two one three two\n\nthree"
    (tmp_path / "a.txt").write_text(text)
    found, counts = tokenise_documents([tmp_path / "a.txt"], tokenizer, Work(), whole=True)
    assert counts.documents == 2 and not found.flags.ids.any() and max(found.tokens.lengths(np.arange(len(found)))) == 6
    for number, document in enumerate(text.split("\n\n")):
        parts = np.flatnonzero(found.document == number)
        assert np.concatenate([found.tokens[part] for part in parts]).tolist() == tokenizer.encode(document)
        assert found.first[parts].tolist() == [True] + [False] * (len(parts) - 1)
        assert found.last[parts].tolist() == [False] * (len(parts) - 1) + [True]
    marked, _ = tokenise_documents([tmp_path / "a.txt"], tokenizer, Work())
    assert len(marked.sentences.ids) > 2  # another cache: these are in sentences
