"""fastText's hash of words and n-grams: 32-bit FNV-1a over UTF-8 with each byte sign-extended."""

import numpy as np
from numba import njit

FNV_OFFSET = np.uint32(2166136261)


@njit(inline="always")
def fnv1a_step(code: np.uint32, byte: np.uint8) -> np.uint32:
    """Return the hash after one more byte."""
    return np.uint32((code ^ np.uint32(np.int8(byte))) * np.uint32(16777619))
