"""One step of AdaGrad for each pair of words (Pennington et al. 2014, equation 8; as in the authors' program)."""

import numpy as np
from numba import njit

from qkv.vectors.kernels.simd import fetch_row

AHEAD = 4  # pairs whose rows are asked of the memory beforehand


@njit(cache=True, nogil=True, fastmath=True)
def update(pairs, words, words_squares, contexts, contexts_squares, width, rate, x_max, power):  # type: ignore[no-untyped-def]
    """Step for each pair in both directions; the objective before each step, summed. A row's bias follows its `width` numbers."""
    cost = 0.0
    for n in range(len(pairs)):
        if n + AHEAD < len(pairs):
            for row in (np.int64(pairs[n + AHEAD].first), np.int64(pairs[n + AHEAD].second)):
                fetch_row(words, row)
                fetch_row(words_squares, row)
                fetch_row(contexts, row)
                fetch_row(contexts_squares, row)
        first, second, count = pairs[n].first, pairs[n].second, pairs[n].count
        weight = min(np.float32(1), (count / x_max) ** power)
        target = np.log(count)
        cost += _step(words[first], words_squares[first], contexts[second], contexts_squares[second], width, weight, target, rate)
        if first != second:
            cost += _step(
                words[second], words_squares[second], contexts[first], contexts_squares[first], width, weight, target, rate
            )
    return cost


@njit(cache=True, nogil=True, fastmath=True, inline="always")
def _step(word, word_squares, context, context_squares, width, weight, target, rate):  # type: ignore[no-untyped-def]
    """One step for X_ij; a bias has the gradient of a number that is multiplied by 1."""
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
