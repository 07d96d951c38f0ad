"""Packing: whole pairs side by side in rows of fixed width, source and target rows holding the same pairs.

Best fit, longest first: each pair goes into the open row it fills best. A few per cent of the places stay empty.
"""

import numpy as np


def pack(source: np.ndarray, target: np.ndarray, widths: tuple[int, int]) -> list[list[int]]:
    """Numbers of the pairs in each row, so that their lengths stay within both widths."""
    wide_source, wide_target = widths
    order = np.argsort(-np.maximum(source / wide_source, target / wide_target), kind="stable")
    rows: list[list[int]] = []
    free_source: list[int] = []
    # Open rows by how many target places they have left; within that, any whose source side fits will do.
    open_rows: list[list[int]] = [[] for _ in range(wide_target + 1)]
    for number, s, t in zip(order.tolist(), source[order].tolist(), target[order].tolist(), strict=True):
        row, left = _best_row(open_rows, free_source, s, t)
        if row < 0:
            row, left = len(rows), wide_target
            rows.append([])
            free_source.append(wide_source)
        rows[row].append(number)
        free_source[row] -= s
        if left > t:
            open_rows[left - t].append(row)
    return rows


def _best_row(open_rows: list[list[int]], free_source: list[int], s: int, t: int) -> tuple[int, int]:
    """Take out the open row with the least room that still fits; (-1, 0) when none does."""
    for left in range(t, len(open_rows)):
        rows = open_rows[left]
        # Only the newest few: a full search would not fill the rows better by enough to pay for itself.
        for i in range(len(rows) - 1, max(-1, len(rows) - 9), -1):
            if free_source[rows[i]] >= s:
                return rows.pop(i), left
    return -1, 0


def buckets(source: np.ndarray, target: np.ndarray) -> list[list[int]]:
    """The other layout, for models that mix neighbours: one pair a row, like lengths after each other."""
    return [[int(i)] for i in np.lexsort((source, target))]
