"""Batches: the layout of rows, what an epoch holds, and an order that resumes anywhere."""

import itertools
import threading
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from qkv.base.rows import Rows, tensors
from qkv.data import batches as module
from qkv.data.batches import START, Batch, Batches, Position, in_order, make_batch, max_length, prefetch
from qkv.data.tokens import TokenPairs, token_texts

EOS = 3


def pairs_of(count: int, seed: int, first: int = 10) -> TokenPairs:
    """Pairs that tell themselves apart: each text begins with its own number, from `first` on."""
    rng = np.random.default_rng(seed)

    def texts() -> list[list[int]]:
        return [[first + i, *rng.integers(4, 10, rng.integers(0, 12)).tolist()] for i in range(count)]

    return TokenPairs(token_texts(texts()), token_texts(texts()))


def texts_in(rows: Rows) -> list[list[list[int]]]:
    """The texts of each row, read back from the layout."""
    found = []
    for ids, text, position in zip(*(t.tolist() for t in rows[:3]), strict=True):
        spans = [[(i, p) for i, t, p in zip(ids, text, position, strict=True) if t == n] for n in range(1, max(text) + 1)]
        for span in spans:
            assert [p for _, p in span] == list(range(len(span)))  # places count from 0 in each text
        found.append([[i for i, _ in span] for span in spans])
    return found


def pairs_in(batch: Batch) -> list[tuple[list[int], list[int]]]:
    source, target = (texts_in(rows) for rows in batch.inputs)
    return [pair for s, t in zip(source, target, strict=True) for pair in zip(s, t, strict=True)]


def same(one: Batch, two: Batch) -> bool:
    both = zip(itertools.chain(*map(tensors, one.inputs)), itertools.chain(*map(tensors, two.inputs)), strict=True)
    counts = [(b.tokens, b.positions, b.filled, b.after) for b in (one, two)]
    return all(torch.equal(a, b) for a, b in both) and counts[0] == counts[1]


def test_the_layout_of_a_batch() -> None:
    source = [[np.array([11, 12]), np.array([13])], [np.array([14, 15, 16])]]
    target = [[np.array([21]), np.array([22, 23])], [np.array([], dtype=np.int64)]]
    batch = make_batch(source, target, (4, 6), EOS)
    read, written = batch.inputs
    assert read.ids.tolist() == [[11, 12, 13, 0], [14, 15, 16, 0]]
    assert read.text.tolist() == [[1, 1, 2, 0], [1, 1, 1, 0]]
    assert read.position.tolist() == [[0, 1, 0, 0], [0, 1, 2, 0]]
    assert written.ids.tolist() == [[21, EOS, 22, 23, EOS, 0], [EOS, 0, 0, 0, 0, 0]]
    assert written.text.tolist() == [[1, 1, 2, 2, 2, 0], [1, 0, 0, 0, 0, 0]]
    assert written.position.tolist() == [[0, 1, 0, 1, 2, 0], [0, 0, 0, 0, 0, 0]]
    assert (batch.rows, batch.tokens, batch.filled, batch.positions) == (2, 6, 12, 20)
    assert all(t.dtype == torch.int64 for rows in batch.inputs for t in tensors(rows))


def test_a_part_has_some_of_the_rows_and_the_counts_of_all() -> None:
    batch = make_batch([[np.array([i])] for i in range(5)], [[np.array([i])] for i in range(5)], (2, 3), EOS)
    part = batch.part(slice(1, None, 2))
    assert part.inputs[0].ids.tolist() == [[1, 0], [3, 0]]
    assert part.inputs[1].ids.tolist() == [[1, EOS, 0], [3, EOS, 0]]
    assert (part.rows, part.tokens, part.positions) == (2, batch.tokens, batch.positions)


