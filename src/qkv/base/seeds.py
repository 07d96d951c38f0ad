"""Seeds derived from where they are used: every random choice depends on the run's seed, a name and a step.

Nothing here keeps state, so a resumed run makes the same choices as an uninterrupted one.
"""

import numpy as np

_MASK = (1 << 63) - 1


def seed_at(*key: int | str) -> int:
    """Return a 63-bit seed for a key such as (seed, "dropout", step); equal keys give equal seeds on every machine."""
    words = [w for part in key for w in _words(part)]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0]) & _MASK


def rng_at(*key: int | str) -> np.random.Generator:
    """Return a NumPy generator for a key."""
    return np.random.Generator(np.random.Philox(seed_at(*key)))


def _words(part: int | str) -> list[int]:
    return [len(part), *part.encode()] if isinstance(part, str) else [part & 0xFFFFFFFF, part >> 32]


def permuted(index: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Return the images of `index` under a random permutation of range(size), without building the permutation.

    The permutation is a Feistel network over the next even power of two, repeated until the value falls inside the range.
    It takes constant time and memory per index, so iteration over a shuffled corpus of any size can start anywhere.
    """
    half = max(1, ((max(size, 2) - 1).bit_length() + 1) // 2)
    low = np.uint64((1 << half) - 1)
    keys = np.random.SeedSequence(_words(seed)).generate_state(6, np.uint64)
    values = np.asarray(index, dtype=np.uint64).copy()
    outside = np.ones(values.shape, dtype=bool)
    while outside.any():
        values[outside] = _feistel(values[outside], keys, np.uint64(half), low)
        outside = values >= size
    return values.astype(np.int64)


def _feistel(values: np.ndarray, keys: np.ndarray, half: np.uint64, low: np.uint64) -> np.ndarray:
    left, right = values >> half, values & low
    for key in keys:
        mixed = (right + key) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        left, right = right, left ^ (mixed & low)
    return (left << half) | right
