"""Random numbers, the words that a word is told from, and the sigmoid, for use inside compiled loops."""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

LOG2E = np.float32(math.log2(math.e))
STEEP = np.float32(80.0)  # beyond it float32 knows only 0 and 1
C1, C2, C3, C4, C5, C6 = (np.float32(math.log(2) ** k / math.factorial(k)) for k in range(1, 7))  # of 2^x, by Taylor


class Targets(NamedTuple):
    """What a word's score is compared with: noise words, or the nodes on its way down a Huffman tree."""

    negatives: int  # 0: the tree
    threshold: np.ndarray  # (V,) uint32, Walker's alias method: a drawn word is kept as often as this says,
    other: np.ndarray  # (V,) int32, and otherwise becomes this one
    starts: np.ndarray  # (V + 1,) int64: where a word's nodes begin
    nodes: np.ndarray  # int32
    turns: np.ndarray  # float32: 1 where the way goes left, which is what a node's sigmoid tells


@njit(inline="always")
def random(state: np.uint64) -> tuple:
    """The next state and 64 random bits (splitmix64: Steele, Lea and Flood 2014)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    bits = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, bits ^ (bits >> np.uint64(31))


@njit(inline="always")
def below(bits: np.uint64, limit: int) -> np.int64:
    """A number below a limit, of the upper 32 bits."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@njit(nogil=True, cache=True)
def draw_noise(state: np.uint64, targets: Targets) -> tuple:
    """The next state and a word of the noise distribution."""
    state, bits = random(state)
    word = np.int32(below(bits, len(targets.other)))
    if np.uint32(bits & np.uint64(0xFFFFFFFF)) >= targets.threshold[word]:
        word = targets.other[word]
    return state, word


@njit(nogil=True, cache=True)
def draw_targets(state: np.uint64, word: int, targets: Targets, chosen: np.ndarray, labels: np.ndarray, at: int) -> tuple:
    """Write what `word` is told by into `chosen` and `labels` from place `at` on; the next state, and the place after them."""
    if targets.negatives == 0:
        for i in range(targets.starts[word], targets.starts[word + 1]):
            chosen[at], labels[at] = targets.nodes[i], targets.turns[i]
            at += 1
        return state, at
    chosen[at], labels[at] = word, np.float32(1)
    at += 1
    for _ in range(targets.negatives):
        state, other = draw_noise(state, targets)
        if other != word:  # it is no noise here; word2vec.c leaves it out too
            chosen[at], labels[at] = other, np.float32(0)
            at += 1
    return state, at


@njit(nogil=True, cache=True)
def fill_up(chosen: np.ndarray, count: int, tile: int) -> int:
    """Make whole tiles of the chosen rows, of rows that are chosen already; these get no weight. How many there are then."""
    while count % tile:
        chosen[count] = chosen[0]
        count += 1
    return count


@njit(inline="always")
def sigmoid(x: np.float32) -> np.float32:
    """1 / (1 + e^-x) to float32's precision, without a branch or a call, so that many are computed at once."""
    power = -min(max(x, -STEEP), STEEP) * LOG2E
    whole = np.floor(power + np.float32(0.5))
    part = power - whole
    small = np.float32(1) + part * (C1 + part * (C2 + part * (C3 + part * (C4 + part * (C5 + part * C6)))))
    scale = np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)
    return np.float32(1) / (np.float32(1) + small * scale)


@njit(nogil=True, cache=True, fastmath=True)
def errors(scores: np.ndarray, labels: np.ndarray, rows: int, columns: int, rate: np.float32) -> None:
    """Turn scores into what outputs are moved by: rate * (label - sigmoid(score))."""
    for i in range(rows):
        for j in range(columns):
            scores[i, j] = rate * (labels[j] - sigmoid(scores[i, j]))
