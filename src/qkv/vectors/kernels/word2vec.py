"""Skip-gram and CBOW (Mikolov et al. 2013a, 2013b), a stretch of a corpus at a time.

Departures. Skip-gram: all words of a window are told from the same noise words, which are drawn once for the word in its middle
(Ji et al. 2016), so that scores and updates are small matrix products; every pair of words still meets as many noise words as
were asked for. CBOW: a window's words get the gradient of their mean undivided, as in word2vec.c.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from qkv.vectors.kernels.sampling import Targets, below, draw_targets, errors, fill_up, random
from qkv.vectors.kernels.simd import (
    ACROSS,
    DOWN,
    add_row,
    copy_row,
    fetch_row,
    line_products,
    tile_products,
    update_across,
    update_across_line,
    update_down,
    update_line,
)

LONGEST = 10_000  # words of a line that are read as one; what is longer is cut, as in gensim


class Room(NamedTuple):
    """Memory that a step works in."""

    rows: np.ndarray  # (columns, D): output rows as they were before the step
    order: np.ndarray  # int32: 0, 1, 2, ...
    scores: np.ndarray  # (rows, columns)


@njit(nogil=True, cache=True)
def room_for(rows: int, columns: int, width: int) -> Room:
    """Room for steps of so many input rows and output rows at the most."""
    order = np.arange(columns).astype(np.int32)
    return Room(np.zeros((columns, width), np.float32), order, np.zeros((rows, columns), np.float32))


@njit(nogil=True, cache=True)
def max_targets(targets: Targets) -> int:
    """How many output rows a word may need, in whole tiles."""
    most = 1 + targets.negatives
    for word in range(len(targets.starts) - 1):
        most = max(most, targets.starts[word + 1] - targets.starts[word])
    return most + ACROSS


@njit(nogil=True, cache=True)
def next_line(ids: np.ndarray, place: int, keep: np.ndarray, state: np.uint64, line: np.ndarray) -> tuple:
    """Read on to the end of a line, leaving out rare words and, by chance, frequent ones: place, state, words kept.

    A number that is no word's, such as END, ends a line where it is negative, and is a rare word where it is too high.
    """
    count = 0
    while place < len(ids) and count < len(line):
        word = ids[place]
        place += 1
        if word < 0:
            if count:
                break
        elif word < len(keep):
            state, bits = random(state)
            if bits >> np.uint64(32) <= keep[word]:
                line[count] = word
                count += 1
    return place, state, count


@njit(nogil=True, cache=True)
def tell_apart(
    inputs: np.ndarray,
    context: np.ndarray,  # int32: rows of inputs, the first `rows` of them
    rows: int,
    outputs: np.ndarray,
    chosen: np.ndarray,  # int32: rows of outputs, the first `count` of them, with their labels
    labels: np.ndarray,
    count: int,
    rate: np.float32,
    room: Room,
) -> None:
    """Each of some input rows against each chosen output row: all move along the gradient of the log-likelihood before."""
    columns, tall = fill_up(chosen, count, ACROSS), fill_up(context, rows, DOWN)
    for j in range(columns):
        copy_row(room.rows, j, outputs, chosen[j])
    for i in range(0, tall, DOWN):
        for j in range(0, columns, ACROSS):
            tile_products(inputs, context, i, room.rows, room.order, j, room.scores)
    errors(room.scores, labels, tall, columns, rate)
    room.scores[rows:tall, :columns] = 0
    room.scores[:tall, count:columns] = 0
    for j in range(0, columns, ACROSS):
        for i in range(0, tall, DOWN):
            update_across(outputs, chosen, j, inputs, context, i, room.scores)
    for i in range(0, tall, DOWN):
        for j in range(0, columns, ACROSS):
            update_down(inputs, context, i, room.rows, room.order, j, room.scores)


@njit(nogil=True, cache=True)
def tell_one(
    hidden: np.ndarray,  # (1, D)
    change: np.ndarray,  # (1, D): becomes what the hidden row should move by
    outputs: np.ndarray,
    chosen: np.ndarray,
    labels: np.ndarray,
    count: int,
    rate: np.float32,
    room: Room,
) -> None:
    """One hidden row against each chosen output row: these move along the gradient of the log-likelihood before."""
    columns = fill_up(chosen, count, ACROSS)
    change[0] = 0
    for j in range(0, columns, ACROSS):
        line_products(hidden, room.order, 0, outputs, chosen, j, room.scores)
    errors(room.scores, labels, 1, columns, rate)
    room.scores[0, count:columns] = 0
    for j in range(0, columns, ACROSS):
        update_line(change, room.order, 0, outputs, chosen, j, room.scores)
    for j in range(0, columns, ACROSS):
        update_across_line(outputs, chosen, j, hidden, room.order, 0, room.scores)


@njit(nogil=True, cache=True)
def train_skipgram(
    ids: np.ndarray,
    inputs: np.ndarray,
    outputs: np.ndarray,
    keep: np.ndarray,
    targets: Targets,
    window: int,
    first_rate: float,
    last_rate: float,
    seed: int,
) -> None:
    """Train on a stretch of a corpus while the rate goes from the first to the last."""
    line, most = np.zeros(LONGEST, np.int32), max_targets(targets)
    context = np.zeros(2 * window + DOWN, np.int32)
    chosen, labels, counts = np.zeros((2, most), np.int32), np.zeros((2, most), np.float32), np.zeros(2, np.int64)
    room = room_for(2 * window + DOWN, most, inputs.shape[1])
    place, state = 0, np.uint64(seed)
    while place < len(ids):
        rate = np.float32(first_rate + (last_rate - first_rate) * place / len(ids))
        place, state, length = next_line(ids, place, keep, state, line)
        for at in range(-1, length):  # one word ahead, so that its rows come from memory in the meantime
            if at + 1 < length:
                now = (at + 1) % 2
                state, counts[now] = draw_targets(state, line[at + 1], targets, chosen[now], labels[now], 0)
                for j in range(counts[now]):
                    fetch_row(outputs, chosen[now, j])
                fetch_row(inputs, line[min(at + 1 + window, length - 1)])
            if at >= 0:
                state, bits = random(state)
                rows = surroundings(line, length, at, 1 + below(bits, window), context)
                now = at % 2
                if rows:
                    tell_apart(inputs, context, rows, outputs, chosen[now], labels[now], counts[now], rate, room)


@njit(nogil=True, cache=True)
def train_cbow(
    ids: np.ndarray,
    inputs: np.ndarray,
    outputs: np.ndarray,
    keep: np.ndarray,
    targets: Targets,
    window: int,
    first_rate: float,
    last_rate: float,
    seed: int,
) -> None:
    """Train on a stretch of a corpus while the rate goes from the first to the last."""
    line, most = np.zeros(LONGEST, np.int32), max_targets(targets)
    context = np.zeros(2 * window, np.int32)
    chosen, labels, counts = np.zeros((2, most), np.int32), np.zeros((2, most), np.float32), np.zeros(2, np.int64)
    room = room_for(1, most, inputs.shape[1])
    hidden, change = np.zeros((1, inputs.shape[1]), np.float32), np.zeros((1, inputs.shape[1]), np.float32)
    place, state = 0, np.uint64(seed)
    while place < len(ids):
        rate = np.float32(first_rate + (last_rate - first_rate) * place / len(ids))
        place, state, length = next_line(ids, place, keep, state, line)
        for at in range(-1, length):
            if at + 1 < length:
                now = (at + 1) % 2
                state, counts[now] = draw_targets(state, line[at + 1], targets, chosen[now], labels[now], 0)
                for j in range(counts[now]):
                    fetch_row(outputs, chosen[now, j])
                fetch_row(inputs, line[min(at + 1 + window, length - 1)])
            if at >= 0:
                state, bits = random(state)
                rows = surroundings(line, length, at, 1 + below(bits, window), context)
                now = at % 2
                if rows:
                    hidden[0] = 0
                    for i in range(rows):
                        add_row(hidden, 0, inputs, context[i], np.float32(1 / rows))
                    tell_one(hidden, change, outputs, chosen[now], labels[now], counts[now], rate, room)
                    for i in range(rows):
                        add_row(inputs, context[i], change, 0, np.float32(1))


@njit(nogil=True, cache=True)
def surroundings(line: np.ndarray, length: int, at: int, reach: int | np.int64, context: np.ndarray) -> int:
    """Write the words within reach of a place into `context`; how many there are."""
    count = 0
    for other in range(max(0, at - reach), min(length, at + reach + 1)):
        if other != at:
            context[count] = line[other]
            count += 1
    return count
