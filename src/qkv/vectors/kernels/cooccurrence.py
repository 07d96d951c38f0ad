"""Counts of pairs of words in a hash table."""

import numpy as np
from numba import njit

UNIT = 1 << 32  # counts are whole numbers of 1 / UNIT, so that their sums do not depend on the order


@njit(cache=True, nogil=True)
def add_pairs(ids, start, size, recent, state, keys, sums, most):  # type: ignore[no-untyped-def]
    """Count the words from a place on, until all are or the table is full; where that was.

    `recent` holds the last words of a line, and `state` how many it had so far and how many slots are in use.
    """
    window, mask = len(recent), len(keys) - 1
    before, used = state[0], state[1]
    for place in range(start, len(ids)):
        if used + window > most:
            state[0], state[1] = before, used
            return place
        word = np.int64(ids[place])
        if word < 0:
            before = 0
        elif word < size:
            for distance in range(1, min(before, window) + 1):
                other = recent[(before - distance) % window]
                key = min(word, other) * size + max(word, other)
                slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
                while keys[slot] != key and keys[slot] >= 0:
                    slot = (slot + 1) & mask
                if keys[slot] < 0:
                    keys[slot] = key
                    used += 1
                # A word near itself is in its own window from both sides.
                sums[slot] += (2 * UNIT if word == other else UNIT) // distance
            recent[before % window] = word
            before += 1
    state[0], state[1] = before, used
    return len(ids)
