"""Training of word vectors by skip-gram, CBOW, fastText or GloVe."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from qkv.base.errors import ConfigError
from qkv.vectors.corpus import WordCorpus, open_corpus
from qkv.vectors.glove import GloVeConfig, GloVeTrainer
from qkv.vectors.hogwild import HogwildCheckpoint, HogwildTask, train_hogwild
from qkv.vectors.snapshots import VectorSnapshotWriter
from qkv.vectors.word2vec import FastTextConfig, FastTextTrainer, Word2VecConfig, Word2VecTrainer
from qkv.vectors.word_vectors import TENSORS, WordVectors

Method = Literal["skipgram", "cbow", "fasttext", "glove"]


class VectorTrainer(Protocol):
    """Arrays that threads share, and the task that trains them."""

    task: HogwildTask
    arrays: dict[str, np.ndarray]

    def vectors(self) -> WordVectors:
        """Return the trained vectors."""

    def frequent_vectors(self, count: int) -> np.ndarray:
        """Return the vectors of the most frequent words so far, (count, D), while training goes on."""


@dataclass(frozen=True)
class VectorMethod:
    """A way to train word vectors."""

    config: type[Word2VecConfig] | type[GloVeConfig]
    trainer: Callable[[WordCorpus, Any, bool], VectorTrainer]  # from the corpus, the config and whether to be quiet


METHODS: dict[str, VectorMethod] = {
    "skipgram": VectorMethod(Word2VecConfig, lambda corpus, config, _: Word2VecTrainer(corpus, config, "skipgram")),
    "cbow": VectorMethod(Word2VecConfig, lambda corpus, config, _: Word2VecTrainer(corpus, config, "cbow")),
    "fasttext": VectorMethod(FastTextConfig, lambda corpus, config, _: FastTextTrainer(corpus, config)),
    "glove": VectorMethod(GloVeConfig, GloVeTrainer),
}


@dataclass
class TrainedVectors:
    """Word vectors and the figures of their training."""

    vectors: WordVectors
    amount: int  # trained on in all epochs, in `unit`
    unit: str  # words, or entries of GloVe's co-occurrence matrix
    speed: float  # units per second
    corpus: WordCorpus


def train_vectors(
    method: Method,
    texts: Sequence[str | Path],
    config: Word2VecConfig | GloVeConfig,
    out: Path | None = None,
    quiet: bool = False,
) -> TrainedVectors:
    """Train word vectors on text; with `out`, resume an interrupted training, and save the vectors there."""
    if out and out.exists() and not (out / TENSORS).exists():
        raise ConfigError(f"{out}: exists already and holds no vectors; choose another --out")
    corpus = open_corpus(texts, config, quiet)
    trainer = METHODS[method].trainer(corpus, config, quiet)
    settings = {
        "method": method,
        "corpus": corpus.folder.name,
        **config.model_dump(mode="json", exclude={"threads", "memory", "snapshots"}),
    }
    checkpoint = HogwildCheckpoint(out, settings) if out else None
    snapshots = None
    if out and config.snapshots:
        snapshots = VectorSnapshotWriter(out, config.snapshots, trainer.task.chunks, trainer.frequent_vectors)
    speed = train_hogwild(trainer.task, trainer.arrays, config.threads, checkpoint, quiet, snapshots)
    vectors = trainer.vectors()
    if out and checkpoint:
        vectors.save(out)
        checkpoint.delete()
        if snapshots:
            snapshots.finish()
    return TrainedVectors(vectors, trainer.task.amount, trainer.task.unit, speed, corpus)
