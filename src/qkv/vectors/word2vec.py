"""Skip-gram and CBOW (Mikolov et al. 2013a, 2013b), over words or over words and character n-grams (Bojanowski et al. 2017)."""

from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from qkv.base.hardware import cpu_cores
from qkv.base.seeds import rng_at, seed_at
from qkv.base.snapshots import SnapshotCount
from qkv.vectors.corpus import WordCorpus, WordCorpusConfig
from qkv.vectors.hogwild import HogwildTask
from qkv.vectors.subwords import Subwords, ngram_table
from qkv.vectors.word_vectors import Part, WordVectors

CHUNK = 1 << 16  # word ids that a thread trains on at once; a line that crosses into the next chunk is cut in two
ROWS = 1 << 12  # rows of a matrix that are initialised or copied at once
MIN_RATE = 1e-4  # share of the learning rate that is left at the end

Architecture = Literal["skipgram", "cbow"]


class Word2VecConfig(WordCorpusConfig):
    """Settings of word2vec; the defaults are gensim's."""

    width: int = Field(100, ge=1)
    window: int = Field(5, ge=1)  # most context words on either side; the actual window is drawn for each word
    negatives: int = Field(5, ge=0)  # negative samples per word; 0: hierarchical softmax instead of negative sampling
    noise_exponent: float = 0.75  # negatives are drawn with probability proportional to count ** noise_exponent
    sample: float = Field(1e-3, ge=0)  # subsampling threshold: words with a higher frequency are dropped at random; 0: never
    min_count: int = Field(5, ge=1)
    epochs: int = Field(5, ge=1)
    learning_rate: float | None = Field(None, gt=0)  # 0.025 for skip-gram and 0.05 for CBOW; falls linearly
    result: Part = "input"  # vectors of words (input), of contexts (output), or both combined; both matrices are saved
    snapshots: SnapshotCount = 0  # of the most frequent words' vectors through training, at log-spaced times
    threads: int = Field(default_factory=cpu_cores, ge=1)
    seed: int = 0

    @model_validator(mode="after")
    def _check_result(self) -> "Word2VecConfig":
        if self.negatives == 0 and self.result != "input":
            raise ValueError(
                f"hierarchical softmax has no output vectors of words, so result cannot be {self.result}; choose input"
            )
        return self


class FastTextConfig(Word2VecConfig):
    """Settings of fastText; the defaults are fastText's."""

    architecture: Architecture = "skipgram"
    sample: float = Field(1e-4, ge=0)
    learning_rate: float | None = Field(0.05, gt=0)
    min_n: int = Field(3, ge=1)  # shortest n-gram in characters, with < and > around the word
    max_n: int = Field(6, ge=1)  # longest n-gram
    buckets: int = Field(2_000_000, ge=1)  # hash buckets that share a vector among n-grams

    @model_validator(mode="after")
    def _check_ngrams(self) -> "FastTextConfig":
        if self.min_n > self.max_n:
            raise ValueError(f"min_n {self.min_n} is more than max_n {self.max_n}, so there are no n-grams; lower min_n")
        return self


