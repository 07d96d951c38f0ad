"""Packing: whole pairs side by side in rows of fixed width, source and target rows holding the same pairs.

Best fit, longest first: each pair goes into the open row it fills best. A few per cent of the places stay empty.
"""

import numpy as np

NEWEST = 8  # open rows with the same room that are tried: more would not fill the rows better by enough to pay for it


def pack(source: np.ndarray, target: np.ndarray, widths: tuple[int, int]) -> list[list[int]]:
    """Numbers of the pairs in each row, so that their lengths stay within both widths."""
    wide_source, wide_target = widths
    order = np.argsort(-np.maximum(source / wide_source, target / wide_target), kind="stable")
    rows: list[list[int]] = []
    free_source: list[int] = []
    open_rows = _OpenRows(wide_target, free_source)
    for number, s, t in zip(order.tolist(), source[order].tolist(), target[order].tolist(), strict=True):
        row, left = open_rows.take(s, t)
        if row < 0:
            row, left = len(rows), wide_target
            rows.append([])
            free_source.append(wide_source)
        rows[row].append(number)
        free_source[row] -= s
        open_rows.put(row, left - t)
    return rows


class _OpenRows:
    """Rows that are not full, by how many target places they have left."""

    def __init__(self, width: int, free_source: list[int]):
        self.by_room: list[list[int]] = [[] for _ in range(width + 1)]
        self.rooms = 0  # bit n is set while some row has n places left, so that the next one is found without a search
        self.free_source = free_source

    def put(self, row: int, left: int) -> None:
        if left:
            self.by_room[left].append(row)
            self.rooms |= 1 << left

    def take(self, s: int, t: int) -> tuple[int, int]:
        """The row with the least room in which (s, t) fits, and that room; (-1, 0) when there is none."""
        rooms = self.rooms >> t << t
        while rooms:
            left = (rooms & -rooms).bit_length() - 1
            rows = self.by_room[left]
            for i in range(len(rows) - 1, max(-1, len(rows) - 1 - NEWEST), -1):
                if self.free_source[rows[i]] >= s:
                    row = rows.pop(i)
                    if not rows:
                        self.rooms ^= 1 << left
                    return row, left
            rooms &= rooms - 1
        return -1, 0
