"""fastText's text classifier (Joulin et al. 2017): the mean of a text's words and word n-grams, then a softmax over labels."""

import numpy as np
from numba import njit

from qkv.vectors.kernels.hashing import START, hashed
from qkv.vectors.kernels.simd import ACROSS, add_row, fetch_row, line_products, update_across_line, update_line
from qkv.vectors.kernels.word2vec import Room


@njit(nogil=True, cache=True)
def rows_of(
    ids: np.ndarray, hashes: np.ndarray, start: int, end: int, words: int, buckets: int, longest: int, rows: np.ndarray
) -> int:
    """Write the input rows of a text: its known words, and the buckets of its n-grams of 2 words and more; how many there are."""
    count = 0
    for i in range(start, end):
        if ids[i] >= 0:
            rows[count] = ids[i]
            count += 1
    for i in range(start, end):
        code = np.uint64(np.int64(hashes[i]))  # fastText's hashes are signed
        for j in range(i + 1, min(end, i + longest)):
            code = code * np.uint64(116049371) + np.uint64(np.int64(hashes[j]))
            rows[count] = words + np.int64(code % np.uint64(buckets))
            count += 1
    return count


@njit(nogil=True, cache=True)
def softmax_scores(hidden: np.ndarray, outputs: np.ndarray, labels: int, room: Room) -> None:
    """Probabilities of all labels into the first row of the scores; 0 for rows that only fill a tile."""
    for j in range(0, len(outputs), ACROSS):
        line_products(hidden, room.order, 0, outputs, room.order, j, room.scores)
    scores = room.scores[0]
    highest = scores[:labels].max()
    total = np.float32(0)
    for j in range(len(scores)):
        scores[j] = np.exp(scores[j] - highest) if j < labels else np.float32(0)
        total += scores[j]
    for j in range(labels):
        scores[j] /= total


@njit(nogil=True, cache=True)
def room_of(outputs: np.ndarray) -> Room:
    """Room for the scores of all labels."""
    order = np.arange(len(outputs)).astype(np.int32)
    return Room(np.zeros((1, 1), np.float32), order, np.zeros((1, len(outputs)), np.float32))


@njit(nogil=True, cache=True)
def gather(hidden: np.ndarray, inputs: np.ndarray, rows: np.ndarray, count: int) -> None:
    """The mean of some rows."""
    hidden[0] = 0
    for i in range(count):
        fetch_row(inputs, rows[i])
    for i in range(count):
        add_row(hidden, 0, inputs, rows[i], np.float32(1 / count))


@njit(nogil=True, cache=True)
def learn_texts(
    ids: np.ndarray,  # int32: words of all texts, -1 for unknown ones
    hashes: np.ndarray,  # int32: of the same words
    starts: np.ndarray,  # (texts + 1,): where each text begins
    wanted: np.ndarray,  # int32: labels of all texts
    wanted_starts: np.ndarray,
    order: np.ndarray,  # the texts to learn from, one after another
    inputs: np.ndarray,  # (words + buckets, D)
    outputs: np.ndarray,  # (labels, D), in whole tiles
    sizes: tuple,  # words, buckets, longest n-gram, labels
    first_rate: float,
    last_rate: float,
) -> None:
    """Learn from some texts while the rate goes from the first to the last."""
    words, buckets, longest, labels = sizes
    most = (starts[1:] - starts[:-1]).max() * longest
    rows, room = np.zeros(most, np.int32), room_of(outputs)
    hidden, change = np.zeros((1, inputs.shape[1]), np.float32), np.zeros((1, inputs.shape[1]), np.float32)
    for place in range(len(order)):
        rate = np.float32(first_rate + (last_rate - first_rate) * place / len(order))
        text = order[place]
        count = rows_of(ids, hashes, starts[text], starts[text + 1], words, buckets, longest, rows)
        if count == 0:
            continue
        gather(hidden, inputs, rows, count)
        softmax_scores(hidden, outputs, labels, room)
        told = wanted[wanted_starts[text] : wanted_starts[text + 1]]
        for j in range(labels):
            room.scores[0, j] *= -rate
        for label in told:
            room.scores[0, label] += rate / np.float32(len(told))
        change[0] = 0
        for j in range(0, len(outputs), ACROSS):
            update_line(change, room.order, 0, outputs, room.order, j, room.scores)
        for j in range(0, len(outputs), ACROSS):
            update_across_line(outputs, room.order, j, hidden, room.order, 0, room.scores)
        for i in range(count):
            add_row(inputs, rows[i], change, 0, np.float32(1 / count))


@njit(nogil=True, cache=True)
def judge_texts(
    ids: np.ndarray, hashes: np.ndarray, starts: np.ndarray, inputs: np.ndarray, outputs: np.ndarray, sizes: tuple
) -> np.ndarray:
    """The probability of each label for each text, (texts, labels); all 0 for a text of which nothing is known."""
    words, buckets, longest, labels = sizes
    most = max((starts[1:] - starts[:-1]).max() * longest, 1)
    rows, room = np.zeros(most, np.int32), room_of(outputs)
    hidden, out = np.zeros((1, inputs.shape[1]), np.float32), np.zeros((len(starts) - 1, labels), np.float32)
    for text in range(len(starts) - 1):
        count = rows_of(ids, hashes, starts[text], starts[text + 1], words, buckets, longest, rows)
        if count:
            gather(hidden, inputs, rows, count)
            softmax_scores(hidden, outputs, labels, room)
            out[text] = room.scores[0, :labels]
    return out


@njit(nogil=True, cache=True)
def hash_words(letters: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The hash of each word's bytes, int32."""
    out, begin = np.empty(len(ends), np.int32), 0
    for word in range(len(ends)):
        code = START
        for i in range(begin, ends[word]):
            code = hashed(code, letters[i])
        out[word], begin = np.int32(code), ends[word]
    return out
