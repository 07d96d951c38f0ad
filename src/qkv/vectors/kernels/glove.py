"""AdaGrad on co-occurrence counts (Pennington et al. 2014, equation 8), as in the authors' program."""

import numpy as np
from numba import njit

from qkv.vectors.kernels.simd import prefetch_row

PREFETCH_AHEAD = 4  # pairs


@njit(cache=True, nogil=True, fastmath=True)
def train_pairs(pairs, words, words_squares, contexts, contexts_squares, width, rate, x_max, alpha):  # type: ignore[no-untyped-def]
    """Step once for X_ij and once for X_ji of each pair; return the summed loss. A row is `width` weights, then the bias."""
    loss = 0.0
    for n in range(len(pairs)):
        if n + PREFETCH_AHEAD < len(pairs):
            for row in (np.int64(pairs[n + PREFETCH_AHEAD].first), np.int64(pairs[n + PREFETCH_AHEAD].second)):
                prefetch_row(words, row)
                prefetch_row(words_squares, row)
                prefetch_row(contexts, row)
                prefetch_row(contexts_squares, row)
        first, second, count = pairs[n].first, pairs[n].second, pairs[n].count
        weight = min(np.float32(1), (count / x_max) ** alpha)
        target = np.log(count)
        loss += _step(words[first], words_squares[first], contexts[second], contexts_squares[second], width, weight, target, rate)
        if first != second:
            loss += _step(
                words[second], words_squares[second], contexts[first], contexts_squares[first], width, weight, target, rate
            )
    return loss


@njit(cache=True, nogil=True, fastmath=True, inline="always")
def _step(word, word_squares, context, context_squares, width, weight, target, rate):  # type: ignore[no-untyped-def]
    """Update one word row and one context row in place; return their loss before the step."""
    product = np.float32(0)
    for d in range(width):
        product += word[d] * context[d]
    error = product + word[width] + context[width] - target
    slope = rate * weight * error
    for d in range(width):
        word_step, context_step = slope * context[d], slope * word[d]
        word[d] -= word_step / np.sqrt(word_squares[d])
        context[d] -= context_step / np.sqrt(context_squares[d])
        word_squares[d] += word_step * word_step
        context_squares[d] += context_step * context_step
    word[width] -= slope / np.sqrt(word_squares[width])
    context[width] -= slope / np.sqrt(context_squares[width])
    word_squares[width] += slope * slope
    context_squares[width] += slope * slope
    return weight * error * error
