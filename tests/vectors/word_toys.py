"""Words with vectors drawn at random, plain and with subwords."""

import numpy as np

from qkv.vectors.store import Vectors
from qkv.vectors.subwords import Subwords

WORDS = ["king", "queen", "man", "woman", "Straße", "水", "apple", "pear"]


def plain() -> Vectors:
    matrix, output = np.random.default_rng(1).normal(size=(2, len(WORDS), 5)).astype(np.float32)
    return Vectors(WORDS, matrix, output, counts=np.arange(len(WORDS))[::-1])


def with_subwords(shortest: int = 2, longest: int = 4) -> Vectors:
    rng = np.random.default_rng(2)
    words = ["</s>", *WORDS]
    own, buckets = (rng.normal(size=(n, 6)).astype(np.float32) for n in (len(words), 50))
    subwords = Subwords(own, buckets, shortest, longest)
    return Vectors(words, subwords.matrix(words), subwords=subwords)
