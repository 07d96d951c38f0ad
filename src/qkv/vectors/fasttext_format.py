"""fastText's .bin in its exact layout: magic, version, arguments, dictionary, input matrix, output matrix."""

import dataclasses
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from qkv.base.errors import DataError
from qkv.base.files import atomic_file
from qkv.vectors.binary_reader import FLOAT, Bytes
from qkv.vectors.subwords import Subwords
from qkv.vectors.word_vectors import WordVectors

MAGIC, VERSION = 793712314, 12
LONGEST_WORD = 1 << 16  # bytes
WORD, LABEL = 0, 1
LOSSES = {"hs": 1, "ns": 2, "softmax": 3, "ova": 4}
MODELS = {"cbow": 1, "skipgram": 2, "supervised": 3}


@dataclass
class Arguments:
    """What fastText was told, in the order of the file."""

    width: int = 100
    window: int = 5
    epochs: int = 5
    min_count: int = 5
    negatives: int = 5
    word_ngrams: int = 1
    loss: int = LOSSES["ns"]
    model: int = MODELS["skipgram"]
    buckets: int = 0
    shortest: int = 0
    longest: int = 0
    rate_every: int = 100
    threshold: float = 1e-4  # beyond which share frequent words are left out by chance


@dataclass
class FastText:
    """All that a .bin file holds."""

    arguments: Arguments
    words: list[str]
    counts: np.ndarray  # (words,), then (labels,)
    input: np.ndarray  # (words + buckets, D)
    output: np.ndarray  # (words or labels, D)
    labels: list[str] = field(default_factory=list)
    tokens: int = 0


def read_fasttext(path: Path) -> FastText:
    """Read a .bin file; its matrices stay on the disk until they are asked for."""
    data = Bytes(path)
    magic, version = data.numbers("ii", "the magic number")
    if magic != MAGIC:
        raise DataError(f"{path}: is not a fastText model: it begins with {magic}, {MAGIC} was expected")
    if version not in (11, VERSION):
        raise DataError(f"{path}: fastText's format {version}; 11 and {VERSION} can be read")
    arguments = Arguments(*data.numbers("12id", "the arguments"))
    if version == 11 and arguments.model == MODELS["supervised"]:
        arguments.longest = 0  # they had no character n-grams, whatever the file says
    size, words, labels, tokens, pruned = data.numbers("iiiqq", "the dictionary")
    if min(size, words, labels) < 0 or size != words + labels:
        raise data.wrong(f"a dictionary of {size} entries, {words} words and {labels} labels")
    entries, counts = _entries(data, size, words)
    if pruned > 0:
        raise DataError(f"{path}: a pruned, quantised model, which holds no vectors to speak of; use the .bin it was made from")
    model = FastText(arguments, entries[:words], counts, _matrix(data, "input"), _matrix(data, "output"), entries[words:], tokens)
    _check(data, model)
    return model


def _entries(data: Bytes, size: int, words: int) -> tuple[list[str], np.ndarray]:
    """Words, then labels, and how often each was seen."""
    entries, counts = [], np.zeros(size, np.int64)
    for i in range(size):
        entries.append(data.text(b"\0", LONGEST_WORD, f"entry {i + 1:,} of the dictionary"))
        counts[i], kind = data.numbers("qb", f"the count of {entries[-1]!r}")
        if kind != (WORD if i < words else LABEL):
            raise data.wrong(f"entry {i + 1:,} of the dictionary, {entries[-1]!r}, is of kind {kind}")
    return entries, counts


def _matrix(data: Bytes, name: str) -> np.ndarray:
    (quantised,) = data.numbers("b", f"the {name} matrix")
    if quantised:
        raise DataError(
            f"{data.path}: a quantised model (.ftz), whose vectors are only approximate; use the .bin it was made from"
        )
    rows, columns = data.numbers("qq", f"the {name} matrix")
    if rows < 0 or columns < 0:
        raise data.wrong(f"an {name} matrix of {rows} by {columns}")
    return data.floats(rows * columns, f"the {name} matrix of {rows:,} by {columns:,}").reshape(rows, columns)


def _check(data: Bytes, model: FastText) -> None:
    """Refuse matrices that are not what arguments and dictionary say."""
    width, rows = model.arguments.width, len(model.words) + model.arguments.buckets
    if model.input.shape != (rows, width) or model.output.shape[1:] != (width,):
        shapes = f"{model.input.shape} and {model.output.shape}"
        raise data.wrong(
            f"matrices of shape {shapes} do not fit {len(model.words):,} words, {model.arguments.buckets:,} buckets, {width} wide"
        )
    if data.at != len(data):
        raise data.wrong(f"{len(data) - data.at:,} bytes more than the model takes")


def write_fasttext(model: FastText, path: Path) -> None:
    """Write a .bin file that fastText and its bindings load."""
    words, labels = len(model.words), len(model.labels)
    with atomic_file(path) as aside, aside.open("wb") as file:
        file.write(struct.pack("<ii12id", MAGIC, VERSION, *dataclasses.astuple(model.arguments)))
        file.write(struct.pack("<iiiqq", words + labels, words, labels, model.tokens, -1))
        for i, entry in enumerate([*model.words, *model.labels]):
            kind = WORD if i < words else LABEL
            file.write(entry.encode() + b"\0" + struct.pack("<qb", model.counts[i], kind))
        for matrix in (model.input, model.output):
            file.write(struct.pack("<bqq", 0, *matrix.shape))
            _write_floats(file, matrix)


def _write_floats(file: BinaryIO, matrix: np.ndarray, together: int = 1 << 16) -> None:
    for start in range(0, len(matrix), together):
        file.write(matrix[start : start + together].astype(FLOAT).tobytes())


def vectors_of(model: FastText) -> WordVectors:
    """The words of a model with their vectors, n-grams taken in, and those for unseen words."""
    args, count = model.arguments, len(model.words)
    own, counts = model.input[:count], model.counts[:count]
    output = model.output if args.loss == LOSSES["ns"] and len(model.output) == count else None
    if not (args.buckets and args.longest):
        return WordVectors(model.words, own, output, counts=counts)
    subwords = Subwords(own, model.input[count:], args.shortest, args.longest)
    return WordVectors(model.words, subwords.matrix(model.words), output, subwords, counts)


def model_of(vectors: WordVectors) -> FastText:
    """A skip-gram model with these vectors; where they are not those of words and n-grams, it has no n-grams."""
    subwords = vectors.subwords if vectors.input is None else None
    arguments, matrix = Arguments(width=vectors.width), vectors.matrix
    if subwords:
        matrix = np.concatenate([subwords.own, subwords.buckets])
        arguments = dataclasses.replace(
            arguments, buckets=len(subwords.buckets), shortest=subwords.shortest, longest=subwords.longest
        )
    # fastText draws negatives by the counts, which therefore cannot be 0.
    counts = np.ones(len(vectors), np.int64) if vectors.counts is None else np.maximum(vectors.counts, 1)
    fits = vectors.output is not None and len(vectors.output) == len(vectors)
    output = vectors.output if fits and vectors.output is not None else np.zeros((len(vectors), vectors.width), np.float32)
    return FastText(arguments, vectors.words, counts, matrix, output, tokens=int(counts.sum()))
