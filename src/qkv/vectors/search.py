"""Exact search for the rows with the highest scores, block by block, so that memory does not grow with the vocabulary."""

from collections.abc import Callable

import numpy as np

MAX_SCORES = 1 << 23  # scores held at once: 32 MiB


def top_rows(score_rows: Callable[[slice], np.ndarray], rows: int, queries: int, topn: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows with the highest scores for each query, and those scores, best first: both (queries, topn).

    `score_rows` maps a slice of rows to scores, (queries, rows of the slice). Ties are ordered by row.
    """
    topn, step = min(topn, rows), max(1, MAX_SCORES // max(queries, 1))
    found, values = np.zeros((queries, 0), np.int64), np.zeros((queries, 0), np.float32)
    for start in range(0, rows, step):
        block = score_rows(slice(start, min(start + step, rows)))
        top = _top_columns(block, topn)
        found = np.concatenate([found, top + start], axis=1)
        values = np.concatenate([values, np.take_along_axis(block, top, axis=1)], axis=1)
        top = _top_columns(values, topn)
        found, values = np.take_along_axis(found, top, axis=1), np.take_along_axis(values, top, axis=1)
    order = np.lexsort((found, -values), axis=1)
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(values, order, axis=1)


def _top_columns(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the columns of the highest scores in each row, unordered."""
    if scores.shape[1] <= count:
        return np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    if count == 1:
        return scores.argmax(axis=1, keepdims=True)
    return np.argpartition(scores, -count, axis=1)[:, -count:] if count else np.zeros((len(scores), 0), np.int64)
