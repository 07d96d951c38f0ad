"""fastText's hash of words and n-grams: FNV-1a of 32 bits over UTF-8, whose bytes it takes as signed."""

import numpy as np
from numba import njit

START = np.uint32(2166136261)


@njit(inline="always")
def hashed(code: np.uint32, letter: np.uint8) -> np.uint32:
    """The hash of a text that is one byte longer."""
    return np.uint32((code ^ np.uint32(np.int8(letter))) * np.uint32(16777619))
