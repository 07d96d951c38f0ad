"""Documents come back from the cache as they were read, sentence by sentence."""

from pathlib import Path

import pytest

from qkv.data import documents
from qkv.data.documents import Documents, tokenised_documents
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

TEXT = "The first one. It has two sentences!\n\nThe second.\nOn two lines.\n\n\nThe third has only one.\n"


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind="words"), TEXT.splitlines())


def texts(found: Documents, tokenizer: Tokenizer) -> list[list[str]]:
    return [[tokenizer.decode(ids) for ids in found.sentences_of(number)] for number in range(len(found))]


def test_what_was_read_comes_back_and_is_made_once(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    found, counts = tokenised_documents([tmp_path / "a.txt"], tokenizer, quiet=True)
    wanted = [["The first one.", "It has two sentences!"], ["The second.", "On two lines."], ["The third has only one."]]
    assert texts(found, tokenizer) == wanted
    assert (counts.documents, counts.sentences) == (3, 5)
    monkeypatch.setattr(documents, "read_documents", lambda *_: pytest.fail("read again"))
    again, known = tokenised_documents([tmp_path / "a.txt"], tokenizer, quiet=True)
    assert texts(again, tokenizer) == wanted and known == counts


def test_another_text_or_tokenizer_is_another_entry(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "a.txt"
    path.write_text("One.\n")
    assert len(tokenised_documents([path], tokenizer, quiet=True)[0]) == 1
    path.write_text("The one.\n\nAnd another document.\n")
    assert len(tokenised_documents([path], tokenizer, quiet=True)[0]) == 2
    letters = train_tokenizer(TokenizerConfig(kind="characters"), ["The one. And another document"])
    found, _ = tokenised_documents([path], letters, quiet=True)
    assert texts(found, letters) == [["The one."], ["And another document."]]


def test_a_damaged_entry_is_made_again(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    tokenised_documents([path], tokenizer, quiet=True)
    (ids,) = (tmp_path / "cache" / "tokens").glob("*/tokens.ids")
    ids.write_bytes(ids.read_bytes()[:-2])
    found, _ = tokenised_documents([path], tokenizer, quiet=True)
    assert texts(found, tokenizer)[2] == ["The third has only one."]
