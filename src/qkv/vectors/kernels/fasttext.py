"""Skip-gram and CBOW over words and their character n-grams (Bojanowski et al. 2017), a stretch of a corpus at a time.

Departure: a word's n-grams are added up once for all words of its window and moved once by the sum of their gradients, where
fastText does so for each pair of words. As in fastText the gradient of a mean is passed on undivided.
"""

import numpy as np
from numba import njit

from qkv.vectors.kernels.sampling import Targets, below, draw_targets, random
from qkv.vectors.kernels.simd import ACROSS, add_row, fetch_row
from qkv.vectors.kernels.word2vec import LONGEST, max_targets, next_line, room_for, surroundings, tell_one


@njit(nogil=True, cache=True)
def fetch_word(inputs: np.ndarray, rows: np.ndarray, starts: np.ndarray, word: int) -> None:
    """Ask memory for a word's vector and those of its n-grams."""
    fetch_row(inputs, word)
    for i in range(starts[word], starts[word + 1]):
        fetch_row(inputs, rows[i])


@njit(nogil=True, cache=True)
def add_word(hidden: np.ndarray, inputs: np.ndarray, rows: np.ndarray, starts: np.ndarray, word: int, weight: np.float32) -> None:
    """hidden[0] += weight * (the word's vector + those of its n-grams)."""
    add_row(hidden, 0, inputs, word, weight)
    for i in range(starts[word], starts[word + 1]):
        add_row(hidden, 0, inputs, rows[i], weight)


@njit(nogil=True, cache=True)
def move_word(inputs: np.ndarray, rows: np.ndarray, starts: np.ndarray, word: int, change: np.ndarray) -> None:
    """Add a change to a word's vector and those of its n-grams."""
    add_row(inputs, word, change, 0, np.float32(1))
    for i in range(starts[word], starts[word + 1]):
        add_row(inputs, rows[i], change, 0, np.float32(1))


@njit(nogil=True, cache=True)
def train_skipgram(
    ids: np.ndarray,
    inputs: np.ndarray,  # (V + buckets, D)
    outputs: np.ndarray,
    rows: np.ndarray,  # int32: input rows of all words' n-grams
    starts: np.ndarray,  # (V + 1,): where a word's begin
    keep: np.ndarray,
    targets: Targets,
    window: int,
    first_rate: float,
    last_rate: float,
    seed: int,
) -> None:
    """Train on a stretch of a corpus while the rate goes from the first to the last."""
    most = 2 * window * max_targets(targets) + ACROSS
    line, context = np.zeros(LONGEST, np.int32), np.zeros(2 * window, np.int32)
    chosen, labels, counts = np.zeros((2, most), np.int32), np.zeros((2, most), np.float32), np.zeros(2, np.int64)
    room = room_for(1, most, 1)
    hidden, change = np.zeros((1, inputs.shape[1]), np.float32), np.zeros((1, inputs.shape[1]), np.float32)
    place, state = 0, np.uint64(seed)
    while place < len(ids):
        rate = np.float32(first_rate + (last_rate - first_rate) * place / len(ids))
        place, state, length = next_line(ids, place, keep, state, line)
        for at in range(-1, length):  # one word ahead, so that its rows come from memory in the meantime
            if at + 1 < length:
                now = (at + 1) % 2
                state, bits = random(state)
                count = surroundings(line, length, at + 1, 1 + below(bits, window), context)
                counts[now] = 0
                for i in range(count):
                    state, counts[now] = draw_targets(state, context[i], targets, chosen[now], labels[now], counts[now])
                for j in range(counts[now]):
                    fetch_row(outputs, chosen[now, j])
                fetch_word(inputs, rows, starts, line[at + 1])
            now = at % 2
            if at >= 0 and counts[now]:
                word = line[at]
                hidden[0] = 0
                add_word(hidden, inputs, rows, starts, word, np.float32(1 / (1 + starts[word + 1] - starts[word])))
                tell_one(hidden, change, outputs, chosen[now], labels[now], counts[now], rate, room)
                move_word(inputs, rows, starts, word, change)


@njit(nogil=True, cache=True)
def train_cbow(
    ids: np.ndarray,
    inputs: np.ndarray,
    outputs: np.ndarray,
    rows: np.ndarray,
    starts: np.ndarray,
    keep: np.ndarray,
    targets: Targets,
    window: int,
    first_rate: float,
    last_rate: float,
    seed: int,
) -> None:
    """Train on a stretch of a corpus while the rate goes from the first to the last."""
    most = max_targets(targets)
    line, context = np.zeros(LONGEST, np.int32), np.zeros(2 * window, np.int32)
    chosen, labels = np.zeros(most, np.int32), np.zeros(most, np.float32)
    room = room_for(1, most, 1)
    hidden, change = np.zeros((1, inputs.shape[1]), np.float32), np.zeros((1, inputs.shape[1]), np.float32)
    place, state = 0, np.uint64(seed)
    while place < len(ids):
        rate = np.float32(first_rate + (last_rate - first_rate) * place / len(ids))
        place, state, length = next_line(ids, place, keep, state, line)
        for at in range(length):
            fetch_word(inputs, rows, starts, line[min(at + window + 1, length - 1)])
            state, bits = random(state)
            words = surroundings(line, length, at, 1 + below(bits, window), context)
            if words:
                state, count = draw_targets(state, line[at], targets, chosen, labels, 0)
                for j in range(count):
                    fetch_row(outputs, chosen[j])
                parts = words
                for i in range(words):
                    parts += starts[context[i] + 1] - starts[context[i]]
                hidden[0] = 0
                for i in range(words):
                    add_word(hidden, inputs, rows, starts, context[i], np.float32(1 / parts))
                tell_one(hidden, change, outputs, chosen, labels, count, rate, room)
                for i in range(words):
                    move_word(inputs, rows, starts, context[i], change)
