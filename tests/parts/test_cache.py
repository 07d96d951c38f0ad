"""The cache of keys and values: everything so far, in order, row by row."""

import pytest
import torch
from torch import Tensor

from qkv.parts.cache import KVCache, LayerCache, StaticKVCache


def appended(cache: LayerCache, kv: Tensor) -> Tensor:
    """Keys and values so far as they were given, (R, L, 2D)."""
    cache.shared.advance(len(kv), kv.device)
    k, v = cache.append(kv, heads=2)
    return torch.stack([k, v]).permute(1, 3, 0, 2, 4).flatten(2)


def test_it_gives_all_places_so_far() -> None:
    kv = torch.randn(3, 6, 16)
    cache = LayerCache(KVCache(6))
    for position in range(6):
        assert torch.equal(appended(cache, kv[:, position]), kv[:, : position + 1])
        assert cache.shared.length == position + 1


def test_heads_and_keys_and_values_come_apart() -> None:
    cache = LayerCache(KVCache(1))
    cache.shared.advance(1, torch.device("cpu"))
    k, v = cache.append(torch.arange(8.0)[None], heads=2)
    assert k.tolist() == [[[[0, 1]], [[2, 3]]]] and v.tolist() == [[[[4, 5]], [[6, 7]]]]


def test_rows_move_double_and_leave() -> None:
    rng = torch.Generator().manual_seed(1)
    cache, told = LayerCache(KVCache(9)), [torch.empty(3, 0, 8)]
    for rows in ([2, 0, 2, 1], [0, 1, 2, 3], [3, 3, 3], [1], [0, 0, 0, 0, 0, 0], [5, 0], [1, 0]):
        kv = torch.randn(len(told[-1]), 8, generator=rng)
        told.append(torch.cat([told[-1], kv[:, None]], 1))
        assert torch.equal(appended(cache, kv), told[-1])
        cache.shared.select(torch.tensor(rows))
        told[-1] = told[-1][rows]


def test_layers_share_one_past() -> None:
    past = KVCache(3)
    one, two = LayerCache(past), LayerCache(past)
    for kv in torch.randn(3, 2, 8):
        past.advance(2, kv.device)
        first, second = one.append(kv, 2), two.append(2 * kv, 2)
        past.select(torch.tensor([1, 0]))
    assert all(torch.equal(2 * a, b) for a, b in zip(first, second, strict=True))


def test_rows_of_an_empty_cache_can_be_chosen() -> None:
    cache = LayerCache(KVCache(2))
    cache.shared.select(torch.tensor([0, 0, 1]))
    assert appended(cache, torch.ones(3, 4)).shape == (3, 1, 4)


def test_more_than_its_room_is_refused() -> None:
    cache = LayerCache(KVCache(2))
    for _ in range(2):
        appended(cache, torch.ones(1, 4))
    with pytest.raises(ValueError, match="room for 2 positions"):
        appended(cache, torch.ones(1, 4))


def test_a_past_of_fixed_shape_gives_the_same_and_says_what_is_not_there() -> None:
    rng = torch.Generator().manual_seed(1)
    cache, told = LayerCache(KVCache(9)), torch.empty(3, 0, 8)
    for step, rows in enumerate([[2, 0, 2, 1], [0, 1, 2, 3], [3, 3, 0, 1], [1, 2], [1, 0], [0, 0, 1], [0, 2, 1], [1, 1, 1]]):
        kv = torch.randn(len(told), 8, generator=rng)
        told = torch.cat([told, kv[:, None]], 1)
        found = appended(cache, kv)
        cache.shared.count_step()
        if isinstance(cache.shared, StaticKVCache):
            assert cache.shared.mask is not None and found.shape == (len(told), 9, 8)
            found = found[:, cache.shared.mask[0, 0, 0] == 0]
        assert torch.equal(found, told)
        cache.shared.select(torch.tensor(rows))
        told = told[rows]
        if step == 1 or (step > 1 and len(told) != cache.shared.hypotheses):
            cache.shared = StaticKVCache(cache.shared, 9, kv)
            cache.reserve(cache.shared.rows_needed)


def test_a_past_of_fixed_shape_stays_in_its_memory() -> None:
    cache = LayerCache(KVCache(5))
    appended(cache, torch.randn(2, 8))
    cache.shared = StaticKVCache(cache.shared, 5, torch.zeros(1))
    cache.reserve(cache.shared.rows_needed)
    before = [cache.log.data_ptr(), cache.shared.index.data_ptr()]
    for _ in range(4):
        appended(cache, torch.randn(2, 8))
        cache.shared.count_step()
        cache.shared.select(torch.tensor([1, 1]))
    assert [cache.log.data_ptr(), cache.shared.index.data_ptr()] == before
    with pytest.raises(ValueError, match="room for 5 positions"):
        appended(cache, torch.ones(2, 8))
