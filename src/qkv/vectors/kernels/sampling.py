"""Random numbers, negative sampling, hierarchical softmax and the sigmoid, for use inside compiled loops."""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

LOG2E = np.float32(math.log2(math.e))
SIGMOID_LIMIT = np.float32(80.0)  # beyond it the sigmoid is 0 or 1 in float32
# Taylor coefficients of 2^x.
C1, C2, C3, C4, C5, C6 = (np.float32(math.log(2) ** k / math.factorial(k)) for k in range(1, 7))


class TargetSampler(NamedTuple):
    """The output rows that a word is trained on: negative samples, or the inner nodes on its path in a Huffman tree."""

    negatives: int  # negative samples per word; 0: hierarchical softmax
    threshold: np.ndarray  # (V,) uint32, Walker's alias method: keep the drawn word if 32 random bits are below this,
    alias: np.ndarray  # (V,) int32, otherwise replace it by this word
    path_starts: np.ndarray  # (V + 1,) int64: where a word's path begins in the next two arrays
    path_nodes: np.ndarray  # int32: inner nodes of the Huffman tree
    path_codes: np.ndarray  # float32: 1 where the path goes left


@njit(inline="always")
def next_random(state: np.uint64) -> tuple:
    """Return the next state and 64 random bits (splitmix64: Steele, Lea and Flood 2014)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    bits = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, bits ^ (bits >> np.uint64(31))


@njit(inline="always")
def random_below(bits: np.uint64, limit: int) -> np.int64:
    """Map the upper 32 random bits to an integer in [0, limit)."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@njit(nogil=True, cache=True)
def draw_negative(state: np.uint64, sampler: TargetSampler) -> tuple:
    """Return the next state and a word drawn from the noise distribution."""
    state, bits = next_random(state)
    word = np.int32(random_below(bits, len(sampler.alias)))
    if np.uint32(bits & np.uint64(0xFFFFFFFF)) >= sampler.threshold[word]:
        word = sampler.alias[word]
    return state, word


@njit(nogil=True, cache=True)
def draw_targets(state: np.uint64, word: int, sampler: TargetSampler, targets: np.ndarray, labels: np.ndarray, end: int) -> tuple:
    """Append the output rows and labels of `word` to `targets` and `labels` at index `end`; return the next state and end."""
    if sampler.negatives == 0:
        for i in range(sampler.path_starts[word], sampler.path_starts[word + 1]):
            targets[end], labels[end] = sampler.path_nodes[i], sampler.path_codes[i]
            end += 1
        return state, end
    targets[end], labels[end] = word, np.float32(1)
    end += 1
    for _ in range(sampler.negatives):
        state, negative = draw_negative(state, sampler)
        if negative != word:  # word2vec.c skips it too
            targets[end], labels[end] = negative, np.float32(0)
            end += 1
    return state, end


@njit(nogil=True, cache=True)
def pad_to_tile(rows: np.ndarray, count: int, tile: int) -> int:
    """Repeat the first row until `count` is a multiple of `tile`; return the new count. The caller gives padding no weight."""
    while count % tile:
        rows[count] = rows[0]
        count += 1
    return count


@njit(inline="always")
def sigmoid(x: np.float32) -> np.float32:
    """Compute 1 / (1 + e^-x) to float32 precision without branches or calls, so that the compiler vectorises it."""
    power = -min(max(x, -SIGMOID_LIMIT), SIGMOID_LIMIT) * LOG2E
    whole = np.floor(power + np.float32(0.5))
    fraction = power - whole
    exp2 = np.float32(1) + fraction * (C1 + fraction * (C2 + fraction * (C3 + fraction * (C4 + fraction * (C5 + fraction * C6)))))
    scale = np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)
    return np.float32(1) / (np.float32(1) + exp2 * scale)


@njit(nogil=True, cache=True, fastmath=True)
def logistic_steps(scores: np.ndarray, labels: np.ndarray, rows: int, columns: int, rate: np.float32) -> None:
    """Replace each score by its gradient step rate * (label - sigmoid(score))."""
    for i in range(rows):
        for j in range(columns):
            scores[i, j] = rate * (labels[j] - sigmoid(scores[i, j]))
