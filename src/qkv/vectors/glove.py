"""GloVe (Pennington, Socher and Manning 2014): vectors whose products are the logarithms of co-occurrence counts.

The objective is equation 8: the sum over nonzero X_ij of f(X_ij) (w_i . w~_j + b_i + b~_j - log X_ij)^2, where f(x) is
(x / x_max)^0.75, 1 at the most. AdaGrad is that of the authors' program, which their figures come from: gradients of half the
objective, the rate inside the squares that are summed, sums that begin with 1. Departure: X_ij and X_ji, which are equal and
share no parameter, follow each other.
"""

import numpy as np
from numba import njit

from qkv.base.seeds import rng_at
from qkv.vectors.cooccurrence import Pairs
from qkv.vectors.store import Part, Vectors


class GloVe:
    """Both matrices, biases in the last columns, with their sums of squared gradients, and what a piece of work does to them."""

    def __init__(
        self, pairs: Pairs, size: int, width: int, epochs: int, rate: float, x_max: float, power: float, seed: int
    ) -> None:
        self.pairs, self.seed = pairs, seed
        self.rate, self.x_max, self.power = np.float32(rate), np.float32(x_max), np.float32(power)
        self.pieces = epochs * len(pairs.sizes)
        self.costs = np.zeros(epochs)
        rng = rng_at(seed, "glove")
        self.arrays: dict[str, np.ndarray] = {}
        for name in ("words", "contexts"):
            self.arrays[name] = (rng.random((size, width + 1), np.float32) - np.float32(0.5)) / np.float32(width)
            self.arrays[f"{name}_squares"] = np.ones((size, width + 1), np.float32)

    def piece(self, number: int) -> None:
        """Train on one bucket of pairs; each epoch goes through all of them, in an order of its own."""
        epoch, place = divmod(number, len(self.pairs.sizes))
        bucket = rng_at(self.seed, "buckets", epoch).permutation(len(self.pairs.sizes))[place]
        pairs = self.pairs.bucket(bucket)
        pairs = pairs[rng_at(self.seed, "pairs", number).permutation(len(pairs))]
        self.costs[epoch] += update(pairs, *self.arrays.values(), self.rate, self.x_max, self.power)

    def vectors(self, words: list[str], counts: np.ndarray, result: Part = "sum") -> Vectors:
        """The words' vectors: of the words, of the contexts, or both together."""
        inputs, outputs = (np.ascontiguousarray(self.arrays[name][:, :-1]) for name in ("words", "contexts"))
        return Vectors.of_both(words, inputs, outputs, result, counts=counts)


@njit(cache=True, nogil=True, fastmath=True)
def update(pairs, words, words_squares, contexts, contexts_squares, rate, x_max, power):  # type: ignore[no-untyped-def]
    """One step of AdaGrad for each pair, in both directions; the objective before each step, summed."""
    cost = 0.0
    for n in range(len(pairs)):
        first, second, count = pairs[n].first, pairs[n].second, pairs[n].count
        weight = min(np.float32(1), (count / x_max) ** power)
        target = np.log(count)
        cost += _step(words[first], words_squares[first], contexts[second], contexts_squares[second], weight, target, rate)
        if first != second:
            cost += _step(words[second], words_squares[second], contexts[first], contexts_squares[first], weight, target, rate)
    return cost


@njit(cache=True, nogil=True, fastmath=True, inline="always")
def _step(word, word_squares, context, context_squares, weight, target, rate):  # type: ignore[no-untyped-def]
    """One step for X_ij; each row ends with its bias, whose gradient is that of a number multiplied by 1."""
    width = len(word) - 1
    product = np.float32(0)
    for d in range(width):
        product += word[d] * context[d]
    error = product + word[width] + context[width] - target
    slope = rate * weight * error
    for d in range(width):
        of_word, of_context = slope * context[d], slope * word[d]
        word[d] -= of_word / np.sqrt(word_squares[d])
        context[d] -= of_context / np.sqrt(context_squares[d])
        word_squares[d] += of_word * of_word
        context_squares[d] += of_context * of_context
    word[width] -= slope / np.sqrt(word_squares[width])
    context[width] -= slope / np.sqrt(context_squares[width])
    word_squares[width] += slope * slope
    context_squares[width] += slope * slope
    return weight * error * error
