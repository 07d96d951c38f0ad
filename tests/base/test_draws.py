"""Random draws by row: a row draws the same wherever it is computed, and no two rows, draws or seeds draw alike."""

import pytest
import torch
from torch import Tensor

from qkv.base.draws import AT_ONCE, drawing, hashed, next_keys, values_per_row
from qkv.parts import draws
from qkv.parts.draws import integers, random_int64, uniform
from qkv.parts.dropout import dropout, kept

CPU = torch.device("cpu")


def keys_of(seed: Tensor | int, rows: list[int], draws: int) -> Tensor:
    with drawing(seed, torch.tensor(rows)):
        return torch.stack([next_keys(CPU) for _ in range(draws)])


def test_a_row_has_its_keys_wherever_it_is_computed() -> None:
    draws = 2 * AT_ONCE + 3
    whole = keys_of(9, list(range(12)), draws)
    assert keys_of(torch.tensor(9), [7, 2, 11], draws).equal(whole[:, [7, 2, 11]])
    assert whole.unique().numel() == whole.numel()
    assert not torch.isin(keys_of(10, list(range(12)), draws), whole).any()


def test_rows_draws_and_seeds_are_independent() -> None:
    """Of 1,275 pairs of masks, which differ in the row, the draw or the seed, none drops alike; neighbours neither."""
    keys = torch.cat([keys_of(seed, [0, 1, 2, 3, 40], 5).flatten() for seed in (1, 2)])
    dropped = (~kept(keys, len(keys) * 20_001, 0.3)).float()  # an odd number: two values share a hash
    assert dropped.mean(1) == pytest.approx(torch.full((50,), 0.3), abs=0.016)  # five deviations
    together = torch.cat([dropped[:, :-1], dropped[:1, 1:]]).corrcoef().fill_diagonal_(0)
    assert float(together.abs().max()) < 5.5 * 20_000**-0.5


def test_every_bit_is_fair() -> None:
    bits = hashed(keys_of(1, [0, 1, 2, 3], 1)[0], 50_000)
    for bit in range(32):
        assert float((bits >> bit & 1).float().mean()) == pytest.approx(0.5, abs=0.006)  # five deviations


def test_uniform_numbers_and_integers() -> None:
    with drawing(3, torch.arange(8)):
        drawn = uniform((8, 5000), CPU)
        assert 0 < drawn.min() < 1e-3 and 1 - 1e-3 < drawn.max() < 1
        assert torch.histc(drawn, 10) == pytest.approx(torch.full((10,), 4000.0), abs=300)
        counts = torch.bincount(integers(5, 12, (8, 5000), CPU).flatten())
        assert not counts[:5].any() and counts[5:] == pytest.approx(torch.full((7,), 40_000 / 7), abs=350)
        assert random_int64(800, CPU).unique().numel() == 800


def test_entries_of_a_row_stand_side_by_side() -> None:
    """A row's tokens may be flattened: ten entries of five rows are two each."""
    with drawing(3, torch.arange(5)):
        whole = dropout(torch.ones(10, 7), 0.5, training=True)
    with drawing(3, torch.tensor([3, 1])):
        assert dropout(torch.ones(2, 14), 0.5, training=True).view(4, 7).equal(whole[[6, 7, 2, 3]])


def test_what_does_not_divide_into_rows_is_refused() -> None:
    with drawing(3, torch.arange(5)), pytest.raises(ValueError, match="7 random values do not divide into 5 rows"):
        dropout(torch.ones(7), 0.5, training=True)
    assert values_per_row(torch.zeros(5), 0) == 0


def test_inner_draws_leave_the_outer_ones_alone() -> None:
    with drawing(3, torch.arange(4)):
        next_keys(CPU)
        with drawing(8, torch.arange(2)):
            next_keys(CPU)
        assert next_keys(CPU).equal(keys_of(3, [0, 1, 2, 3], 2)[1])
    torch.manual_seed(0)
    assert len(next_keys(CPU)) == 1  # outside, torch's generator decides


def test_the_ends_of_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = torch.tensor([[-(2**31), -1, 0, 2**31 - 1]], dtype=torch.int32)
    monkeypatch.setattr(draws, "hashed", lambda keys, count: ends)
    smallest, below, half, largest = uniform((1, 4), CPU)[0].tolist()
    assert 0 < smallest < below <= half == 0.5 < largest < 1
    assert integers(5, 12, (1, 4), CPU).tolist() == [[5, 8, 8, 11]]
