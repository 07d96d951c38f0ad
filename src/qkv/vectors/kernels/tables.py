"""Walker's alias table and the Huffman tree; compiled, because vocabularies have millions of words."""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def alias_table(weights: np.ndarray) -> tuple:
    """Build Walker's alias table: keep a uniformly drawn i if 32 random bits are below threshold[i], else take alias[i]."""
    count = len(weights)
    share = weights / weights.sum() * count
    alias = np.arange(count).astype(np.int32)
    stack = np.empty(count, np.int32)  # small shares grow from the left, large ones from the right
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
        alias[low] = high
        share[high] -= 1 - share[low]
        if share[high] < 1:
            large += 1
            stack[small] = high
            small += 1
    threshold = np.empty(count, np.uint32)
    for i in range(count):
        threshold[i] = np.uint32(min(share[i] * 4294967296.0, 4294967295.0))
    return threshold, alias


@njit(nogil=True, cache=True)
def huffman_tree(counts: np.ndarray) -> tuple:
    """Build the Huffman tree over words sorted by falling count: each node's parent and whether it is a left child, (2 V - 1,).

    Words come first, then inner nodes, the root last; the rarer of two children is the left one.
    """
    words = len(counts)
    weight = np.zeros(2 * words - 1, np.int64)
    weight[:words] = counts
    parent, left = np.zeros(2 * words - 1, np.int32), np.zeros(2 * words - 1, np.bool_)
    rarest, inner = words - 1, words
    for node in range(words, 2 * words - 1):
        for side in range(2):
            if rarest >= 0 and (inner >= node or weight[rarest] <= weight[inner]):
                child, rarest = rarest, rarest - 1
            else:
                child, inner = inner, inner + 1
            parent[child], left[child] = node, side == 0
            weight[node] += weight[child]
    return parent, left


@njit(nogil=True, cache=True)
def huffman_paths(parent: np.ndarray, left: np.ndarray) -> tuple:
    """Return starts, nodes and codes of every word's path from its leaf to the root, as in TargetSampler."""
    nodes = len(parent)
    words = (nodes + 1) // 2
    starts = np.zeros(words + 1, np.int64)
    for word in range(words):
        node, length = word, 0
        while node != nodes - 1:
            node, length = parent[node], length + 1
        starts[word + 1] = starts[word] + length
    path_nodes, path_codes = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    for word in range(words):
        node, i = word, starts[word]
        while node != nodes - 1:
            path_nodes[i], path_codes[i] = parent[node] - words, np.float32(left[node])
            node, i = parent[node], i + 1
    return starts, path_nodes, path_codes
