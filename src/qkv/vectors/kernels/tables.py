"""Tables that words are drawn by, and the Huffman tree; compiled, as vocabularies have millions of words."""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def alias_table(weights: np.ndarray) -> tuple:
    """Walker's alias method: a number drawn evenly is kept if 32 random bits are below its threshold, or else replaced."""
    count = len(weights)
    share = weights / weights.sum() * count
    other = np.arange(count).astype(np.int32)
    stack = np.empty(count, np.int32)  # the small ones from the left, the large ones from the right
    small, large = 0, count
    for i in range(count):
        if share[i] < 1:
            stack[small] = i
            small += 1
        else:
            large -= 1
            stack[large] = i
    while small > 0 and large < count:
        small -= 1
        low, high = stack[small], stack[large]
        other[low] = high
        share[high] -= 1 - share[low]
        if share[high] < 1:
            large += 1
            stack[small] = high
            small += 1
    threshold = np.empty(count, np.uint32)
    for i in range(count):
        threshold[i] = np.uint32(min(share[i] * 4294967296.0, 4294967295.0))
    return threshold, other


@njit(nogil=True, cache=True)
def huffman(counts: np.ndarray) -> tuple:
    """The tree over words in falling order of count: each node's parent and whether it is the left child, (2 V - 1,).

    Words come first, then inner nodes; of the two rarest the rarest is the left one.
    """
    words = len(counts)
    weight = np.zeros(2 * words - 1, np.int64)
    weight[:words] = counts
    parent, left = np.zeros(2 * words - 1, np.int32), np.zeros(2 * words - 1, np.bool_)
    rarest, inner = words - 1, words
    for node in range(words, 2 * words - 1):
        for turn in range(2):
            if rarest >= 0 and (inner >= node or weight[rarest] <= weight[inner]):
                child, rarest = rarest, rarest - 1
            else:
                child, inner = inner, inner + 1
            parent[child], left[child] = node, turn == 0
            weight[node] += weight[child]
    return parent, left


@njit(nogil=True, cache=True)
def ways_down(parent: np.ndarray, left: np.ndarray) -> tuple:
    """For each word the inner nodes from it to the root, numbered from 0, and whether the way goes left there: as in Targets."""
    nodes = len(parent)
    words = (nodes + 1) // 2
    starts = np.zeros(words + 1, np.int64)
    for word in range(words):
        node, length = word, 0
        while node != nodes - 1:
            node, length = parent[node], length + 1
        starts[word + 1] = starts[word] + length
    inner, turns = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    for word in range(words):
        node, at = word, starts[word]
        while node != nodes - 1:
            inner[at], turns[at] = parent[node] - words, np.float32(left[node])
            node, at = parent[node], at + 1
    return starts, inner, turns
