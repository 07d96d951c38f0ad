"""fastText's text classifier (Joulin et al. 2017): the mean of a text's words and word n-grams, then a softmax over labels."""

import numpy as np
from numba import njit

from qkv.vectors.kernels.hashing import FNV_OFFSET, fnv1a_step
from qkv.vectors.kernels.simd import TILE_COLUMNS, add_row, prefetch_row, row_products, update_columns_by_row, update_row
from qkv.vectors.kernels.word2vec import Workspace


@njit(nogil=True, cache=True)
def find_input_rows(
    ids: np.ndarray, hashes: np.ndarray, start: int, end: int, vocab: int, buckets: int, max_n: int, rows: np.ndarray
) -> int:
    """Write the input rows of a text, its known words and the buckets of its word n-grams, to `rows`; return their number."""
    count = 0
    for i in range(start, end):
        if ids[i] >= 0:
            rows[count] = ids[i]
            count += 1
    for i in range(start, end):
        code = np.uint64(np.int64(hashes[i]))  # fastText's hashes are signed
        for j in range(i + 1, min(end, i + max_n)):
            code = code * np.uint64(116049371) + np.uint64(np.int64(hashes[j]))
            rows[count] = vocab + np.int64(code % np.uint64(buckets))
            count += 1
    return count


@njit(nogil=True, cache=True)
def label_softmax(hidden: np.ndarray, outputs: np.ndarray, labels: int, workspace: Workspace) -> None:
    """Write the probabilities of all labels to the first row of the scores; 0 for the rows that pad a tile."""
    for j in range(0, len(outputs), TILE_COLUMNS):
        row_products(hidden, workspace.order, 0, outputs, workspace.order, j, workspace.scores)
    scores = workspace.scores[0]
    highest = scores[:labels].max()
    total = np.float32(0)
    for j in range(len(scores)):
        scores[j] = np.exp(scores[j] - highest) if j < labels else np.float32(0)
        total += scores[j]
    for j in range(labels):
        scores[j] /= total


@njit(nogil=True, cache=True)
def label_workspace(outputs: np.ndarray) -> Workspace:
    """Allocate the scores of all labels."""
    order = np.arange(len(outputs)).astype(np.int32)
    return Workspace(np.zeros((1, 1), np.float32), order, np.zeros((1, len(outputs)), np.float32))


@njit(nogil=True, cache=True)
def mean_rows(hidden: np.ndarray, inputs: np.ndarray, rows: np.ndarray, count: int) -> None:
    """Write the mean of the first `count` rows to hidden[0]."""
    hidden[0] = 0
    for i in range(count):
        prefetch_row(inputs, rows[i])
    for i in range(count):
        add_row(hidden, 0, inputs, rows[i], np.float32(1 / count))


@njit(nogil=True, cache=True)
def train_texts(
    ids: np.ndarray,  # int32: words of all texts, -1 for unknown ones
    hashes: np.ndarray,  # int32: hashes of the same words
    starts: np.ndarray,  # (texts + 1,): where each text begins
    labels: np.ndarray,  # int32: labels of all texts
    label_starts: np.ndarray,  # (texts + 1,): where each text's labels begin
    order: np.ndarray,  # the texts to train on, in this order
    inputs: np.ndarray,  # (V + buckets, D)
    outputs: np.ndarray,  # (labels padded to whole tiles, D)
    sizes: tuple,  # vocabulary, buckets, longest word n-gram, number of labels
    first_rate: float,
    last_rate: float,
) -> None:
    """Train on some texts while the learning rate falls linearly from first_rate to last_rate."""
    vocab, buckets, max_n, label_count = sizes
    max_rows = (starts[1:] - starts[:-1]).max() * max_n
    rows, workspace = np.zeros(max_rows, np.int32), label_workspace(outputs)
    hidden, gradient = np.zeros((1, inputs.shape[1]), np.float32), np.zeros((1, inputs.shape[1]), np.float32)
    for step in range(len(order)):
        rate = np.float32(first_rate + (last_rate - first_rate) * step / len(order))
        text = order[step]
        count = find_input_rows(ids, hashes, starts[text], starts[text + 1], vocab, buckets, max_n, rows)
        if count == 0:
            continue
        mean_rows(hidden, inputs, rows, count)
        label_softmax(hidden, outputs, label_count, workspace)
        text_labels = labels[label_starts[text] : label_starts[text + 1]]
        for j in range(label_count):
            workspace.scores[0, j] *= -rate
        for label in text_labels:
            workspace.scores[0, label] += rate / np.float32(len(text_labels))
        gradient[0] = 0
        for j in range(0, len(outputs), TILE_COLUMNS):
            update_row(gradient, workspace.order, 0, outputs, workspace.order, j, workspace.scores)
        for j in range(0, len(outputs), TILE_COLUMNS):
            update_columns_by_row(outputs, workspace.order, j, hidden, workspace.order, 0, workspace.scores)
        for i in range(count):
            add_row(inputs, rows[i], gradient, 0, np.float32(1 / count))


@njit(nogil=True, cache=True)
def predict_texts(
    ids: np.ndarray, hashes: np.ndarray, starts: np.ndarray, inputs: np.ndarray, outputs: np.ndarray, sizes: tuple
) -> np.ndarray:
    """Return the probability of each label for each text, (texts, labels); all 0 for a text without known words or n-grams."""
    vocab, buckets, max_n, label_count = sizes
    max_rows = max((starts[1:] - starts[:-1]).max() * max_n, 1)
    rows, workspace = np.zeros(max_rows, np.int32), label_workspace(outputs)
    hidden, out = np.zeros((1, inputs.shape[1]), np.float32), np.zeros((len(starts) - 1, label_count), np.float32)
    for text in range(len(starts) - 1):
        count = find_input_rows(ids, hashes, starts[text], starts[text + 1], vocab, buckets, max_n, rows)
        if count:
            mean_rows(hidden, inputs, rows, count)
            label_softmax(hidden, outputs, label_count, workspace)
            out[text] = workspace.scores[0, :label_count]
    return out


@njit(nogil=True, cache=True)
def hash_words(text: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the hash of each word, int32; `text` is the UTF-8 of all words, `ends` where each one ends."""
    out, begin = np.empty(len(ends), np.int32), 0
    for word in range(len(ends)):
        code = FNV_OFFSET
        for i in range(begin, ends[word]):
            code = fnv1a_step(code, text[i])
        out[word], begin = np.int32(code), ends[word]
    return out
