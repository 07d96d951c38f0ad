"""Kernels for character n-grams of words and their hash buckets, as fastText computes them."""

import numpy as np
from numba import njit

from qkv.vectors.kernels.hashing import FNV_OFFSET, fnv1a_step


@njit(cache=True, nogil=True)
def hash_ngrams(text, offsets, min_n, max_n, buckets, starts, ids):  # type: ignore[no-untyped-def]
    """Fill `starts`, and `ids` unless it is empty: the first call counts the n-grams, the second stores their buckets."""
    count = 0
    for word in range(len(offsets) - 1):
        begin, end = offsets[word], offsets[word + 1]
        for first in range(begin, end):
            if text[first] & 0xC0 == 0x80:  # a continuation byte of UTF-8
                continue
            code, position, length = FNV_OFFSET, first, 1
            while position < end and length <= max_n:
                code = fnv1a_step(code, text[position])
                position += 1
                while position < end and text[position] & 0xC0 == 0x80:
                    code = fnv1a_step(code, text[position])
                    position += 1
                # fastText skips the 1-grams < and >.
                if length >= min_n and not (length == 1 and (first == begin or position == end)):
                    if len(ids):
                        ids[count] = code % np.uint32(buckets)
                    count += 1
                length += 1
        starts[word + 1] = count


@njit(cache=True, nogil=True)
def mean_with_ngrams(word_rows, bucket_rows, ids, starts):  # type: ignore[no-untyped-def]
    """Return the mean of each word's own row and the rows of its n-grams, (V, D)."""
    out = word_rows.copy()
    for word in range(len(word_rows)):
        for i in range(starts[word], starts[word + 1]):
            out[word] += bucket_rows[ids[i]]
        out[word] /= np.float32(1 + starts[word + 1] - starts[word])
    return out
