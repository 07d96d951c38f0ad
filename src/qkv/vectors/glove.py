"""GloVe (Pennington, Socher and Manning 2014): vectors whose products are the logarithms of co-occurrence counts.

The objective is equation 8: the sum over nonzero X_ij of f(X_ij) (w_i . w~_j + b_i + b~_j - log X_ij)^2, where f(x) is
(x / x_max)^0.75, 1 at the most. AdaGrad is that of the authors' program, which their figures come from: gradients of half the
objective, the rate inside the squares that are summed, sums that begin with 1. Departure: X_ij and X_ji, which are equal and
share no parameter, follow each other.
"""

from typing import Any

import numpy as np
from pydantic import Field

from qkv.base.errors import DataError
from qkv.base.files import atomic_folder
from qkv.base.hardware import cpu_cores
from qkv.base.seeds import rng_at
from qkv.data.cache import cache_folder, key_of, lock_folder
from qkv.vectors.cooccurrence import PAIR, Pairs, count_pairs, open_pairs
from qkv.vectors.corpus import Corpus, CorpusConfig
from qkv.vectors.hogwild import Work, showing
from qkv.vectors.word_vectors import Part, WordVectors

FORMAT = 2  # of counted pairs in the cache


class GloVeConfig(CorpusConfig):
    """How GloVe's vectors are learned; the defaults are those of the paper."""

    width: int = Field(100, ge=1)
    window: int = Field(10, ge=1)  # words on either side; a word at distance d counts 1/d
    min_count: int = Field(5, ge=1)
    epochs: int = Field(50, ge=1)  # through all pairs of words, not through the text
    rate: float = Field(0.05, gt=0)
    x_max: float = Field(100, gt=0)  # pairs that are this frequent, or more, weigh 1
    power: float = 0.75  # pairs that are not weigh (x / x_max) to this power
    result: Part = "sum"  # vectors of words (input), of contexts (output), or both together; both matrices are kept
    memory: float = Field(1.0, gt=0)  # GiB for counting pairs; what does not fit goes to disk
    threads: int = Field(default_factory=cpu_cores, ge=1)
    seed: int = 0


class GloVe:
    """Both matrices, biases after their rows, with their sums of squared gradients, and what a piece of work does to them."""

    def __init__(self, corpus: Corpus, config: GloVeConfig, quiet: bool = False) -> None:
        from qkv.vectors.kernels.compiler import let_go_of_compiler
        from qkv.vectors.vocabulary import vocabulary_size

        self.corpus, self.config = corpus, config
        self.size = vocabulary_size(corpus, config.min_count)
        self.pairs = cached_pairs(corpus, self.size, config, quiet)
        self.work = Work(self.piece, config.epochs * len(self.pairs.sizes), config.epochs * self.pairs.entries, "entries")
        self.arrays = self._first(1)
        self._run(np.zeros(0, PAIR))  # which compiles the kernel, where the cache of numba does not hold it
        let_go_of_compiler()
        self.arrays = self._first(self.size)

    def _first(self, rows: int) -> dict[str, np.ndarray]:
        from qkv.vectors.kernels.simd import padded

        shape, rng = (rows, padded(self.config.width + 1)), rng_at(self.config.seed, "glove")
        arrays = {}
        for name in ("words", "contexts"):
            arrays[name] = (rng.random(shape, np.float32) - np.float32(0.5)) / np.float32(self.config.width)
            arrays[f"{name}_squares"] = np.ones(shape, np.float32)
        return arrays

    def piece(self, number: int) -> None:
        """Train on one bucket of pairs; each epoch goes through all of them, in an order of its own."""
        epoch, place = divmod(number, len(self.pairs.sizes))
        bucket = rng_at(self.config.seed, "buckets", epoch).permutation(len(self.pairs.sizes))[place]
        pairs = self.pairs.bucket(bucket)
        self._run(pairs[rng_at(self.config.seed, "pairs", number).permutation(len(pairs))])

    def _run(self, pairs: np.ndarray) -> None:
        from qkv.vectors.kernels import glove as kernels

        update: Any = kernels.update  # numba's own types know no number of arguments
        numbers = (np.float32(number) for number in (self.config.rate, self.config.x_max, self.config.power))
        update(pairs, *self.arrays.values(), self.config.width, *numbers)

    def vectors(self) -> WordVectors:
        """The words' vectors: of the words, of the contexts, or both together."""
        words, counts = self.corpus.words(self.size), self.corpus.counts[: self.size]
        inputs, outputs = (np.ascontiguousarray(self.arrays[name][:, : self.config.width]) for name in ("words", "contexts"))
        return WordVectors.of_both(words, inputs, outputs, self.config.result, counts=counts)


def cached_pairs(corpus: Corpus, size: int, config: GloVeConfig, quiet: bool) -> Pairs:
    """The counted pairs of the corpus, from the cache or made now."""
    folder = cache_folder() / "pairs" / key_of([FORMAT, corpus.folder.name, size, config.window])
    with lock_folder(folder):
        if not (folder / "pairs.json").exists():
            with atomic_folder(folder) as aside, showing(corpus.length, "words", quiet) as show:
                count_pairs(corpus, size, config.window, aside, config.memory, config.threads, show)
    pairs = open_pairs(folder)
    if not len(pairs):
        raise DataError("no two words stand in one line, so there is nothing to count; lines of several words are wanted")
    return pairs
