"""GloVe (Pennington, Socher and Manning 2014): vectors whose products approximate the logarithms of co-occurrence counts.

The objective is equation 8: the sum over nonzero X_ij of f(X_ij) (w_i . w~_j + b_i + b~_j - log X_ij)^2, where f(x) is
min(1, (x / x_max)^alpha). AdaGrad follows the authors' program, from which their figures come: gradients of half the objective,
the learning rate inside the squares that are summed, sums that begin at 1. Departure: the steps for X_ij and X_ji, which are
equal and share no parameter, follow each other.
"""

from typing import Any

import numpy as np
from pydantic import Field

from qkv.base.errors import DataError
from qkv.base.files import atomic_folder
from qkv.base.hardware import cpu_cores
from qkv.base.seeds import rng_at
from qkv.base.snapshots import SnapshotCount
from qkv.data.cache import cache_folder, cache_key, lock_folder
from qkv.vectors.cooccurrence import PAIR, CooccurrenceCounts, count_cooccurrences, open_cooccurrences
from qkv.vectors.corpus import WordCorpus, WordCorpusConfig
from qkv.vectors.hogwild import HogwildTask, progress_bar
from qkv.vectors.word_vectors import Part, WordVectors

CACHE_FORMAT = 2  # of co-occurrence counts


class GloVeConfig(WordCorpusConfig):
    """Settings of GloVe; the defaults are the paper's."""

    width: int = Field(100, ge=1)
    window: int = Field(10, ge=1)  # context words on either side; a word at distance d counts 1/d
    min_count: int = Field(5, ge=1)
    epochs: int = Field(50, ge=1)  # passes over the co-occurrence counts, not over the text
    learning_rate: float = Field(0.05, gt=0)
    x_max: float = Field(100, gt=0)  # counts of x_max and more get weight 1,
    alpha: float = 0.75  # smaller ones (x / x_max) ** alpha
    result: Part = "sum"  # vectors of words (input), of contexts (output), or both combined; both matrices are saved
    memory: float = Field(1.0, gt=0)  # GiB for co-occurrence counts; the rest goes to disk
    snapshots: SnapshotCount = 0  # of the most frequent words' vectors through training, at log-spaced times
    threads: int = Field(default_factory=cpu_cores, ge=1)
    seed: int = 0


class GloVeTrainer:
    """Word and context matrices with a bias after each row, their AdaGrad sums, and the training of one bucket of counts."""

    def __init__(self, corpus: WordCorpus, config: GloVeConfig, quiet: bool = False) -> None:
        from qkv.base.compiler import release_compiler_memory
        from qkv.vectors.vocabulary import vocabulary_size

        self.corpus, self.config = corpus, config
        self.vocab = vocabulary_size(corpus, config.min_count)
        self.counts = cached_cooccurrences(corpus, self.vocab, config, quiet)
        chunks, entries = config.epochs * len(self.counts.sizes), config.epochs * self.counts.entries
        self.task = HogwildTask(self.train_chunk, chunks, entries, "entries")
        self.arrays = self._initial_arrays(1)
        self._run_kernel(np.zeros(0, PAIR))  # compiles the kernel unless numba's cache holds it
        release_compiler_memory()
        self.arrays = self._initial_arrays(self.vocab)

    def _initial_arrays(self, rows: int) -> dict[str, np.ndarray]:
        from qkv.vectors.kernels.simd import padded_width

        shape, rng = (rows, padded_width(self.config.width + 1)), rng_at(self.config.seed, "glove")
        arrays = {}
        for name in ("words", "contexts"):
            arrays[name] = (rng.random(shape, np.float32) - np.float32(0.5)) / np.float32(self.config.width)
            arrays[f"{name}_squares"] = np.ones(shape, np.float32)
        return arrays

    def train_chunk(self, chunk: int) -> None:
        """Train on one bucket of counts; each epoch visits all buckets, in an order of its own."""
        epoch, position = divmod(chunk, len(self.counts.sizes))
        bucket = rng_at(self.config.seed, "buckets", epoch).permutation(len(self.counts.sizes))[position]
        pairs = self.counts.bucket(bucket)
        self._run_kernel(pairs[rng_at(self.config.seed, "pairs", chunk).permutation(len(pairs))])

    def _run_kernel(self, pairs: np.ndarray) -> None:
        from qkv.vectors.kernels import glove

        kernel: Any = glove.train_pairs  # its arguments have no types for mypy
        numbers = (np.float32(number) for number in (self.config.learning_rate, self.config.x_max, self.config.alpha))
        kernel(pairs, *self.arrays.values(), self.config.width, *numbers)

    def frequent_vectors(self, count: int) -> np.ndarray:
        """Return the vectors of the most frequent words so far, (count, D), while training goes on."""
        inputs, outputs = (self.arrays[name][:count, : self.config.width] for name in ("words", "contexts"))
        return WordVectors.combine([""] * len(inputs), inputs, outputs, self.config.result).matrix

    def vectors(self) -> WordVectors:
        """Return the trained vectors."""
        words, counts = self.corpus.words(self.vocab), self.corpus.counts[: self.vocab]
        inputs, outputs = (np.ascontiguousarray(self.arrays[name][:, : self.config.width]) for name in ("words", "contexts"))
        return WordVectors.combine(words, inputs, outputs, self.config.result, counts=counts)


def cached_cooccurrences(corpus: WordCorpus, vocab: int, config: GloVeConfig, quiet: bool) -> CooccurrenceCounts:
    """Open the co-occurrence counts of the corpus; count them first unless the cache holds them."""
    folder = cache_folder() / "pairs" / cache_key([CACHE_FORMAT, corpus.folder.name, vocab, config.window])
    with lock_folder(folder):
        if not (folder / "pairs.json").exists():
            with atomic_folder(folder) as aside, progress_bar(corpus.length, "words", quiet) as show:
                count_cooccurrences(corpus, vocab, config.window, aside, config.memory, config.threads, show)
    counts = open_cooccurrences(folder)
    if not len(counts):
        raise DataError("no line has two words of the vocabulary, so no words co-occur; give lines of several words")
    return counts
