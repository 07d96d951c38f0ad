"""Co-occurrence counts in a hash table."""

import numpy as np
from numba import njit

ONE = 1 << 32  # counts are fixed-point multiples of 1 / ONE, so that their sums do not depend on the order


@njit(cache=True, nogil=True)
def count_window_pairs(ids, start, vocab, recent, state, keys, sums, max_used):  # type: ignore[no-untyped-def]
    """Count pairs from ids[start] on until the ids end or the table is full; return the index of the first id not counted.

    `recent` is a ring buffer of the last words of the line; `state` holds how many words the line had so far and how many slots
    are in use. Both carry over to the next call.
    """
    window, mask = len(recent), len(keys) - 1
    before, used = state[0], state[1]
    for position in range(start, len(ids)):
        if used + window > max_used:
            state[0], state[1] = before, used
            return position
        word = np.int64(ids[position])
        if word < 0:
            before = 0
        elif word < vocab:
            for distance in range(1, min(before, window) + 1):
                other = recent[(before - distance) % window]
                key = min(word, other) * vocab + max(word, other)
                slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
                while keys[slot] != key and keys[slot] >= 0:
                    slot = (slot + 1) & mask
                if keys[slot] < 0:
                    keys[slot] = key
                    used += 1
                # A word near itself counts twice, once from each side.
                sums[slot] += (2 * ONE if word == other else ONE) // distance
            recent[before % window] = word
            before += 1
    state[0], state[1] = before, used
    return len(ids)
