"""An open vocabulary: unseen words get ids of their own."""

import pytest

from qkv.base.errors import ConfigError
from qkv.text.open_vocabulary import OpenVocabularyTokenizer, words_by_id
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

LINES = ["the cat sat on the mat", "The Mat <s> was new"]


def tokenizer(kind: str = "words", lowercase: bool = True) -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind=kind, vocab=200, lowercase=lowercase), LINES)  # type: ignore[arg-type]


def test_unseen_words_have_numbers_beyond_the_vocabulary() -> None:
    plain = tokenizer()
    speller, words = OpenVocabularyTokenizer(plain), len(plain)
    assert speller.encode("the new cat") == plain.encode("the new cat")
    assert speller.encode("the  DOG sat; dog") == [plain.encode("the")[0], words, words + 1, words]
    assert speller.unseen == {"dog": words, "sat;": words + 1}
    assert speller.encode_words(["mat", "Hund", "dog"]) == [plain.encode("mat"), [words + 2], [words]]
    ((ids, spans),) = speller.encode_with_offsets(["a cat"])
    assert ids == [words + 3, *plain.encode("cat")] and spans == [(0, 1), (2, 5)]


def test_the_spelling_of_a_vocabulary() -> None:
    plain = tokenizer()
    found = words_by_id(plain)
    assert found[:4] == [0, 1, 2, 3] and len(found) == len(plain)
    assert set(found[4:]) == {"the", "cat", "sat", "on", "mat", "<s>", "was", "new"}


def test_pieces_are_refused() -> None:
    for use in (OpenVocabularyTokenizer, words_by_id):
        with pytest.raises(ConfigError, match="whole words"):
            use(tokenizer("bpe"))
