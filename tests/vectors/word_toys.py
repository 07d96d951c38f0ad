"""A few words with random vectors, with and without subwords."""

import numpy as np

from qkv.vectors.subwords import Subwords
from qkv.vectors.word_vectors import WordVectors

WORDS = ["king", "queen", "man", "woman", "Straße", "水", "apple", "pear"]


def plain() -> WordVectors:
    matrix, output = np.random.default_rng(1).normal(size=(2, len(WORDS), 5)).astype(np.float32)
    return WordVectors(WORDS, matrix, output, counts=np.arange(len(WORDS))[::-1])


def with_subwords(min_n: int = 2, max_n: int = 4) -> WordVectors:
    rng = np.random.default_rng(2)
    words = ["</s>", *WORDS]
    word_rows, bucket_rows = (rng.normal(size=(n, 6)).astype(np.float32) for n in (len(words), 50))
    subwords = Subwords(word_rows, bucket_rows, min_n, max_n)
    return WordVectors(words, subwords.matrix(words), subwords=subwords)
