"""The order of an epoch: each pair as often as its corpus's weight says, another order in each epoch."""

from collections import Counter

import numpy as np
import pytest

from qkv.data.order import Order


def epoch(order: Order, number: int) -> list[tuple[int, int]]:
    corpus, pair = order.at(number, np.arange(len(order)))
    return list(zip(corpus.tolist(), pair.tolist(), strict=True))


@pytest.mark.parametrize(
    ("sizes", "weights"),
    [([1], [1.0]), ([10], [1.0]), ([10, 5], [1.0, 3.0]), ([7, 1, 30], [2.0, 5.0, 1.0]), ([1000, 0, 3], [1.0, 1.0, 20.0])],
)
def test_each_pair_comes_weight_times(sizes: list[int], weights: list[float]) -> None:
    order = Order(sizes, weights, seed=1)
    wanted = {(c, i): int(w) for c, (n, w) in enumerate(zip(sizes, weights, strict=True)) for i in range(n)}
    for number in range(4):
        assert Counter(epoch(order, number)) == wanted


@pytest.mark.parametrize("weight", [0.3, 0.5, 1.5, 2.25])
def test_a_fraction_takes_a_part_without_repeats(weight: float) -> None:
    order = Order([41, 10], [weight, 1.0], seed=3)
    for number in range(3):
        counts = Counter(i for c, i in epoch(order, number) if c == 0)
        assert sum(counts.values()) == round(41 * weight)
        assert set(counts.values()) <= {int(weight), int(weight) + 1}  # nobody is seen twice more than another
        assert set(counts) <= set(range(41))


def test_a_fraction_takes_another_part_each_epoch_and_in_time_all() -> None:
    order = Order([100], [0.25], seed=3)
    parts = [frozenset(i for _, i in epoch(order, number)) for number in range(40)]
    assert len(set(parts)) == 40
    assert frozenset.union(*parts) == set(range(100))


def test_the_rarest_corpus_is_never_left_out() -> None:
    assert (1, 0) in {(c, 0) for c, _ in epoch(Order([100, 3], [1.0, 0.01], seed=1), 0)}


def test_epochs_and_seeds_differ_and_repeat_themselves() -> None:
    first, second = epoch(Order([200], [1.0], seed=1), 0), epoch(Order([200], [1.0], seed=1), 1)
    other = epoch(Order([200], [1.0], seed=2), 0)
    assert len({tuple(first), tuple(second), tuple(other)}) == 3
    assert first == epoch(Order([200], [1.0], seed=1), 0)
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 10  # about one by chance


def test_corpora_are_mixed_throughout() -> None:
    corpora = np.array([c for c, _ in epoch(Order([3000, 1000], [1.0, 1.0], seed=1), 0)])
    for part in np.split(corpora, 8):
        assert 0.15 < part.mean() < 0.35


def test_corpora_are_mixed_otherwise_in_each_epoch() -> None:
    order = Order([300, 100], [1.0, 1.0], seed=1)
    projected_length = {tuple(corpus for corpus, _ in epoch(order, number)) for number in range(5)}
    assert len(projected_length) == 5


def test_it_can_be_entered_anywhere() -> None:
    order = Order([50, 20], [1.0, 2.5], seed=9)
    corpus, pair = order.at(2, np.arange(33, 60))
    assert list(zip(corpus.tolist(), pair.tolist(), strict=True)) == epoch(order, 2)[33:60]
