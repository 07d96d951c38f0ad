"""fastText's .bin format: magic number, version, arguments, dictionary, input matrix, output matrix."""

import dataclasses
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from qkv.base.errors import DataError
from qkv.base.files import atomic_file
from qkv.vectors.binary_reader import FLOAT, BinaryReader
from qkv.vectors.subwords import Subwords
from qkv.vectors.word_vectors import WordVectors

MAGIC, VERSION = 793712314, 12
MAX_WORD = 1 << 16  # bytes
ROWS = 1 << 16  # rows of a matrix written at once
WORD, LABEL = 0, 1
LOSSES = {"hs": 1, "ns": 2, "softmax": 3, "ova": 4}
MODELS = {"cbow": 1, "skipgram": 2, "supervised": 3}


@dataclass
class FastTextArguments:
    """fastText's training arguments, in the order of the file."""

    width: int = 100
    window: int = 5
    epochs: int = 5
    min_count: int = 5
    negatives: int = 5
    word_ngrams: int = 1
    loss: int = LOSSES["ns"]
    model: int = MODELS["skipgram"]
    buckets: int = 0
    min_n: int = 0
    max_n: int = 0
    rate_update_every: int = 100
    sample: float = 1e-4  # subsampling threshold


@dataclass
class FastTextModel:
    """The contents of a .bin file."""

    arguments: FastTextArguments
    words: list[str]
    counts: np.ndarray  # (words,), then (labels,)
    input: np.ndarray  # (words + buckets, D)
    output: np.ndarray  # (words or labels, D)
    labels: list[str] = field(default_factory=list)
    tokens: int = 0


def read_fasttext(path: Path) -> FastTextModel:
    """Read a .bin file; the matrices are memory-mapped."""
    reader = BinaryReader(path)
    magic, version = reader.unpack("ii", "the magic number")
    if magic != MAGIC:
        raise DataError(f"{path}: is not a fastText model: it begins with {magic}, {MAGIC} was expected")
    if version not in (11, VERSION):
        raise DataError(f"{path}: fastText's format {version}; 11 and {VERSION} can be read")
    arguments = FastTextArguments(*reader.unpack("12id", "the arguments"))
    if version == 11 and arguments.model == MODELS["supervised"]:
        arguments.max_n = 0  # such classifiers had no character n-grams, even if the file names a length
    size, words, labels, tokens, pruned = reader.unpack("iiiqq", "the dictionary")
    if min(size, words, labels) < 0 or size != words + labels:
        raise reader.error(f"a dictionary of {size} entries, {words} words and {labels} labels")
    entries, counts = _read_dictionary(reader, size, words)
    if pruned > 0:
        raise DataError(f"{path}: a pruned, quantised model, whose vectors are only approximate; use the .bin it was made from")
    matrices = _read_matrix(reader, "input"), _read_matrix(reader, "output")
    model = FastTextModel(arguments, entries[:words], counts, *matrices, entries[words:], tokens)
    _check_shapes(reader, model)
    return model


def _read_dictionary(reader: BinaryReader, size: int, words: int) -> tuple[list[str], np.ndarray]:
    """Read words, then labels, and the count of each."""
    entries, counts = [], np.zeros(size, np.int64)
    for i in range(size):
        entries.append(reader.string(b"\0", MAX_WORD, f"entry {i + 1:,} of the dictionary"))
        counts[i], kind = reader.unpack("qb", f"the count of {entries[-1]!r}")
        if kind != (WORD if i < words else LABEL):
            raise reader.error(f"entry {i + 1:,} of the dictionary, {entries[-1]!r}, is of kind {kind}")
    return entries, counts


def _read_matrix(reader: BinaryReader, name: str) -> np.ndarray:
    (quantised,) = reader.unpack("b", f"the {name} matrix")
    if quantised:
        raise DataError(
            f"{reader.path}: a quantised model (.ftz), whose vectors are only approximate; use the .bin it was made from"
        )
    rows, columns = reader.unpack("qq", f"the {name} matrix")
    if rows < 0 or columns < 0:
        raise reader.error(f"an {name} matrix of {rows} by {columns}")
    return reader.floats(rows * columns, f"the {name} matrix of {rows:,} by {columns:,}").reshape(rows, columns)


def _check_shapes(reader: BinaryReader, model: FastTextModel) -> None:
    """Refuse matrices that contradict the arguments and the dictionary."""
    width, rows = model.arguments.width, len(model.words) + model.arguments.buckets
    if model.input.shape != (rows, width) or model.output.shape[1:] != (width,):
        shapes = f"{model.input.shape} and {model.output.shape}"
        raise reader.error(
            f"matrices of shape {shapes} do not fit {len(model.words):,} words, {model.arguments.buckets:,} buckets, {width} wide"
        )
    if reader.offset != len(reader):
        raise reader.error(f"{len(reader) - reader.offset:,} bytes more than the model takes")


def write_fasttext(model: FastTextModel, path: Path) -> None:
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
            for start in range(0, len(matrix), ROWS):
                file.write(matrix[start : start + ROWS].astype(FLOAT).tobytes())


def vectors_from_model(model: FastTextModel) -> WordVectors:
    """Return the word vectors of a model, n-grams included, with its subwords for out-of-vocabulary words."""
    args, count = model.arguments, len(model.words)
    word_rows, counts = model.input[:count], model.counts[:count]
    output = model.output if args.loss == LOSSES["ns"] and len(model.output) == count else None
    if not (args.buckets and args.max_n):
        return WordVectors(model.words, word_rows, output, counts=counts)
    subwords = Subwords(word_rows, model.input[count:], args.min_n, args.max_n)
    return WordVectors(model.words, subwords.matrix(model.words), output, subwords, counts)


def model_from_vectors(vectors: WordVectors) -> FastTextModel:
    """Build a skip-gram model with these vectors; it has n-grams only if the vectors are input vectors with subwords."""
    subwords = vectors.subwords if vectors.input is None else None
    arguments, matrix = FastTextArguments(width=vectors.width), vectors.matrix
    if subwords:
        matrix = np.concatenate([subwords.word_rows, subwords.bucket_rows])
        arguments = dataclasses.replace(arguments, buckets=len(subwords.bucket_rows), min_n=subwords.min_n, max_n=subwords.max_n)
    # fastText samples negatives by count, so counts cannot be 0.
    counts = np.ones(len(vectors), np.int64) if vectors.counts is None else np.maximum(vectors.counts, 1)
    output = vectors.output
    if output is None or len(output) != len(vectors):
        output = np.zeros((len(vectors), vectors.width), np.float32)
    return FastTextModel(arguments, vectors.words, counts, matrix, output, tokens=int(counts.sum()))
