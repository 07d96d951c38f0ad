"""Packing: whole texts side by side in rows of fixed width.

Best fit: each text goes into the open row in which it leaves the least room. Items have two sizes, and a row has a width for
each: a pair has its source and its target; a single text counts as 1 against the number of texts that a row may hold. With the
longest first, a few per cent of the positions stay empty.
"""

import numpy as np

NEWEST = 8  # rows with the same room that are tried; trying more costs more than the better filling saves


def pack(source: np.ndarray, target: np.ndarray, widths: tuple[int, int], order: np.ndarray | None = None) -> list[list[int]]:
    """Pack pairs into rows within both widths, longest first or in a given order. -> the numbers of the pairs in each row."""
    wide_source, wide_target = widths
    if order is None:
        order = np.argsort(-np.maximum(source / wide_source, target / wide_target), kind="stable")
    rows: list[list[int]] = []
    free: list[int] = []  # source positions that each row has left
    by_room: list[list[int]] = [[] for _ in range(wide_target + 1)]  # rows that are not full, by target positions left
    rooms = 0  # bit n is set while some row has n positions left: the best fit is found without a search
    for number, s, t in zip(order.tolist(), source[order].tolist(), target[order].tolist(), strict=True):
        fits = rooms >> t << t
        while fits:
            room = (fits & -fits).bit_length() - 1
            here = by_room[room]
            row = here.pop() if free[here[-1]] >= s else _among_newest(here, free, s)
            if row >= 0:
                rooms ^= 0 if here else 1 << room
                break
            fits &= fits - 1
        else:
            row, room = len(rows), wide_target
            rows.append([])
            free.append(wide_source)
        rows[row].append(number)
        free[row] -= s
        if room > t and free[row]:
            by_room[room - t].append(row)
            rooms |= 1 << room - t
    return rows


def pack_texts(lengths: np.ndarray, most: int, width: int, order: np.ndarray | None = None) -> list[list[int]]:
    """Pack texts into rows of at most `most` texts. -> the numbers of the texts in each row."""
    return pack(np.ones_like(lengths), lengths, (most, width), order)


def _among_newest(rows: list[int], free: list[int], size: int) -> int:
    """Remove and return the newest row with enough room; -1 when none of the last few has."""
    for i in range(len(rows) - 2, max(-1, len(rows) - 1 - NEWEST), -1):
        if free[rows[i]] >= size:
            return rows.pop(i)
    return -1
