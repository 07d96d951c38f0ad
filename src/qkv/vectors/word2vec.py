"""Word vectors by skip-gram and CBOW (Mikolov et al. 2013a, 2013b), with character n-grams (Bojanowski et al. 2017), by GloVe."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from qkv.base.errors import ConfigError
from qkv.base.hardware import cpu_cores
from qkv.base.seeds import rng_at, seed_at
from qkv.vectors.corpus import Corpus, CorpusConfig, open_corpus
from qkv.vectors.glove import GloVe, GloVeConfig
from qkv.vectors.hogwild import Kept, Work, train
from qkv.vectors.subwords import Subwords
from qkv.vectors.word_vectors import Part, WordVectors

STRETCH = 1 << 16  # words that a thread takes at once; a line that reaches into the next stretch is cut in two
ROWS = 1 << 12  # of a matrix that are copied at once
LEAST_RATE = 1e-4  # share of the rate that is left at the end


class Word2VecConfig(CorpusConfig):
    """How word vectors are learned; the defaults are those of gensim."""

    width: int = Field(100, ge=1)
    window: int = Field(5, ge=1)  # words on either side at the most; how many is drawn anew for each word
    negatives: int = Field(5, ge=0)  # noise words for each word; 0: hierarchical softmax instead
    power: float = 0.75  # noise words are drawn by their counts to this power
    sample: float = Field(1e-3, ge=0)  # words that are a larger share of the text are left out by chance; 0: none
    min_count: int = Field(5, ge=1)
    epochs: int = Field(5, ge=1)
    rate: float | None = Field(None, gt=0)  # 0.025 for skip-gram and 0.05 for CBOW, falling linearly
    result: Part = "input"  # vectors of words (input), of contexts (output), or both together; both matrices are kept
    threads: int = Field(default_factory=cpu_cores, ge=1)
    seed: int = 0

    @model_validator(mode="after")
    def _outputs_are_words(self) -> "Word2VecConfig":
        if self.negatives == 0 and self.result != "input":
            raise ValueError(
                f"hierarchical softmax has no output vectors of words, so result {self.result} is not there; choose input"
            )
        return self


class FastTextConfig(Word2VecConfig):
    """How vectors of words and of their character n-grams are learned; the defaults are those of fastText."""

    architecture: Literal["skipgram", "cbow"] = "skipgram"
    sample: float = Field(1e-4, ge=0)
    rate: float | None = Field(0.05, gt=0)
    shortest: int = Field(3, ge=1)  # characters of an n-gram, with < and > at the ends of a word
    longest: int = Field(6, ge=1)
    buckets: int = Field(2_000_000, ge=1)  # n-grams share so many vectors

    @model_validator(mode="after")
    def _some_ngrams(self) -> "FastTextConfig":
        if self.shortest > self.longest:
            raise ValueError(
                f"shortest {self.shortest} is more than longest {self.longest}, so there are no n-grams; make it less"
            )
        return self


Method = Literal["skipgram", "cbow", "fasttext", "glove"]
CONFIGS: dict[str, type[Word2VecConfig] | type[GloVeConfig]] = {
    "skipgram": Word2VecConfig,
    "cbow": Word2VecConfig,
    "fasttext": FastTextConfig,
    "glove": GloVeConfig,
}


@dataclass
class Learned:
    """Vectors, and how they came about."""

    vectors: WordVectors
    amount: int  # read in all epochs
    unit: str  # words, or entries of GloVe's matrix of counts
    speed: float  # of them a second
    corpus: Corpus


def learn(
    method: Method,
    texts: Sequence[str | Path],
    config: Word2VecConfig | GloVeConfig,
    out: Path | None = None,
    quiet: bool = False,
) -> Learned:
    """Learn vectors from text; with `out`, the same call goes on where an interrupted one stopped, and saves the result there."""
    if out and out.exists() and not (out / "vectors.safetensors").exists():
        raise ConfigError(f"{out}: exists already and holds no vectors; choose another --out")
    corpus = open_corpus(texts, config, quiet)
    learner = GloVe(corpus, config, quiet) if isinstance(config, GloVeConfig) else Learner(method, corpus, config)
    about = {"method": method, "corpus": corpus.folder.name, **config.model_dump(mode="json", exclude={"threads", "memory"})}
    kept = Kept(out, about) if out else None
    speed = train(learner.work, learner.arrays, config.threads, kept, quiet)
    vectors = learner.vectors()
    if out and kept:
        vectors.save(out)
        kept.forget()
    return Learned(vectors, learner.work.amount, learner.work.unit, speed, corpus)


class Learner:
    """The two matrices and what a piece of work does to them."""

    def __init__(self, method: Method, corpus: Corpus, config: Word2VecConfig):
        from qkv.vectors.kernels.compiler import let_go_of_compiler
        from qkv.vectors.vocabulary import kept, noise, tree, vocabulary_size

        self.method, self.corpus, self.config = method, corpus, config
        self.size = vocabulary_size(corpus, config.min_count)
        counts = corpus.counts[: self.size]
        self.keep = kept(counts, config.sample)
        self.targets = noise(counts, config.negatives, config.power) if config.negatives else tree(counts)
        self.per_epoch = -(-corpus.length // STRETCH)
        self.work = Work(self.piece, self.per_epoch * config.epochs, int(corpus.counts.sum()) * config.epochs, "words")
        self.arrays = {"inputs": self._zeros(1), "outputs": self._zeros(1)}
        # This compiles the kernel, where the cache of numba does not hold it, for numbers not to be written to, as a corpus's.
        self._run(np.frombuffer(b"", np.int32), (0.0, 0.0), 0)
        let_go_of_compiler()
        self.arrays = {"inputs": self._first(), "outputs": self._zeros(self.size)}

    @cached_property
    def subwords(self) -> FastTextConfig | None:
        return self.config if isinstance(self.config, FastTextConfig) else None

    @cached_property
    def kernel(self) -> Any:
        from qkv.vectors.kernels import fasttext, word2vec

        if self.subwords:
            return getattr(fasttext, f"train_{self.subwords.architecture}")
        return getattr(word2vec, f"train_{self.method}")

    @cached_property
    def ngrams(self) -> tuple[np.ndarray, ...]:
        """Where each word's n-grams stand among the input rows; nothing without subwords."""
        if not self.subwords:
            return ()
        from qkv.vectors.kernels.ngrams import ngram_table

        words = self.corpus.words(self.size)
        rows, starts = ngram_table(words, self.subwords.shortest, self.subwords.longest, self.subwords.buckets)
        return rows + np.int32(self.size), starts

    def _zeros(self, rows: int) -> np.ndarray:
        from qkv.vectors.kernels.simd import padded

        return np.zeros((rows, padded(self.config.width)), np.float32)

    def _first(self) -> np.ndarray:
        """Small random vectors, as gensim and fastText begin with; zeros beyond the width."""
        rows = self.size + (self.subwords.buckets if self.subwords else 0)
        reach = 1 / self.config.width
        matrix, rng = self._zeros(rows), rng_at(self.config.seed, "vectors")
        for start in range(0, rows, ROWS):
            block = matrix[start : start + ROWS, : self.config.width]
            block[:] = (rng.random(block.shape, np.float32) * 2 - 1) * np.float32(reach)
        return matrix

    def rate_at(self, done: int) -> float:
        """The learning rate after so many pieces."""
        rate = self.config.rate or (0.025 if self.method == "skipgram" else 0.05)
        return rate * max(1 - done / self.work.pieces, LEAST_RATE)

    def piece(self, number: int) -> None:
        """Train on one stretch of the corpus."""
        start = number % self.per_epoch * STRETCH
        ids = np.asarray(self.corpus.stretch(start, start + STRETCH))
        self._run(ids, (self.rate_at(number), self.rate_at(number + 1)), seed_at(self.config.seed, "stretch", number))

    def _run(self, ids: np.ndarray, rates: tuple[float, float], seed: int) -> None:
        rows = (self.arrays["inputs"], self.arrays["outputs"])
        self.kernel(ids, *rows, *self.ngrams, self.keep, self.targets, self.config.window, *rates, seed)

    def vectors(self) -> WordVectors:
        """The result; the matrices of training are used up for it."""
        words, counts = self.corpus.words(self.size), self.corpus.counts[: self.size]
        inputs, outputs = (narrow(self.arrays.pop(name), self.config.width) for name in ("inputs", "outputs"))
        subwords = None
        if self.subwords:
            own, buckets = inputs[: self.size], inputs[self.size :]
            subwords = Subwords(own, buckets, self.subwords.shortest, self.subwords.longest)
            inputs = subwords.matrix(words)
        if not self.config.negatives:
            return WordVectors(words, inputs, subwords=subwords, counts=counts)
        return WordVectors.of_both(words, inputs, outputs, self.config.result, subwords=subwords, counts=counts)


def narrow(matrix: np.ndarray, width: int) -> np.ndarray:
    """The first columns of a matrix, in its own memory, of which the rest is given back: there may be no room for another."""
    flat, rows = matrix.reshape(-1), len(matrix)
    for start in range(0, rows, ROWS):
        block = matrix[start : start + ROWS, :width].copy()
        flat[start * width : start * width + block.size] = block.reshape(-1)
    matrix.resize((rows, width), refcheck=False)
    return matrix
