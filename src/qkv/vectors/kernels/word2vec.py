"""Skip-gram and CBOW (Mikolov et al. 2013a, 2013b) on one chunk of a corpus.

Departures. Skip-gram: all context words of a window share the negative samples that are drawn once for the center word (Ji et al.
2016), so that scores and updates are small matrix products; each pair of words still meets `negatives` negative samples. CBOW:
context words get the gradient of their mean undivided, as in word2vec.c.

V words, D width (padded to whole SIMD registers). `ids` holds word ids, -1 between lines.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from qkv.vectors.kernels.sampling import TargetSampler, draw_targets, logistic_steps, next_random, pad_to_tile, random_below
from qkv.vectors.kernels.simd import (
    TILE_COLUMNS,
    TILE_ROWS,
    add_row,
    copy_row,
    prefetch_row,
    row_products,
    tile_products,
    update_columns_by_row,
    update_row,
    update_tile_columns,
    update_tile_rows,
)

MAX_SENTENCE = 10_000  # words; longer lines are cut, as in gensim


class Workspace(NamedTuple):
    """Buffers of a training step."""

    rows: np.ndarray  # (columns, D): output rows before the step
    order: np.ndarray  # int32: 0, 1, 2, ...
    scores: np.ndarray  # (rows, columns)


@njit(nogil=True, cache=True)
def make_workspace(rows: int, columns: int, width: int) -> Workspace:
    """Allocate buffers for up to `rows` input rows and `columns` output rows."""
    order = np.arange(columns).astype(np.int32)
    return Workspace(np.zeros((columns, width), np.float32), order, np.zeros((rows, columns), np.float32))


@njit(nogil=True, cache=True)
def max_targets(sampler: TargetSampler) -> int:
    """Return the largest number of output rows of any word, with room to round up to whole tiles."""
    most = 1 + sampler.negatives
    for word in range(len(sampler.path_starts) - 1):
        most = max(most, sampler.path_starts[word + 1] - sampler.path_starts[word])
    return most + TILE_COLUMNS


@njit(nogil=True, cache=True)
def read_sentence(ids: np.ndarray, position: int, keep: np.ndarray, state: np.uint64, sentence: np.ndarray) -> tuple:
    """Copy the next line into `sentence`, dropping rare words and subsampling frequent ones; return position, state and length.

    A negative id ends a line; an id of len(keep) or more is a word below the minimum count.
    """
    length = 0
    while position < len(ids) and length < len(sentence):
        word = ids[position]
        position += 1
        if word < 0:
            if length:
                break
        elif word < len(keep):
            state, bits = next_random(state)
            if bits >> np.uint64(32) <= keep[word]:
                sentence[length] = word
                length += 1
    return position, state, length


@njit(nogil=True, cache=True)
def copy_context(sentence: np.ndarray, length: int, center: int, window: int | np.int64, context: np.ndarray) -> int:
    """Copy the words within `window` of the center into `context`; return how many there are."""
    count = 0
    for i in range(max(0, center - window), min(length, center + window + 1)):
        if i != center:
            context[count] = sentence[i]
            count += 1
    return count


@njit(nogil=True, cache=True)
def step_rows(
    inputs: np.ndarray,
    context: np.ndarray,  # int32: rows of inputs; the first `rows` count
    rows: int,
    outputs: np.ndarray,
    targets: np.ndarray,  # int32: rows of outputs; the first `count` count, with their labels
    labels: np.ndarray,
    count: int,
    rate: np.float32,
    workspace: Workspace,
) -> None:
    """Take one gradient step on the log-likelihood of each input row with each target; scores use the rows before the step."""
    columns, tall = pad_to_tile(targets, count, TILE_COLUMNS), pad_to_tile(context, rows, TILE_ROWS)
    for j in range(columns):
        copy_row(workspace.rows, j, outputs, targets[j])
    for i in range(0, tall, TILE_ROWS):
        for j in range(0, columns, TILE_COLUMNS):
            tile_products(inputs, context, i, workspace.rows, workspace.order, j, workspace.scores)
    logistic_steps(workspace.scores, labels, tall, columns, rate)
    workspace.scores[rows:tall, :columns] = 0
    workspace.scores[:tall, count:columns] = 0
    for j in range(0, columns, TILE_COLUMNS):
        for i in range(0, tall, TILE_ROWS):
            update_tile_columns(outputs, targets, j, inputs, context, i, workspace.scores)
    for i in range(0, tall, TILE_ROWS):
        for j in range(0, columns, TILE_COLUMNS):
            update_tile_rows(inputs, context, i, workspace.rows, workspace.order, j, workspace.scores)


@njit(nogil=True, cache=True)
def step_hidden(
    hidden: np.ndarray,  # (1, D)
    gradient: np.ndarray,  # (1, D): receives the step of the hidden row
    outputs: np.ndarray,
    targets: np.ndarray,
    labels: np.ndarray,
    count: int,
    rate: np.float32,
    workspace: Workspace,
) -> None:
    """Take one gradient step of the targets' output rows for one hidden row, and write the hidden row's step to `gradient`."""
    columns = pad_to_tile(targets, count, TILE_COLUMNS)
    gradient[0] = 0
    for j in range(0, columns, TILE_COLUMNS):
        row_products(hidden, workspace.order, 0, outputs, targets, j, workspace.scores)
    logistic_steps(workspace.scores, labels, 1, columns, rate)
    workspace.scores[0, count:columns] = 0
    for j in range(0, columns, TILE_COLUMNS):
        update_row(gradient, workspace.order, 0, outputs, targets, j, workspace.scores)
    for j in range(0, columns, TILE_COLUMNS):
        update_columns_by_row(outputs, targets, j, hidden, workspace.order, 0, workspace.scores)


@njit(nogil=True, cache=True)
def train_skipgram(
    ids: np.ndarray,
    inputs: np.ndarray,  # (V, D)
    outputs: np.ndarray,  # (V, D)
    keep: np.ndarray,  # (V,) uint32: subsampling thresholds
    sampler: TargetSampler,
    window: int,
    first_rate: float,
    last_rate: float,
    seed: int,
) -> None:
    """Train on a chunk of a corpus while the learning rate falls linearly from first_rate to last_rate."""
    sentence, most = np.zeros(MAX_SENTENCE, np.int32), max_targets(sampler)
    context = np.zeros(2 * window + TILE_ROWS, np.int32)
    targets, labels, counts = np.zeros((2, most), np.int32), np.zeros((2, most), np.float32), np.zeros(2, np.int64)
    workspace = make_workspace(2 * window + TILE_ROWS, most, inputs.shape[1])
    position, state = 0, np.uint64(seed)
    while position < len(ids):
        rate = np.float32(first_rate + (last_rate - first_rate) * position / len(ids))
        position, state, length = read_sentence(ids, position, keep, state, sentence)
        for center in range(-1, length):  # targets are drawn one word ahead, so that their rows are prefetched in time
            if center + 1 < length:
                slot = (center + 1) % 2
                state, counts[slot] = draw_targets(state, sentence[center + 1], sampler, targets[slot], labels[slot], 0)
                for j in range(counts[slot]):
                    prefetch_row(outputs, targets[slot, j])
                prefetch_row(inputs, sentence[min(center + 1 + window, length - 1)])
            if center >= 0:
                state, bits = next_random(state)
                rows = copy_context(sentence, length, center, 1 + random_below(bits, window), context)
                slot = center % 2
                if rows:
                    step_rows(inputs, context, rows, outputs, targets[slot], labels[slot], counts[slot], rate, workspace)


@njit(nogil=True, cache=True)
def train_cbow(
    ids: np.ndarray,
    inputs: np.ndarray,  # (V, D)
    outputs: np.ndarray,  # (V, D)
    keep: np.ndarray,  # (V,) uint32: subsampling thresholds
    sampler: TargetSampler,
    window: int,
    first_rate: float,
    last_rate: float,
    seed: int,
) -> None:
    """Train on a chunk of a corpus while the learning rate falls linearly from first_rate to last_rate."""
    sentence, most = np.zeros(MAX_SENTENCE, np.int32), max_targets(sampler)
    context = np.zeros(2 * window, np.int32)
    targets, labels, counts = np.zeros((2, most), np.int32), np.zeros((2, most), np.float32), np.zeros(2, np.int64)
    workspace = make_workspace(1, most, inputs.shape[1])
    hidden, gradient = np.zeros((1, inputs.shape[1]), np.float32), np.zeros((1, inputs.shape[1]), np.float32)
    position, state = 0, np.uint64(seed)
    while position < len(ids):
        rate = np.float32(first_rate + (last_rate - first_rate) * position / len(ids))
        position, state, length = read_sentence(ids, position, keep, state, sentence)
        for center in range(-1, length):  # targets are drawn one word ahead, so that their rows are prefetched in time
            if center + 1 < length:
                slot = (center + 1) % 2
                state, counts[slot] = draw_targets(state, sentence[center + 1], sampler, targets[slot], labels[slot], 0)
                for j in range(counts[slot]):
                    prefetch_row(outputs, targets[slot, j])
                prefetch_row(inputs, sentence[min(center + 1 + window, length - 1)])
            if center >= 0:
                state, bits = next_random(state)
                rows = copy_context(sentence, length, center, 1 + random_below(bits, window), context)
                slot = center % 2
                if rows:
                    hidden[0] = 0
                    for i in range(rows):
                        add_row(hidden, 0, inputs, context[i], np.float32(1 / rows))
                    step_hidden(hidden, gradient, outputs, targets[slot], labels[slot], counts[slot], rate, workspace)
                    for i in range(rows):
                        add_row(inputs, context[i], gradient, 0, np.float32(1))
