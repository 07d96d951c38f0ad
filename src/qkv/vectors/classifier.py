"""fastText's supervised text classifier (Joulin et al. 2017), in fastText's own file format.

A line is a text with its labels, words that begin with __label__. Departure: a text with several labels trains on all of them
with equal weights, where fastText draws one. Character n-grams and approximations of the softmax are not supported.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from pydantic import Field

from qkv.base.config import Config
from qkv.base.errors import DataError
from qkv.base.hardware import cpu_cores
from qkv.base.seeds import permuted, rng_at, seed_at
from qkv.text.documents import shorten_file_list
from qkv.text.files import read_byte_lines
from qkv.vectors.corpus import corpus_files
from qkv.vectors.fasttext_format import LOSSES, MODELS, FastTextArguments, FastTextModel, read_fasttext, write_fasttext
from qkv.vectors.hogwild import HogwildTask, train_hogwild
from qkv.vectors.subwords import EOS
from qkv.vectors.word2vec import MIN_RATE

LABEL = "__label__"
CHUNK = 1000  # texts that a thread trains on at once

LabelledText = tuple[list[str], list[str]]  # labels and words


class ClassifierConfig(Config):
    """Settings of the text classifier; the defaults are fastText's."""

    width: int = Field(100, ge=1)
    word_ngrams: int = Field(1, ge=1)  # longest word n-gram
    buckets: int = Field(2_000_000, ge=1)  # hash buckets that share a vector among word n-grams
    min_count: int = Field(1, ge=1)
    epochs: int = Field(5, ge=1)
    learning_rate: float = Field(0.1, gt=0)
    lowercase: bool = False
    threads: int = Field(default_factory=cpu_cores, ge=1)
    seed: int = 0


@dataclass
class EncodedTexts:
    """Texts as arrays for the kernels."""

    ids: np.ndarray  # int32: words of all texts, -1 for unknown ones
    hashes: np.ndarray  # int32: hashes of the same words
    starts: np.ndarray  # (texts + 1,) int64: where each text begins


class FastTextClassifier:
    """A text classifier, made by `train_classifier` or read from a .bin file."""

    def __init__(self, model: FastTextModel, lowercase: bool = False):
        from qkv.vectors.kernels.simd import TILE_COLUMNS, padded_width

        self.model, self.lowercase = model, lowercase
        self.labels = [label.removeprefix(LABEL) for label in model.labels]
        width = padded_width(model.arguments.width)
        self.inputs = pad_matrix(model.input, len(model.input), width)
        self.outputs = pad_matrix(model.output, -(-len(model.output) // TILE_COLUMNS) * TILE_COLUMNS, width)
        self.sizes = (len(model.words), max(model.arguments.buckets, 1), model.arguments.word_ngrams, len(model.labels))

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.model.words)}

    def probabilities(self, texts: Iterable[str]) -> np.ndarray:
        """Return the probability of each label for each text, (texts, labels).

        All 0 for a text without known words or n-grams.
        """
        from qkv.vectors.kernels.classifier import predict_texts

        lines = [(text.lower() if self.lowercase else text).split() for text in texts]
        if not lines:
            return np.zeros((0, len(self.labels)), np.float32)
        encoded = encode_texts(lines, self.index)
        return predict_texts(encoded.ids, encoded.hashes, encoded.starts, self.inputs, self.outputs, self.sizes)

    def predict(self, texts: Iterable[str], count: int = 1) -> list[list[tuple[str, float]]]:
        """Return the `count` most probable labels of each text with their probabilities, best first."""
        probabilities = self.probabilities(texts)
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, :count]
        return [[(self.labels[j], float(row[j])) for j in columns] for row, columns in zip(probabilities, best, strict=True)]

    def save(self, path: Path) -> None:
        """Write a .bin file, which fastText also reads."""
        width = self.model.arguments.width
        outputs = self.outputs[: len(self.labels), :width]
        write_fasttext(dataclasses.replace(self.model, input=self.inputs[:, :width], output=outputs), path)

    @classmethod
    def load(cls, path: Path, lowercase: bool = False) -> "FastTextClassifier":
        """Read a classifier of ours or of fastText's that has a full softmax and no character n-grams.

        The file does not say whether the training text was in lower case; `lowercase` does.
        """
        model = read_fasttext(path)
        if model.arguments.model != MODELS["supervised"] or not model.labels:
            raise DataError(f"{path}: holds word vectors, not a classifier; train one with `qkv vectors train classifier`")
        if model.arguments.loss != LOSSES["softmax"] or model.arguments.max_n:
            raise DataError(
                f"{path}: a classifier with character n-grams or a loss other than softmax is not supported; use it with fastText"
            )
        return cls(model, lowercase)


@dataclass
class TrainedClassifier:
    """A classifier and the figures of its training."""

    classifier: FastTextClassifier
    speed: float  # words per second
    skipped: int  # bytes of the texts that are not UTF-8


def pad_matrix(matrix: np.ndarray, rows: int, width: int) -> np.ndarray:
    """Copy a matrix into a larger one of zeros, (rows, width)."""
    out = np.zeros((rows, width), np.float32)
    out[: matrix.shape[0], : matrix.shape[1]] = matrix
    return out