@pytest.mark.parametrize("one_text_per_row", [False, True])
@pytest.mark.parametrize("pool", [7, 64, 1 << 16])
def test_an_epoch_holds_each_pair_weight_times(monkeypatch: pytest.MonkeyPatch, pool: int, one_text_per_row: bool) -> None:
    monkeypatch.setattr(module, "POOL", pool)
    corpora = [pairs_of(40, 1), pairs_of(15, 2, first=100)]
    batches = Batches(corpora, [1.0, 2.0], seed=5, tokens=60, widths=(30, 30), eos=EOS, one_text_per_row=one_text_per_row)
    wanted = Counter(
        (tuple(c.source[i].tolist()), (*c.target[i].tolist(), EOS))
        for c in (corpora[0], corpora[1], corpora[1])
        for i in range(len(c))
    )
    epochs = epochs_of(batches, 2)
    assert [Counter((tuple(s), tuple(t)) for batch in epoch for s, t in pairs_in(batch)) for epoch in epochs] == [wanted] * 2
    first, second = ([s for batch in epoch for s, _ in pairs_in(batch)] for epoch in epochs)
    assert first != second
    assert all(batch.tokens == int((batch.inputs[1].text > 0).sum()) for batch in itertools.chain(*epochs))
    assert all(batch.inputs[1].ids.numel() <= 60 for batch in itertools.chain(*epochs))


def epochs_of(batches: Batches, count: int) -> list[list[Batch]]:
    epochs: list[list[Batch]] = [[] for _ in range(count)]
    for batch in batches.starting(START):
        if batch.after.epoch == count:
            break
        epochs[batch.after.epoch].append(batch)
    return epochs


@pytest.mark.parametrize(
    "layout", [{}, {"fixed": True}, {"one_text_per_row": True}, {"one_text_per_row": True, "fixed": True}], ids=str
)
def test_starting_anywhere_gives_the_rest_of_the_same_sequence(monkeypatch: pytest.MonkeyPatch, layout: dict[str, bool]) -> None:
    monkeypatch.setattr(module, "POOL", 16)

    def fresh() -> Batches:
        return Batches([pairs_of(50, 1), pairs_of(9, 2)], [1.0, 0.5], seed=4, tokens=60, widths=(25, 28), eos=EOS, **layout)

    whole = list(itertools.islice(fresh().starting(START), 40))
    assert whole[-1].after.epoch >= 2  # it goes over the ends of pools and epochs
    for number, batch in enumerate(whole[:-1]):
        rest = whole[number + 1 :][:12]
        again = itertools.islice(fresh().starting(Position(*batch.after)), len(rest))
        assert all(same(a, b) for a, b in zip(again, rest, strict=True)), batch.after


def test_fixed_batches_have_one_shape_and_the_same_texts() -> None:
    free, fixed = (
        Batches([pairs_of(50, 1)], [1.0], seed=4, tokens=100, widths=(25, 28), eos=EOS, fixed=f).starting(START)
        for f in (False, True)
    )
    for one, two in itertools.islice(zip(free, fixed, strict=False), 12):
        assert two.rows == 3
        assert two.inputs[0].ids.shape == (3, 25)
        assert (one.tokens, one.filled, one.after) == (two.tokens, two.filled, two.after)
        assert torch.equal(one.inputs[1].ids, two.inputs[1].ids[: one.rows])
        assert not two.inputs[1].text[one.rows :].any()


