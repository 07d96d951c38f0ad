"""Skip-gram and CBOW over words and their character n-grams (Bojanowski et al. 2017), on one chunk of a corpus.

Departure: skip-gram sums a word's n-grams once per window and updates them once with the summed gradient, where fastText does
both for each pair of words. The gradient of a mean is passed on undivided, as in fastText.

V words, D width (padded to whole SIMD registers). `ids` holds word ids, -1 between lines.
"""

import numpy as np
from numba import njit

from qkv.vectors.kernels.sampling import TargetSampler, draw_targets, next_random, random_below
from qkv.vectors.kernels.simd import TILE_COLUMNS, add_row, prefetch_row
from qkv.vectors.kernels.word2vec import MAX_SENTENCE, copy_context, make_workspace, max_targets, read_sentence, step_hidden


@njit(nogil=True, cache=True)
def prefetch_word(inputs: np.ndarray, ngrams: np.ndarray, starts: np.ndarray, word: int) -> None:
    """Prefetch a word's row and the rows of its n-grams."""
    prefetch_row(inputs, word)
    for i in range(starts[word], starts[word + 1]):
        prefetch_row(inputs, ngrams[i])


@njit(nogil=True, cache=True)
def add_word(
    hidden: np.ndarray, inputs: np.ndarray, ngrams: np.ndarray, starts: np.ndarray, word: int, weight: np.float32
) -> None:
    """Add weight * (the word's row + the rows of its n-grams) to hidden[0]."""
    add_row(hidden, 0, inputs, word, weight)
    for i in range(starts[word], starts[word + 1]):
        add_row(hidden, 0, inputs, ngrams[i], weight)


@njit(nogil=True, cache=True)
def update_word(inputs: np.ndarray, ngrams: np.ndarray, starts: np.ndarray, word: int, gradient: np.ndarray) -> None:
    """Add a gradient step to a word's row and to the rows of its n-grams."""
    add_row(inputs, word, gradient, 0, np.float32(1))
    for i in range(starts[word], starts[word + 1]):
        add_row(inputs, ngrams[i], gradient, 0, np.float32(1))


@njit(nogil=True, cache=True)
def train_skipgram(
    ids: np.ndarray,
    inputs: np.ndarray,  # (V + buckets, D)
    outputs: np.ndarray,  # (V, D)
    ngrams: np.ndarray,  # int32: input rows of all words' n-grams, concatenated
    starts: np.ndarray,  # (V + 1,): where each word's n-grams begin
    keep: np.ndarray,  # (V,) uint32: subsampling thresholds
    sampler: TargetSampler,
    window: int,
    first_rate: float,
    last_rate: float,
    seed: int,
) -> None:
    """Train on a chunk of a corpus while the learning rate falls linearly from first_rate to last_rate."""
    most = 2 * window * max_targets(sampler) + TILE_COLUMNS
    sentence, context = np.zeros(MAX_SENTENCE, np.int32), np.zeros(2 * window, np.int32)
    targets, labels, counts = np.zeros((2, most), np.int32), np.zeros((2, most), np.float32), np.zeros(2, np.int64)
    workspace = make_workspace(1, most, 1)
    hidden, gradient = np.zeros((1, inputs.shape[1]), np.float32), np.zeros((1, inputs.shape[1]), np.float32)
    position, state = 0, np.uint64(seed)
    while position < len(ids):
        rate = np.float32(first_rate + (last_rate - first_rate) * position / len(ids))
        position, state, length = read_sentence(ids, position, keep, state, sentence)
        for center in range(-1, length):  # targets are drawn one word ahead, so that their rows are prefetched in time
            if center + 1 < length:
                slot = (center + 1) % 2
                state, bits = next_random(state)
                count = copy_context(sentence, length, center + 1, 1 + random_below(bits, window), context)
                counts[slot] = 0
                for i in range(count):
                    state, counts[slot] = draw_targets(state, context[i], sampler, targets[slot], labels[slot], counts[slot])
                for j in range(counts[slot]):
                    prefetch_row(outputs, targets[slot, j])
                prefetch_word(inputs, ngrams, starts, sentence[center + 1])
            slot = center % 2
            if center >= 0 and counts[slot]:
                word = sentence[center]
                hidden[0] = 0
                add_word(hidden, inputs, ngrams, starts, word, np.float32(1 / (1 + starts[word + 1] - starts[word])))
                step_hidden(hidden, gradient, outputs, targets[slot], labels[slot], counts[slot], rate, workspace)
                update_word(inputs, ngrams, starts, word, gradient)


@njit(nogil=True, cache=True)
def train_cbow(
    ids: np.ndarray,
    inputs: np.ndarray,  # (V + buckets, D)
    outputs: np.ndarray,  # (V, D)
    ngrams: np.ndarray,  # int32: input rows of all words' n-grams, concatenated
    starts: np.ndarray,  # (V + 1,): where each word's n-grams begin
    keep: np.ndarray,  # (V,) uint32: subsampling thresholds
    sampler: TargetSampler,
    window: int,
    first_rate: float,
    last_rate: float,
    seed: int,
) -> None:
    """Train on a chunk of a corpus while the learning rate falls linearly from first_rate to last_rate."""
    most = max_targets(sampler)
    sentence, context = np.zeros(MAX_SENTENCE, np.int32), np.zeros(2 * window, np.int32)
    targets, labels = np.zeros(most, np.int32), np.zeros(most, np.float32)
    workspace = make_workspace(1, most, 1)
    hidden, gradient = np.zeros((1, inputs.shape[1]), np.float32), np.zeros((1, inputs.shape[1]), np.float32)
    position, state = 0, np.uint64(seed)
    while position < len(ids):
        rate = np.float32(first_rate + (last_rate - first_rate) * position / len(ids))
        position, state, length = read_sentence(ids, position, keep, state, sentence)
        for center in range(length):
            prefetch_word(inputs, ngrams, starts, sentence[min(center + window + 1, length - 1)])
            state, bits = next_random(state)
            words = copy_context(sentence, length, center, 1 + random_below(bits, window), context)
            if words:
                state, count = draw_targets(state, sentence[center], sampler, targets, labels, 0)
                for j in range(count):
                    prefetch_row(outputs, targets[j])
                parts = words
                for i in range(words):
                    parts += starts[context[i] + 1] - starts[context[i]]
                hidden[0] = 0
                for i in range(words):
                    add_word(hidden, inputs, ngrams, starts, context[i], np.float32(1 / parts))
                step_hidden(hidden, gradient, outputs, targets, labels, count, rate, workspace)
                for i in range(words):
                    update_word(inputs, ngrams, starts, context[i], gradient)