def read_labelled_texts(files: Sequence[Path], lowercase: bool) -> tuple[list[LabelledText], int]:
    """Read the labels and words of each line that is not blank, and count bytes that are not UTF-8; every line needs a label."""
    texts, skipped = [], 0
    for file in files:
        for number, raw in enumerate(read_byte_lines(file), 1):
            line = raw.decode(errors="ignore")
            skipped += len(raw) - len(line.encode())
            words = line.split()
            labels = [word for word in words if word.startswith(LABEL)]
            if words and not labels:
                raise DataError(f"{file}, line {number}: no label; put a word such as {LABEL}good in each line")
            if words:
                texts.append((labels, [w.lower() if lowercase else w for w in words if not w.startswith(LABEL)]))
    return texts, skipped


def encode_texts(lines: Sequence[list[str]], index: dict[str, int]) -> EncodedTexts:
    """Encode texts as word ids and hashes; each text ends with fastText's end of a line."""
    from qkv.vectors.kernels.classifier import hash_words

    distinct: dict[str, int] = {}
    positions = np.fromiter((distinct.setdefault(w, len(distinct)) for line in lines for w in (*line, EOS)), np.int64)
    text = np.frombuffer("".join(distinct).encode(), np.uint8)
    hashes = hash_words(text, np.cumsum([len(word.encode()) for word in distinct]))
    ids = np.fromiter((index.get(word, -1) for word in distinct), np.int32)
    starts = np.zeros(len(lines) + 1, np.int64)
    np.cumsum([len(line) + 1 for line in lines], out=starts[1:])
    return EncodedTexts(ids[positions], hashes[positions], starts)


def train_classifier(files: Sequence[str | Path], config: ClassifierConfig, quiet: bool = False) -> TrainedClassifier:
    """Train a classifier on labelled texts."""
    paths = corpus_files(files)
    texts, skipped = read_labelled_texts(paths, config.lowercase)
    counts = Counter(word for _, words in texts for word in (*words, EOS))
    labels = Counter(label for text_labels, _ in texts for label in text_labels)
    if len(labels) < 2:
        raise DataError(
            f"{shorten_file_list(paths)}: {len(labels)} label; at least two are needed, words that begin with {LABEL}"
        )
    words = [word for word, count in counts.most_common() if count >= config.min_count]
    if not words:
        raise DataError(f"{shorten_file_list(paths)}: no word occurs {config.min_count} times; lower min_count")
    classifier = FastTextClassifier(_initial_model(words, counts, labels, config), config.lowercase)
    return TrainedClassifier(classifier, _train(classifier, texts, config, quiet), skipped)


def _initial_model(words: list[str], counts: Counter[str], labels: Counter[str], config: ClassifierConfig) -> FastTextModel:
    """Build a model with fastText's initialisation: small random inputs, outputs of zeros."""
    buckets = config.buckets if config.word_ngrams > 1 else 0
    arguments = FastTextArguments(
        width=config.width,
        epochs=config.epochs,
        min_count=config.min_count,
        word_ngrams=config.word_ngrams,
        loss=LOSSES["softmax"],
        model=MODELS["supervised"],
        buckets=buckets,
    )
    names = [label for label, _ in labels.most_common()]
    all_counts = np.array([*(counts[word] for word in words), *(labels[name] for name in names)], np.int64)
    rng = rng_at(config.seed, "classifier")
    inputs = rng.random((len(words) + buckets, config.width), np.float32)
    inputs = (inputs * 2 - 1) / np.float32(config.width)
    outputs = np.zeros((len(names), config.width), np.float32)
    return FastTextModel(arguments, words, all_counts, inputs, outputs, names, int(all_counts.sum()))


def _train(classifier: FastTextClassifier, texts: list[LabelledText], config: ClassifierConfig, quiet: bool) -> float:
    """Train the classifier's matrices in place; return the speed in words per second."""
    from qkv.base.compiler import release_compiler_memory
    from qkv.vectors.kernels.classifier import train_texts

    label_ids = {label: number for number, label in enumerate(classifier.model.labels)}
    labels = np.array([label_ids[label] for text_labels, _ in texts for label in text_labels], np.int32)
    label_starts = np.concatenate([[0], np.cumsum([len(text_labels) for text_labels, _ in texts])])
    encoded = encode_texts([words for _, words in texts], classifier.index)
    data = (encoded.ids, encoded.hashes, encoded.starts, labels, label_starts)
    matrices = (classifier.inputs, classifier.outputs, classifier.sizes)
    chunks_per_epoch = -(-len(texts) // CHUNK)
    chunks = chunks_per_epoch * config.epochs

    def train_chunk(chunk: int) -> None:
        epoch, position = divmod(chunk, chunks_per_epoch)
        positions = np.arange(position * CHUNK, min((position + 1) * CHUNK, len(texts)))
        order = permuted(positions, len(texts), seed_at(config.seed, "order", epoch))
        rates = [config.learning_rate * max(1 - done / chunks, MIN_RATE) for done in (chunk, chunk + 1)]
        train_texts(*data, order, *matrices, *rates)

    train_texts(*data, np.zeros(0, np.int64), *matrices, 0.0, 0.0)  # compiles it
    release_compiler_memory()
    task = HogwildTask(train_chunk, chunks, len(encoded.ids) * config.epochs, "words")
    return train_hogwild(task, {}, config.threads, None, quiet)