class Word2VecTrainer:
    """The input and output matrices, and the training of one chunk of the corpus."""

    buckets = 0  # input rows of n-grams, after those of the words

    def __init__(self, corpus: WordCorpus, config: Word2VecConfig, architecture: Architecture):
        from qkv.base.compiler import release_compiler_memory
        from qkv.vectors.vocabulary import huffman_sampler, keep_thresholds, negative_sampler, vocabulary_size

        self.corpus, self.config, self.architecture = corpus, config, architecture
        self.vocab = vocabulary_size(corpus, config.min_count)
        counts = corpus.counts[: self.vocab]
        self.keep = keep_thresholds(counts, config.sample)
        if config.negatives:
            self.sampler = negative_sampler(counts, config.negatives, config.noise_exponent)
        else:
            self.sampler = huffman_sampler(counts)
        self.chunks_per_epoch = -(-corpus.length // CHUNK)
        words = int(corpus.counts.sum()) * config.epochs
        self.task = HogwildTask(self.train_chunk, self.chunks_per_epoch * config.epochs, words, "words")
        self.kernel, self.ngrams = self._load_kernel()
        self.arrays = {"inputs": self._zeros(1), "outputs": self._zeros(1)}
        # Compile the kernel now unless numba's cache holds it; frombuffer is read-only, as the ids of a corpus are.
        self._run_kernel(np.frombuffer(b"", np.int32), (0.0, 0.0), 0)
        release_compiler_memory()
        self.arrays = {"inputs": self._initial_inputs(self.vocab + self.buckets), "outputs": self._zeros(self.vocab)}

    def _load_kernel(self) -> tuple[Any, tuple[np.ndarray, ...]]:
        """Return the compiled training loop and its arguments about n-grams, of which there are none here."""
        from qkv.vectors.kernels import word2vec

        return getattr(word2vec, f"train_{self.architecture}"), ()

    def _zeros(self, rows: int) -> np.ndarray:
        from qkv.vectors.kernels.simd import padded_width

        return np.zeros((rows, padded_width(self.config.width)), np.float32)

    def _initial_inputs(self, rows: int) -> np.ndarray:
        """Draw uniform values in +-1 / width, as gensim and fastText do; the padding stays zero."""
        limit = 1 / self.config.width
        matrix, rng = self._zeros(rows), rng_at(self.config.seed, "vectors")
        for start in range(0, rows, ROWS):
            block = matrix[start : start + ROWS, : self.config.width]
            block[:] = (rng.random(block.shape, np.float32) * 2 - 1) * np.float32(limit)
        return matrix

    def learning_rate_at(self, chunk: int) -> float:
        """Return the learning rate after `chunk` chunks."""
        rate = self.config.learning_rate or (0.025 if self.architecture == "skipgram" else 0.05)
        return rate * max(1 - chunk / self.task.chunks, MIN_RATE)

    def train_chunk(self, chunk: int) -> None:
        """Train on one chunk of the corpus."""
        start = chunk % self.chunks_per_epoch * CHUNK
        ids = np.asarray(self.corpus.ids(start, start + CHUNK))
        rates = self.learning_rate_at(chunk), self.learning_rate_at(chunk + 1)
        self._run_kernel(ids, rates, seed_at(self.config.seed, "stretch", chunk))

    def _run_kernel(self, ids: np.ndarray, rates: tuple[float, float], seed: int) -> None:
        matrices = (self.arrays["inputs"], self.arrays["outputs"])
        self.kernel(ids, *matrices, *self.ngrams, self.keep, self.sampler, self.config.window, *rates, seed)

    def vectors(self) -> WordVectors:
        """Return the trained vectors; the matrices of training are consumed to save memory."""
        words, counts = self.corpus.words(self.vocab), self.corpus.counts[: self.vocab]
        inputs, outputs = (drop_padding(self.arrays.pop(name), self.config.width) for name in ("inputs", "outputs"))
        subwords = self._subwords(inputs)
        if subwords:
            inputs = subwords.matrix(words)
        if not self.config.negatives:
            return WordVectors(words, inputs, subwords=subwords, counts=counts)
        return WordVectors.combine(words, inputs, outputs, self.config.result, subwords=subwords, counts=counts)

    def frequent_vectors(self, count: int) -> np.ndarray:
        """Return the vectors of the most frequent words so far, (count, D), while training goes on."""
        inputs, outputs = (array[:, : self.config.width] for array in self.arrays.values())
        own = self._input_vectors(inputs, min(count, self.vocab))
        return (
            own
            if self.config.result == "input"
            else WordVectors.combine([""] * len(own), own, outputs[: len(own)], self.config.result).matrix
        )

    def _input_vectors(self, inputs: np.ndarray, count: int) -> np.ndarray:
        return inputs[:count]

    def _subwords(self, inputs: np.ndarray) -> Subwords | None:
        """Return the rows of words and n-grams; None without n-grams."""
        return None


class FastTextTrainer(Word2VecTrainer):
    """word2vec whose input vectors are means of a word's row and the rows of its character n-grams."""

    config: FastTextConfig

    def __init__(self, corpus: WordCorpus, config: FastTextConfig):
        self.buckets = config.buckets
        super().__init__(corpus, config, config.architecture)

    def _load_kernel(self) -> tuple[Any, tuple[np.ndarray, ...]]:
        """Return the compiled training loop, the input rows of all words' n-grams, and each word's start among them."""
        from qkv.vectors.kernels import fasttext

        rows, starts = ngram_table(self.corpus.words(self.vocab), self.config.min_n, self.config.max_n, self.buckets)
        return getattr(fasttext, f"train_{self.architecture}"), (rows + np.int32(self.vocab), starts)

    def _input_vectors(self, inputs: np.ndarray, count: int) -> np.ndarray:
        rows, starts = self.ngrams
        owners = np.repeat(np.arange(count), np.diff(starts[: count + 1]))
        total = inputs[:count].copy()
        np.add.at(total, owners, inputs[rows[: starts[count]]])
        return total / (1 + np.diff(starts[: count + 1]))[:, None].astype(np.float32)

    def _subwords(self, inputs: np.ndarray) -> Subwords | None:
        return Subwords(inputs[: self.vocab], inputs[self.vocab :], self.config.min_n, self.config.max_n)


def drop_padding(matrix: np.ndarray, width: int) -> np.ndarray:
    """Keep the first `width` columns of a matrix within its own memory, and free the rest: there may be no room for a copy."""
    flat, rows = matrix.reshape(-1), len(matrix)
    for start in range(0, rows, ROWS):
        block = matrix[start : start + ROWS, :width].copy()
        flat[start * width : start * width + block.size] = block.reshape(-1)
    matrix.resize((rows, width), refcheck=False)
    return matrix
