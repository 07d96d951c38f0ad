"""fastText's supervised text classifier (Joulin et al. 2017), in its own file format.

A line is a text with its labels, words that begin with __label__. Departure: a text with several labels is told all of them, in
equal shares, where fastText draws one. Character n-grams and the approximations of the softmax are not here.
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
from qkv.vectors.fasttext_format import LOSSES, MODELS, Arguments, FastText, read_fasttext, write_fasttext
from qkv.vectors.hogwild import Work, train
from qkv.vectors.subwords import END
from qkv.vectors.word2vec import LEAST_RATE

LABEL = "__label__"
TOGETHER = 1000  # texts that a thread takes at once

Example = tuple[list[str], list[str]]  # labels and words


class ClassifierConfig(Config):
    """How a classifier is trained; the defaults are fastText's."""

    width: int = Field(100, ge=1)
    word_ngrams: int = Field(1, ge=1)  # words of the longest n-gram
    buckets: int = Field(2_000_000, ge=1)  # n-grams share so many vectors
    min_count: int = Field(1, ge=1)
    epochs: int = Field(5, ge=1)
    rate: float = Field(0.1, gt=0)
    lowercase: bool = False
    threads: int = Field(default_factory=cpu_cores, ge=1)
    seed: int = 0


@dataclass
class Encoded:
    """Texts as the kernels read them."""

    ids: np.ndarray  # int32: words, -1 for unknown ones
    hashes: np.ndarray  # int32: of the same words
    starts: np.ndarray  # (texts + 1,) int64


