"""Vectors of words from vectors of their character n-grams (Bojanowski et al. 2017, section 3.2), with fastText's hashing.

A word stands between < and >; its vector is the mean of its own and of those of its n-grams, and n-grams that share a bucket
share a vector.
"""

from dataclasses import dataclass

import numpy as np

END = "</s>"  # fastText's end of a line: a word without n-grams


@dataclass(frozen=True)
class Subwords:
    """What a word that was never seen gets its vector from."""

    own: np.ndarray  # (V, D), each word's own vector, before its n-grams come to it
    buckets: np.ndarray  # (buckets, D)
    shortest: int = 3  # characters of an n-gram, with < and >
    longest: int = 6

    def vector(self, word: str) -> np.ndarray | None:
        """The vector of a word outside the vocabulary, (D,); None where it has no n-gram."""
        ids, _ = self.ngrams([word])
        return self.buckets[ids].mean(axis=0) if len(ids) else None

    def ngrams(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Buckets of all words' n-grams in a row, and where each word's begin: (N,) and (words + 1,)."""
        from qkv.vectors.kernels.ngrams import ngram_table

        return ngram_table(words, self.shortest, self.longest, len(self.buckets))

    def matrix(self, words: list[str]) -> np.ndarray:
        """The vectors of all words of the vocabulary, (V, D)."""
        from qkv.vectors.kernels.ngrams import means

        return means(self.own, self.buckets, *self.ngrams(words))
