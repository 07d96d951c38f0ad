"""Heads of words in dependency trees as heads of tokens, coded as in `base.rows.Rows`.

T tokens and N texts in flat arrays, W words of all texts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from qkv.text.check import normalise
from qkv.text.tokenizer import Tokenizer
from qkv.text.treebank import TextWithHeads, validate_heads


class TokensWithHeads(list[int]):
    """The token ids of a text with a dependency tree, and the head of each token."""

    def __init__(self, ids: Sequence[int], head: Sequence[int]):
        super().__init__(ids)
        self.head = list(head)


class SourceFormat(NamedTuple):
    """Special tokens around the sources of pairs."""

    bos: bool = False  # before a source
    eos: bool = False  # after it

    def apply(self, ids: list[int], tokenizer: Tokenizer) -> list[int]:
        """Add the special tokens to the ids of a source."""
        return [*[tokenizer.bos] * self.bos, *ids, *[tokenizer.eos] * self.eos]


PLAIN = SourceFormat()


def encode_sources(tokenizer: Tokenizer, texts: Sequence[str], source_format: SourceFormat = PLAIN) -> list[list[int]]:
    """Encode texts with their special tokens; a text with heads becomes `TokensWithHeads`, without special tokens."""
    if not any(isinstance(text, TextWithHeads) for text in texts):
        return [source_format.apply(ids, tokenizer) for ids in tokenizer.encode_batch(list(texts))]
    return [_encode_words(tokenizer, text) if isinstance(text, TextWithHeads) else tokenizer.encode(text) for text in texts]


def encode_with_heads(tokenizer: Tokenizer, text: TextWithHeads) -> TokensWithHeads:
    """Encode a text from a user, after a check of its heads."""
    heads = validate_heads(text.heads, len(text.split()), lambda _: repr(text[:40]))
    return _encode_words(tokenizer, TextWithHeads(normalise(text), heads))


def add_special_tokens(texts: Sequence[TokensWithHeads], tokenizer: Tokenizer) -> TokensWithHeads:
    """Join texts as an encoder reads them: a bos first and an eos after each, which are roots."""
    ids, head = [tokenizer.bos], [0]
    for text in texts:
        first = len(ids)
        ids += [*text, tokenizer.eos]
        head += [*(2 * first + number for number in text.head), 2 * (first + len(text))]
    return TokensWithHeads(ids, head)


def _encode_words(tokenizer: Tokenizer, text: TextWithHeads) -> TokensWithHeads:
    words = tokenizer.encode_words(text.split())
    if not words:
        return TokensWithHeads([], [])
    pieces = np.array([len(word) for word in words])
    head = token_heads(np.cumsum(pieces) - pieces, pieces, governors([text.heads]), np.array([pieces.sum()]))
    return TokensWithHeads([number for word in words for number in word], head.tolist())


def governors(heads: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the index of each word's head among the words of all texts; a root's is its own. -> (W,)."""
    many = [len(text) for text in heads]
    own = np.arange(sum(many))
    above = np.array([head for text in heads for head in text], dtype=np.int64)
    return np.where(above == 0, own, np.repeat(np.cumsum(many) - many, many) + above - 1)


def token_heads(begins: np.ndarray, pieces: np.ndarray, governor: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the head of each token, given where words begin, their number of pieces, and where texts end. -> (T,).

    A word whose governor was cut off or is in another text is a root; so is every token outside words.
    begins, pieces and governor (W,), pieces 0 where a word was cut off; ends (N,).
    """
    position = np.arange(ends[-1]) - np.repeat(ends - np.diff(ends, prepend=0), np.diff(ends, prepend=0))
    text = np.searchsorted(ends, begins, side="right")
    near = (text[governor] == text) & (pieces[governor] > 0)
    governor = np.where(near, governor, np.arange(len(governor)))
    word = np.repeat(np.arange(len(pieces)), pieces)
    further = np.arange(len(word)) - np.repeat(np.cumsum(pieces) - pieces, pieces)  # pieces of the same word before it
    head = 2 * position
    to = np.where(further > 0, word, governor[word])
    head[begins[word] + further] = 2 * position[begins[to]] + (further > 0)
    return head


def pieces_within(pieces: Sequence[int], room: int) -> np.ndarray:
    """Return how many pieces of each word are among the first `room` pieces. -> (words,)."""
    return np.diff(np.minimum(np.cumsum(pieces), room), prepend=0)
