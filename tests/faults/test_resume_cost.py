"""Resuming costs the same at any step: earlier data is neither read nor packed again."""

from itertools import islice
from typing import Any

import pytest
import torch

from qkv.base.rows import tensors
from qkv.data.batches import START, Batch, Batches, Position
from qkv.data.tokens import TokenTexts
from toy_training import toy_batches


def first(batches: Batches, at: Position, count: int) -> list[Batch]:
    return list(islice(batches.starting(at), count))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Make pools small, and count packed and read texts."""
    monkeypatch.setattr(Batches, "pool_size", 64)
    seen: dict[str, Any] = {"pools": [], "texts": 0}
    pack, read = Batches._pack, TokenTexts.__getitem__

    def packing(self: Batches, epoch: int, pool: int) -> list[list[tuple[int, int]]]:
        seen["pools"].append((epoch, pool))
        return pack(self, epoch, pool)

    def reading(self: TokenTexts, number: int) -> Any:
        seen["texts"] += 1
        return read(self, number)

    monkeypatch.setattr(Batches, "_pack", packing)
    monkeypatch.setattr(TokenTexts, "__getitem__", reading)
    return seen


def test_resuming_packs_one_pool_however_far_the_run_is(counted: dict[str, Any]) -> None:
    batches = toy_batches(pairs=1000)
    assert batches.pools() == 16
    costs = []
    for at in (START, Position(0, 7, 1), Position(0, 15, 0), Position(12, 9, 2), Position(100_000, 3, 1)):
        counted.update(pools=[], texts=0)
        first(batches, at, 1)
        assert counted["pools"][0] == (at.epoch, at.pool) and len(counted["pools"]) <= 2  # the next one is packed meanwhile
        costs.append(counted["texts"])
    assert max(costs) < 64 * 2  # one batch's texts, source and target


def test_from_any_batch_on_the_order_is_the_one_never_interrupted(counted: dict[str, Any]) -> None:
    batches = toy_batches(pairs=150)
    whole = first(batches, START, 40)
    assert whole[-1].after.epoch >= 1  # it passed the end of an epoch
    for number in range(0, 39, 3):
        (after,) = first(batches, whole[number].after, 1)
        wanted = whole[number + 1]
        assert after.after == wanted.after
        pairs = zip(after.inputs, wanted.inputs, strict=True)
        assert all(torch.equal(a, b) for one, other in pairs for a, b in zip(tensors(one), tensors(other), strict=True))
