"""A tokenizer of whole words that knows how unseen ones are spelled: each gets a number of its own, beyond the vocabulary."""

from qkv.base.errors import ConfigError
from qkv.text.tokenizer import Tokenizer


class OpenVocabularyTokenizer(Tokenizer):
    """Encodes as the tokenizer that it is made of, but for unseen words, which it keeps."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        check_whole_words(tokenizer)
        super().__init__(tokenizer._library)
        self.unseen: dict[str, int] = {}  # word -> its number, in order

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text; those of unseen words are beyond the vocabulary."""
        return [ids for ids, _ in self.encode_with_offsets(texts)]

    def encode_with_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The same with the characters that each id stands for."""
        found = super().encode_with_offsets(texts)
        return [(self._spelled(text, ids, spans), spans) for text, (ids, spans) in zip(texts, found, strict=True)]

    def _spelled(self, text: str, ids: list[int], spans: list[tuple[int, int]]) -> list[int]:
        if self.unk not in ids:
            return ids
        words = zip(ids, spans, strict=True)
        return [number if number != self.unk else self._number(text[start:end]) for number, (start, end) in words]

    def _number(self, word: str) -> int:
        normalised = self._library.normalizer.normalize_str(word).strip()
        return self.unseen.setdefault(normalised, len(self) + len(self.unseen))


def words_by_id(tokenizer: Tokenizer) -> list[str | int]:
    """The word that each id stands for; of a control token its number."""
    check_whole_words(tokenizer)
    return [number if number in tokenizer.special_ids else tokenizer.word(number) for number in range(len(tokenizer))]


def check_whole_words(tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer whose tokens are not words."""
    if not tokenizer.whole_words:
        raise ConfigError("an elmo reads whole words, and this tokenizer cuts them into pieces; train one of kind words")
