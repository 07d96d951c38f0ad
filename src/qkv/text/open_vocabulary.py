"""A tokenizer of whole words with an open vocabulary: every unseen word gets an id of its own, beyond the vocabulary."""

from qkv.base.errors import ConfigError
from qkv.text.tokenizer import Tokenizer


class OpenVocabularyTokenizer(Tokenizer):
    """A tokenizer of words that collects unseen words in `unseen` instead of encoding them as <unk>."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        check_whole_words(tokenizer)
        super().__init__(tokenizer._library)
        self.unseen: dict[str, int] = {}  # word -> id, in order

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text; those of unseen words are beyond the vocabulary."""
        return [ids for ids, _ in self.encode_with_offsets(texts)]

    def encode_with_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of each text with the characters of each id."""
        encoded = super().encode_with_offsets(texts)
        return [(self._number_unseen(text, ids, offsets), offsets) for text, (ids, offsets) in zip(texts, encoded, strict=True)]

    def _number_unseen(self, text: str, ids: list[int], offsets: list[tuple[int, int]]) -> list[int]:
        """Replace <unk> by the ids of the words there, numbering words that are new."""
        if self.unk not in ids:
            return ids
        numbered = []
        for number, (start, end) in zip(ids, offsets, strict=True):
            if number == self.unk:
                word = self._library.normalizer.normalize_str(text[start:end]).strip()
                number = self.unseen.setdefault(word, len(self) + len(self.unseen))
            numbered.append(number)
        return numbered


def words_by_id(tokenizer: Tokenizer) -> list[str | int]:
    """Return the word of each id, and for a special token the id itself."""
    check_whole_words(tokenizer)
    return [number if number in tokenizer.special_ids else tokenizer.word(number) for number in range(len(tokenizer))]


def check_whole_words(tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer whose tokens are not words."""
    if not tokenizer.whole_words:
        raise ConfigError("an elmo reads whole words, and this tokenizer cuts them into pieces; train one of kind words")
