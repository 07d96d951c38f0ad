"""The cache of keys and values: everything so far, in order, row by row."""

import pytest
import torch

from qkv.parts.cache import Cache


def test_it_gives_all_places_so_far() -> None:
    k, v = torch.randn(2, 3, 6, 4), torch.randn(2, 3, 6, 4)
    cache = Cache(6)
    for start, end in [(0, 1), (1, 2), (2, 5), (5, 6)]:
        keys, values = cache.append(k[:, :, start:end], v[:, :, start:end])
        assert torch.equal(keys, k[:, :, :end])
        assert torch.equal(values, v[:, :, :end])
        assert cache.length == end


def test_rows_move_leave_and_double() -> None:
    k, v = torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4, 4)
    cache = Cache(4)
    cache.append(k[:, :, :2], v[:, :, :2])
    rows = torch.tensor([2, 0, 2, 1])
    cache.select(rows)
    keys, values = cache.append(k[rows, :, 2:3], v[rows, :, 2:3])
    assert torch.equal(keys, k[rows, :, :3])
    assert torch.equal(values, v[rows, :, :3])
    cache.select(torch.tensor([1]))
    keys, _ = cache.append(k[:1, :, 3:], v[:1, :, 3:])
    assert torch.equal(keys, k[:1])


def test_rows_of_an_empty_cache_can_be_chosen() -> None:
    cache = Cache(2)
    cache.select(torch.tensor([0, 0, 1]))
    keys, _ = cache.append(torch.ones(3, 1, 1, 2), torch.ones(3, 1, 1, 2))
    assert keys.shape == (3, 1, 1, 2)


@pytest.mark.parametrize("more", [1, 2])
def test_more_than_its_room_is_refused(more: int) -> None:
    cache = Cache(2)
    cache.append(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2))
    with pytest.raises(ValueError, match="room for 2 places"):
        cache.append(torch.ones(1, 1, more, 2), torch.ones(1, 1, more, 2))
