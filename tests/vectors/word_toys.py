"""Words with vectors drawn at random, plain and with subwords."""

import numpy as np

from qkv.vectors.subwords import Subwords
from qkv.vectors.word_vectors import WordVectors

WORDS = ["king", "queen", "man", "woman", "Straße", "水", "apple", "pear"]


def plain() -> WordVectors:
    matrix, output = np.random.default_rng(1).normal(size=(2, len(WORDS), 5)).astype(np.float32)
    return WordVectors(WORDS, matrix, output, counts=np.arange(len(WORDS))[::-1])


def with_subwords(shortest: int = 2, longest: int = 4) -> WordVectors:
    rng = np.random.default_rng(2)
    words = ["</s>", *WORDS]
    own, buckets = (rng.normal(size=(n, 6)).astype(np.float32) for n in (len(words), 50))
    subwords = Subwords(own, buckets, shortest, longest)
    return WordVectors(words, subwords.matrix(words), subwords=subwords)
