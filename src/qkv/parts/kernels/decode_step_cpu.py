"""One decoding step of attention over a cache on a CPU: keys and values are read where they lie, without copies or padding.

Compiled by numba, which takes half a second to import, so this file is imported when there is enough to read.
R queries, N texts, L positions, D width, H heads, K head width.
"""

import functools
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numba import njit
from torch import Tensor

FEW_NUMBERS = 4_000_000  # numbers to read for which another thread is not worth waking


def attend_cached(q: Tensor, log: Tensor, index: Tensor, first: Tensor, heads: int) -> Tensor:
    """Return softmax(q k' / sqrt(K)) v of each query over its text. (R, D) -> (R, D).

    log (rows, 2 D) holds keys and values; index (N, L) the rows of each text, from column first (N,) on. R / N queries in a row
    belong to each text.
    """
    rows, out = len(q), torch.empty_like(q)
    work = (q.numpy(), log.numpy(), index.numpy(), first.numpy(), heads, out.numpy())
    parts = max(1, min(torch.get_num_threads(), rows, rows // len(index) * index.numel() * log.size(1) // FEW_NUMBERS))
    bounds = [rows * part // parts for part in range(parts + 1)]
    others = [_threads().submit(_attend, *work, *bounds[part : part + 2]) for part in range(1, parts)]
    _attend(*work, *bounds[:2])
    for other in others:
        other.result()
    return out


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="qkv-attention")


if sys.platform != "win32":  # which has no fork
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not survive a fork


@njit(nogil=True, fastmath=True, cache=True)
def _dot(a: np.ndarray, b: np.ndarray) -> np.float32:
    total = np.float32(0)
    for column in range(a.shape[0]):
        total += a[column] * b[column]
    return total


@njit(nogil=True, fastmath=True, cache=True)
def _add(total: np.ndarray, weight: np.float32, values: np.ndarray) -> None:
    for column in range(total.shape[0]):
        total[column] += weight * values[column]


@njit(nogil=True, fastmath=True, cache=True)
def _softmax(scores: np.ndarray, scale: np.float32) -> None:
    highest, total = scores.max(), np.float32(0)
    for position in range(scores.shape[0]):
        scores[position] = np.exp((scores[position] - highest) * scale)
        total += scores[position]
    for position in range(scores.shape[0]):
        scores[position] /= total


@njit(nogil=True, fastmath=True, cache=True)
def _attend(
    q: np.ndarray, log: np.ndarray, index: np.ndarray, first: np.ndarray, heads: int, out: np.ndarray, begin: int, end: int
) -> None:
    """Attend from the queries `begin` to `end`; a text of no positions gives zeros."""
    width, length, each = q.shape[1], index.shape[1], q.shape[0] // index.shape[0]
    head = width // heads
    scale = np.float32(1 / math.sqrt(head))
    scores = np.empty((heads, length), np.float32)
    total = np.empty(width, np.float32)
    for row in range(begin, end):
        text = row // each
        start = first[text]
        total[:] = 0
        if start < length:
            for position in range(start, length):
                keys = log[index[text, position]]
                for h in range(heads):
                    scores[h, position] = _dot(q[row, h * head : (h + 1) * head], keys[h * head : (h + 1) * head])
            for h in range(heads):
                _softmax(scores[h, start:], scale)
            for position in range(start, length):
                values = log[index[text, position]][width:]
                for h in range(heads):
                    _add(total[h * head : (h + 1) * head], scores[h, position], values[h * head : (h + 1) * head])
        out[row] = total
