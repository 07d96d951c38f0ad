"""Randomness is explicit: every random choice comes from a seed and the place where it is made.

Nothing here keeps state, so a resumed run makes the same choices as one never interrupted.
"""

import numpy as np

_MASK = (1 << 63) - 1


def seed_at(*place: int | str) -> int:
    """One 63-bit seed for a place such as (seed, "dropout", step); equal places give equal seeds on every machine."""
    words = [w for step in place for w in _words(step)]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0]) & _MASK


def rng_at(*place: int | str) -> np.random.Generator:
    """A NumPy generator for a place."""
    return np.random.Generator(np.random.Philox(seed_at(*place)))


def _words(step: int | str) -> list[int]:
    return [len(step), *step.encode()] if isinstance(step, str) else [step & 0xFFFFFFFF, step >> 32]


def permuted(index: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Where `index` lands in a random permutation of range(size), without making the permutation.

    A Feistel network over the next even power of two, walked until it falls inside the range: constant time and memory per
    index, so that a shuffled corpus of any size can be entered at any point.
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