def test_long_and_short_texts_come_all_through_an_epoch() -> None:
    batches = Batches([pairs_of(2000, 1)], [1.0], seed=4, tokens=120, widths=(30, 30), eos=EOS)
    [epoch] = epochs_of(batches, 1)
    texts = np.array([int(rows.max(1).values.sum()) for rows in (batch.inputs[0].text for batch in epoch)])
    first, second = texts[: len(texts) // 2].mean(), texts[len(texts) // 2 :].mean()
    assert first == pytest.approx(second, rel=0.1)  # packing, longest first, would put twice as many in the second half


def test_a_text_alone_has_a_row_as_wide_as_its_batch_needs() -> None:
    batches = Batches([pairs_of(900, 1)], [1.0], seed=4, tokens=160, widths=(30, 30), eos=EOS, one_text_per_row=True)
    [epoch] = epochs_of(batches, 1)
    for batch in epoch:
        assert all((rows.text.max(1).values == 1).all() for rows in batch.inputs)
        for rows in batch.inputs:
            assert rows.ids.size(1) == -(-int((rows.text > 0).sum(1).max()) // 8) * 8
    full = [batch for batch in epoch if batch.rows == 160 // batch.inputs[1].ids.size(1)]
    assert len(full) >= len(epoch) - 1  # only the last of the sorted texts may be too few
    widths = [batch.inputs[1].ids.size(1) for batch in epoch]
    assert widths != sorted(widths) and widths != sorted(widths, reverse=True)


def test_texts_alone_leave_little_padding() -> None:
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.lognormal(3, 0.5, 5000), 1, 100).astype(int)
    texts = [[5] * length for length in lengths]
    others = [[5] * max(1, int(length * rng.uniform(0.7, 1.3))) for length in lengths]
    batches = Batches(
        [TokenPairs(token_texts(texts), token_texts(others))],
        [1.0],
        seed=4,
        tokens=2000,
        widths=(128, 128),
        eos=EOS,
        one_text_per_row=True,
    )
    [epoch] = epochs_of(batches, 1)
    share = 1 - sum(batch.filled for batch in epoch) / sum(batch.positions for batch in epoch)
    assert share < 0.18  # rounding up to a multiple of 8 alone costs some 15 per cent of texts of 23 tokens


def test_fixed_batches_of_texts_alone_have_one_shape_for_each_width() -> None:
    free, fixed = (
        Batches([pairs_of(50, 1)], [1.0], seed=4, tokens=100, widths=(25, 28), eos=EOS, fixed=f, one_text_per_row=True).starting(
            START
        )
        for f in (False, True)
    )
    for one, two in itertools.islice(zip(free, fixed, strict=False), 20):
        assert two.rows == 100 // two.inputs[1].ids.size(1)
        assert pairs_in(one) == pairs_in(two)
        assert not two.inputs[1].text[one.rows :].any()


def test_seeds_give_other_batches() -> None:
    one, two = (
        next(Batches([pairs_of(50, 1)], [1.0], seed=s, tokens=60, widths=(25, 28), eos=EOS).starting(START)) for s in (1, 2)
    )
    assert not same(one, two)


@pytest.mark.parametrize("one_text_per_row", [False, True])
def test_validation_sees_every_pair_once(one_text_per_row: bool) -> None:
    pairs = pairs_of(40, 3)
    batches = list(in_order(pairs, tokens=50, widths=(25, 25), eos=EOS, one_text_per_row=one_text_per_row))
    found = [pair for batch in batches for pair in pairs_in(batch)]
    assert all((batch.inputs[0].text <= 1).all() for batch in batches) == one_text_per_row
    wanted = [(pairs.source[i].tolist(), [*pairs.target[i].tolist(), EOS]) for i in range(40)]
    assert sorted(found) == sorted(wanted)


def test_the_longest_text() -> None:
    assert max_length(token_texts([[1], [1, 2, 3], []])) == 3
    assert max_length(token_texts([])) == 0


# Batches made ready on another thread


def numbered() -> Iterator[Batch]:
    for number in itertools.count():
        yield make_batch([[np.array([number])]], [[np.array([number])]], (1, 2), EOS)


def test_batches_come_in_order_from_the_other_thread() -> None:
    made = prefetch(numbered(), lambda batch: batch)
    assert [int(next(made).inputs[0].ids) for _ in range(20)] == list(range(20))
    made.close()  # type: ignore[attr-defined]


def test_leaving_early_ends_the_thread() -> None:
    before = threading.active_count()
    made = prefetch(numbered(), lambda batch: batch)
    next(made)
    assert threading.active_count() == before + 1
    made.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_an_error_on_the_other_thread_is_raised_here() -> None:
    def prepare(batch: Batch) -> Batch:
        if int(batch.inputs[0].ids) == 2:
            raise ValueError("no memory to pin")
        return batch

    made = prefetch(numbered(), prepare)
    assert [int(next(made).inputs[0].ids) for _ in range(2)] == [0, 1]
    with pytest.raises(ValueError, match="no memory to pin"):
        next(made)


def test_batches_that_end_end_here_too() -> None:
    made = prefetch(itertools.islice(numbered(), 9), lambda batch: batch)
    assert [int(batch.inputs[0].ids) for batch in made] == list(range(9))


def test_an_error_that_nobody_waits_for_keeps_nobody_waiting() -> None:
    failed = threading.Event()

    def batches() -> Iterator[Batch]:
        yield from itertools.islice(numbered(), 3)
        failed.set()
        raise ValueError

    before = threading.active_count()
    made = prefetch(batches(), lambda batch: batch, depth=2)
    next(made)
    assert failed.wait(5)
    made.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_a_position_beyond_a_corpus_that_has_shrunk_is_the_next_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POOL", 16)
    batches = Batches([pairs_of(40, seed=1)], [1.0], seed=1, tokens=64, widths=(16, 16), eos=EOS)
    assert next(batches.starting(Position(0, 5, 0))).after.epoch == 1