class Classifier:
    """Labels of texts; made by `learn_classifier`, or read from a .bin file."""

    def __init__(self, model: FastText, lowercase: bool = False):
        from qkv.vectors.kernels.simd import padded

        self.model, self.lowercase = model, lowercase
        self.labels = [label.removeprefix(LABEL) for label in model.labels]
        width = padded(model.arguments.width)
        self.inputs, self.outputs = (wide(matrix, rows, width) for matrix, rows in self._matrices())
        self.sizes = (len(model.words), max(model.arguments.buckets, 1), model.arguments.word_ngrams, len(model.labels))

    def _matrices(self) -> list[tuple[np.ndarray, int]]:
        from qkv.vectors.kernels.simd import ACROSS

        return [(self.model.input, len(self.model.input)), (self.model.output, -(-len(self.model.output) // ACROSS) * ACROSS)]

    @cached_property
    def index(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.model.words)}

    def probabilities(self, texts: Iterable[str]) -> np.ndarray:
        """For each text the probability of each label, (texts, labels); all 0 for a text of which nothing is known."""
        from qkv.vectors.kernels.classifier import judge_texts

        lines = [(text.lower() if self.lowercase else text).split() for text in texts]
        if not lines:
            return np.zeros((0, len(self.labels)), np.float32)
        encoded = encode(lines, self.index)
        return judge_texts(encoded.ids, encoded.hashes, encoded.starts, self.inputs, self.outputs, self.sizes)

    def predict(self, texts: Iterable[str], count: int = 1) -> list[list[tuple[str, float]]]:
        """For each text its most probable labels, best first."""
        found = self.probabilities(texts)
        best = np.argsort(-found, axis=1, kind="stable")[:, :count]
        return [[(self.labels[j], float(row[j])) for j in places] for row, places in zip(found, best, strict=True)]

    def save(self, path: Path) -> None:
        """Write a .bin file, which fastText reads too."""
        width = self.model.arguments.width
        outputs = self.outputs[: len(self.labels), :width]
        write_fasttext(dataclasses.replace(self.model, input=self.inputs[:, :width], output=outputs), path)

    @classmethod
    def load(cls, path: Path, lowercase: bool = False) -> "Classifier":
        """Read a classifier of ours or of fastText's, with a softmax over labels and without character n-grams.

        Whether it was trained on text in lower case, which texts are brought to then, is not told by the file.
        """
        model = read_fasttext(path)
        if model.arguments.model != MODELS["supervised"] or not model.labels:
            raise DataError(f"{path}: holds word vectors, not a classifier; train one with `qkv vectors train classifier`")
        if model.arguments.loss != LOSSES["softmax"] or model.arguments.longest:
            raise DataError(
                f"{path}: a classifier with character n-grams or a loss other than softmax; fastText itself can use it"
            )
        return cls(model, lowercase)


@dataclass
class Learned:
    """A classifier, and how it came about."""

    classifier: Classifier
    speed: float  # words read a second
    skipped: int  # bytes of the texts that are not UTF-8


def wide(matrix: np.ndarray, rows: int, width: int) -> np.ndarray:
    """A copy with zeros beyond its rows and columns."""
    out = np.zeros((rows, width), np.float32)
    out[: matrix.shape[0], : matrix.shape[1]] = matrix
    return out


def read_examples(files: Sequence[Path], lowercase: bool) -> tuple[list[Example], int]:
    """The labels and the words of each line that has any, and how many bytes are not UTF-8; a line without a label is refused."""
    examples, skipped = [], 0
    for file in files:
        for number, raw in enumerate(read_byte_lines(file), 1):
            line = raw.decode(errors="ignore")
            skipped += len(raw) - len(line.encode())
            words = line.split()
            labels = [word for word in words if word.startswith(LABEL)]
            if words and not labels:
                raise DataError(f"{file}, line {number}: no label; a word such as {LABEL}good is wanted in each line")
            if words:
                examples.append((labels, [w.lower() if lowercase else w for w in words if not w.startswith(LABEL)]))
    return examples, skipped


def encode(lines: Sequence[list[str]], index: dict[str, int]) -> Encoded:
    """Texts as numbers and hashes of words; each ends with fastText's end of a line."""
    from qkv.vectors.kernels.classifier import hash_words

    distinct: dict[str, int] = {}
    places = np.fromiter((distinct.setdefault(w, len(distinct)) for line in lines for w in (*line, END)), np.int64)
    letters = np.frombuffer("".join(distinct).encode(), np.uint8)
    hashes = hash_words(letters, np.cumsum([len(word.encode()) for word in distinct]))
    numbers = np.fromiter((index.get(word, -1) for word in distinct), np.int32)
    starts = np.zeros(len(lines) + 1, np.int64)
    np.cumsum([len(line) + 1 for line in lines], out=starts[1:])
    return Encoded(numbers[places], hashes[places], starts)


def learn_classifier(files: Sequence[str | Path], config: ClassifierConfig, quiet: bool = False) -> Learned:
    """Train a classifier on texts with labels."""
    paths = corpus_files(files)
    examples, skipped = read_examples(paths, config.lowercase)
    counts = Counter(word for _, words in examples for word in (*words, END))
    labels = Counter(label for given, _ in examples for label in given)
    if len(labels) < 2:
        raise DataError(
            f"{shorten_file_list(paths)}: {len(labels)} label; two at least are needed, words that begin with {LABEL}"
        )
    words = [word for word, count in counts.most_common() if count >= config.min_count]
    if not words:
        raise DataError(f"{shorten_file_list(paths)}: no word occurs {config.min_count} times; lower min_count")
    classifier = Classifier(_untrained(words, counts, labels, config), config.lowercase)
    return Learned(classifier, _train(classifier, examples, config, quiet), skipped)


def _untrained(words: list[str], counts: Counter[str], labels: Counter[str], config: ClassifierConfig) -> FastText:
    """A model with small random input vectors, as fastText begins with."""
    buckets = config.buckets if config.word_ngrams > 1 else 0
    arguments = Arguments(
        width=config.width,
        epochs=config.epochs,
        min_count=config.min_count,
        word_ngrams=config.word_ngrams,
        loss=LOSSES["softmax"],
        model=MODELS["supervised"],
        buckets=buckets,
    )
    names = [label for label, _ in labels.most_common()]
    seen = np.array([*(counts[word] for word in words), *(labels[name] for name in names)], np.int64)
    rng = rng_at(config.seed, "classifier")
    first = rng.random((len(words) + buckets, config.width), np.float32)
    first = (first * 2 - 1) / np.float32(config.width)
    outputs = np.zeros((len(names), config.width), np.float32)
    return FastText(arguments, words, seen, first, outputs, names, int(seen.sum()))


def _train(classifier: Classifier, examples: list[Example], config: ClassifierConfig, quiet: bool) -> float:
    from qkv.vectors.kernels.classifier import learn_texts
    from qkv.vectors.kernels.compiler import let_go_of_compiler

    number_of = {label: number for number, label in enumerate(classifier.model.labels)}
    wanted = np.array([number_of[label] for labels, _ in examples for label in labels], np.int32)
    wanted_starts = np.concatenate([[0], np.cumsum([len(labels) for labels, _ in examples])])
    text = encode([words for _, words in examples], classifier.index)
    matrices = (classifier.inputs, classifier.outputs, classifier.sizes)
    told = (text.ids, text.hashes, text.starts, wanted, wanted_starts)
    per_epoch = -(-len(examples) // TOGETHER)
    pieces = per_epoch * config.epochs

    def piece(number: int) -> None:
        epoch, place = divmod(number, per_epoch)
        places = np.arange(place * TOGETHER, min((place + 1) * TOGETHER, len(examples)))
        order = permuted(places, len(examples), seed_at(config.seed, "order", epoch))
        rates = [config.rate * max(1 - done / pieces, LEAST_RATE) for done in (number, number + 1)]
        learn_texts(*told, order, *matrices, *rates)

    learn_texts(*told, np.zeros(0, np.int64), *matrices, 0.0, 0.0)  # which compiles it
    let_go_of_compiler()
    return train(Work(piece, pieces, len(text.ids) * config.epochs, "words"), {}, config.threads, None, quiet)
