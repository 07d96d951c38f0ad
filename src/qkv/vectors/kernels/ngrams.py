"""Character n-grams of words and their buckets, as fastText computes them."""

import numpy as np
from numba import njit

from qkv.vectors.kernels.hashing import START, hashed
from qkv.vectors.subwords import END


def ngram_table(words: list[str], shortest: int, longest: int, buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """Buckets of all words' n-grams in a row, and where each word's begin: (N,) int32 and (words + 1,) int64."""
    encoded = [b"" if word == END else f"<{word}>".encode() for word in words]
    letters = np.frombuffer(b"".join(encoded), np.uint8)
    places = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(word) for word in encoded], out=places[1:])
    starts = np.zeros(len(words) + 1, np.int64)
    _walk(letters, places, shortest, longest, buckets, starts, np.zeros(0, np.int32))
    ids = np.zeros(starts[-1], np.int32)
    if len(ids):
        _walk(letters, places, shortest, longest, buckets, starts, ids)
    return ids, starts


@njit(cache=True, nogil=True)
def _walk(letters, places, shortest, longest, buckets, starts, ids):  # type: ignore[no-untyped-def]
    """Go through all n-grams: the first time, with no room for ids, only counting them."""
    count = 0
    for word in range(len(places) - 1):
        begin, end = places[word], places[word + 1]
        for first in range(begin, end):
            if letters[first] & 0xC0 == 0x80:  # inside a character
                continue
            code, place, length = START, first, 1
            while place < end and length <= longest:
                code = hashed(code, letters[place])
                place += 1
                while place < end and letters[place] & 0xC0 == 0x80:
                    code = hashed(code, letters[place])
                    place += 1
                # < and > alone say nothing of a word.
                if length >= shortest and not (length == 1 and (first == begin or place == end)):
                    if len(ids):
                        ids[count] = code % np.uint32(buckets)
                    count += 1
                length += 1
        starts[word + 1] = count


@njit(cache=True, nogil=True)
def means(own, buckets, ids, starts):  # type: ignore[no-untyped-def]
    """For each word the mean of its own vector and its n-grams' vectors, (V, D)."""
    out = own.copy()
    for word in range(len(own)):
        for i in range(starts[word], starts[word + 1]):
            out[word] += buckets[ids[i]]
        out[word] /= np.float32(1 + starts[word + 1] - starts[word])
    return out
