"""Word vectors from vectors of character n-grams (Bojanowski et al. 2017, section 3.2), with fastText's hashing.

A word is put between < and >. Its vector is the mean of its own row and the rows of its n-grams; n-grams are hashed into buckets
that share a row.
"""

from dataclasses import dataclass

import numpy as np

EOS = "</s>"  # fastText's end of a line: a word without n-grams


@dataclass(frozen=True)
class Subwords:
    """The rows of words and n-gram buckets, from which out-of-vocabulary words get their vectors."""

    word_rows: np.ndarray  # (V, D), each word's own row without its n-grams
    bucket_rows: np.ndarray  # (buckets, D)
    min_n: int = 3  # shortest n-gram in characters, < and > included
    max_n: int = 6

    def vector(self, word: str) -> np.ndarray | None:
        """Return the vector of an out-of-vocabulary word, (D,); None if it has no n-gram."""
        ids, _ = self.ngrams([word])
        return self.bucket_rows[ids].mean(axis=0) if len(ids) else None

    def ngrams(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the buckets of all words' n-grams, concatenated, and each word's start: (N,) and (words + 1,)."""
        return ngram_table(words, self.min_n, self.max_n, len(self.bucket_rows))

    def matrix(self, words: list[str]) -> np.ndarray:
        """Return the vectors of all words of the vocabulary, (V, D)."""
        from qkv.vectors.kernels.ngrams import mean_with_ngrams

        return mean_with_ngrams(self.word_rows, self.bucket_rows, *self.ngrams(words))


def ngram_table(words: list[str], min_n: int, max_n: int, buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the buckets of all words' n-grams, concatenated, and each word's start: (N,) int32 and (V + 1,) int64."""
    from qkv.vectors.kernels.ngrams import hash_ngrams

    encoded = [b"" if word == EOS else f"<{word}>".encode() for word in words]
    text = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(word) for word in encoded], out=offsets[1:])
    starts = np.zeros(len(words) + 1, np.int64)
    hash_ngrams(text, offsets, min_n, max_n, buckets, starts, np.zeros(0, np.int32))
    ids = np.zeros(starts[-1], np.int32)
    if len(ids):
        hash_ngrams(text, offsets, min_n, max_n, buckets, starts, ids)
    return ids, starts
