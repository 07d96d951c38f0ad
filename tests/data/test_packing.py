"""Packing: every pair or text once, never wider than a row, little waste."""

import numpy as np
import pytest

from qkv.data.packing import pack, pack_texts


def lengths(count: int, seed: int, median: float = 22, spread: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """Sentence lengths as in real parallel text: log-normal, and the two sides alike but not the same."""
    rng = np.random.default_rng(seed)
    source = rng.lognormal(np.log(median), spread, count)
    target = source * rng.normal(1.05, 0.2, count).clip(0.4, 2.5)
    return source.round().clip(1, 127).astype(np.int64), target.round().clip(1, 127).astype(np.int64) + 1


@pytest.mark.parametrize("count", [0, 1, 2, 10, 3000])
@pytest.mark.parametrize("widths", [(128, 128), (200, 130), (127, 256)])
@pytest.mark.parametrize("spread", [0.0, 0.6, 2.0])
def test_each_pair_once_and_never_beyond_the_widths(count: int, widths: tuple[int, int], spread: float) -> None:
    source, target = lengths(count, seed=count, spread=spread)
    rows = pack(source, target, widths)
    assert sorted(number for row in rows for number in row) == list(range(count))
    assert all(rows)
    for row in rows:
        assert source[row].sum() <= widths[0]
        assert target[row].sum() <= widths[1]


def test_a_side_that_fills_first_is_respected() -> None:
    # Sources are long where targets are short: a row full on one side has room on the other.
    source, target = np.array([60, 60, 60, 4, 4, 4]), np.array([4, 4, 4, 60, 60, 60])
    rows = pack(source, target, (64, 64))
    assert len(rows) == 3
    assert all(source[row].sum() == target[row].sum() == 64 for row in rows)


def test_texts_as_wide_as_the_row_have_it_alone() -> None:
    full = np.full(5, 64)
    assert sorted(pack(full, full, (64, 64))) == [[0], [1], [2], [3], [4]]


@pytest.mark.parametrize(("median", "width"), [(22, 128), (22, 256), (12, 128)])
def test_little_is_wasted(median: float, width: int) -> None:
    source, target = lengths(20_000, seed=1, median=median)
    rows = pack(source, target, (width, width))
    wasted = 1 - (source.sum() + target.sum()) / (len(rows) * 2 * width)
    assert wasted < 0.08


@pytest.mark.parametrize("most", [1, 3, 99])
@pytest.mark.parametrize("given", [True, False])
def test_texts_that_stand_alone(most: int, given: bool) -> None:
    rng = np.random.default_rng(3)
    sizes = rng.integers(3, 20, 2000)
    rows = pack_texts(sizes, most, 64, rng.permutation(2000) if given else None)
    assert sorted(number for row in rows for number in row) == list(range(2000))
    assert max(sizes[row].sum() for row in rows) <= 64 and max(map(len, rows)) <= most
    # As full as they can be: of texts, or of tokens.
    assert len(rows) <= max(2000 / most, sizes.sum() / 64) / 0.95 + 1


def test_rows_that_hold_as_many_texts_as_they_may_do_not_hide_others() -> None:
    # More rows than are tried have room but no place for another text; the one behind them has both.
    sizes = np.array([*[20] * 20, 40, 20])
    rows = pack_texts(sizes, 2, 64, np.array([20, *range(20), 21]))
    assert len(rows) == 11


def test_an_order_given_is_kept() -> None:
    sizes = np.array([10, 40, 30, 50])
    assert pack_texts(sizes, 9, 64, np.array([0, 1, 2, 3])) == [[0, 1], [2], [3]]
    assert pack_texts(sizes, 9, 64) == [[3, 0], [1], [2]]
