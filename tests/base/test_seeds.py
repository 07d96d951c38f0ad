"""Seeds derived from keys do not collide, and permutations can be entered anywhere."""

import numpy as np
import pytest

from qkv.base.seeds import permuted, rng_at, seed_at

SIZES = [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 63, 64, 65, 100, 255, 256, 257, 1000, 4096, 4097, 65537]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63 - 1])
def test_each_number_comes_once(size: int, seed: int) -> None:
    assert sorted(permuted(np.arange(size), size, seed).tolist()) == list(range(size))


@pytest.mark.parametrize("size", [3, 1000, 10**12])
def test_it_can_be_entered_anywhere(size: int) -> None:
    positions = np.linspace(0, size - 1, 300).astype(np.int64)
    whole = permuted(positions, size, seed=7)
    assert whole.dtype == np.int64
    assert ((whole >= 0) & (whole < size)).all()
    assert permuted(positions[100:], size, seed=7).tolist() == whole[100:].tolist()
    assert permuted(positions[42], size, seed=7) == whole[42]


def test_a_million_million_places_stay_apart() -> None:
    found = permuted(np.arange(10**12 - 200_000, 10**12), 10**12, seed=3)
    assert len(np.unique(found)) == 200_000
    assert abs(found.mean() / 10**12 - 0.5) < 0.01  # they went all over the range


def test_no_places_give_none() -> None:
    assert permuted(np.arange(0), 10, seed=1).tolist() == []


def test_the_places_given_are_not_changed() -> None:
    positions = np.arange(10)
    permuted(positions, 10, seed=1)
    assert positions.tolist() == list(range(10))


def test_all_orders_of_three_come_up_equally_often() -> None:
    orders = [tuple(permuted(np.arange(3), 3, seed).tolist()) for seed in range(3000)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert min(counts) > 420 and max(counts) < 580  # 500 expected, deviation about 20


def test_a_number_is_equally_likely_to_land_anywhere() -> None:
    positions = np.array([permuted(np.arange(10), 10, seed) for seed in range(2000)])
    for start in range(10):
        counts = np.bincount(positions[:, start], minlength=10)
        assert counts.min() > 140 and counts.max() < 260  # 200 expected, deviation about 13


def test_neighbours_do_not_stay_neighbours() -> None:
    found = permuted(np.arange(10_000), 10_000, seed=5)
    assert (np.abs(np.diff(found)) == 1).mean() < 0.01
    assert abs(np.corrcoef(np.arange(10_000), found)[0, 1]) < 0.05


def test_seeds_differ_with_every_part_of_the_place() -> None:
    keys = [(s, what, step) for s in range(20) for what in ("dropout", "order", "rows") for step in range(50)]
    seeds = [seed_at(*key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_place_is_not_the_same_as_its_parts_run_together() -> None:
    assert len({seed_at("ab", "c"), seed_at("a", "bc"), seed_at("abc"), seed_at(1, 2), seed_at(2, 1), seed_at(12)}) == 6


def test_equal_places_give_equal_draws() -> None:
    assert rng_at(1, "x").integers(1 << 40, size=8).tolist() == rng_at(1, "x").integers(1 << 40, size=8).tolist()
    assert rng_at(1, "x").integers(1 << 40) != rng_at(2, "x").integers(1 << 40)
