"""Fairness: callers share the machine by the time computed for them, whatever they ask for."""

import asyncio
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import pytest

from qkv.serving import shared_limits
from qkv.serving.batching import BatchItem
from qkv.serving.errors import RequestError
from qkv.serving.fairness import ADVANCE, FairClock
from qkv.serving.lanes import FEW
from qkv.serving.metrics import Metrics
from qkv.serving.settings import ServiceSettings
from qkv.serving.shared_limits import SharedBacklog, SharedLimits
from qkv.serving.worker import BatchWorker

BROKEN = -1


class Growing:
    """Items that take as many steps as their value says."""

    def __init__(self, counting: "Counting", items: Sequence[BatchItem]):
        self.counting, self.left = counting, {item: item.value for item in items}

    reading = False

    def __len__(self) -> int:
        return len(self.left)

    def joins(self, other: "Growing") -> bool:
        return True

    def join(self, other: "Growing") -> None:
        self.left |= other.left

    def drop(self, items: Sequence[BatchItem]) -> None:
        for item in items:
            del self.left[item]

    def step(self, meanwhile: Callable[[], object]) -> list[tuple[BatchItem, Any]]:
        time.sleep(0.001)
        self.counting.steps.append(sorted(item.request.caller for item in self.left))
        if any(value == BROKEN for value in self.left.values()):
            raise RuntimeError
        self.left = {item: value - 1 for item, value in self.left.items()}
        done = [item for item, value in self.left.items() if not value]
        for item in done:
            del self.left[item]
        return [(item, item.value) for item in done]


class Counting:
    """Counts down the values of items, step by step, or at once; remembers who was in each step."""

    def __init__(self) -> None:
        self.steps: list[list[str]] = []

    def begin(self, items: Sequence[BatchItem], piece: int) -> Growing:
        return Growing(self, items)

    def compute(self, key: Hashable, items: Sequence[BatchItem]) -> list[int]:
        time.sleep(0.001 * len(items))
        self.steps.append(sorted(item.request.caller for item in items))
        return [item.value for item in items]


@pytest.fixture
def work() -> Counting:
    return Counting()


@pytest.fixture
def worker(work: Counting) -> Iterator[BatchWorker]:
    worker = BatchWorker("counting", work, ServiceSettings(wait=0, batch_tokens=100, queued_tokens=4000), Metrics())
    yield worker
    worker.close()


def items(*values: int, lane: str | None = "texts", cost: float = 5) -> list[BatchItem]:
    return [BatchItem(value, 1, cost, lane=lane) for value in values]


async def begun(work: Counting) -> None:
    async with asyncio.timeout(10):
        while not work.steps:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("lane", ["texts", None])
def test_a_short_request_overtakes_much_work(worker: BatchWorker, work: Counting, lane: str | None) -> None:
    async def ask() -> None:
        much = asyncio.create_task(worker.compute("a", items(*[20] * 200, lane=lane), "greedy"))
        await begun(work)
        before = len(work.steps)
        assert await worker.compute("a", items(5, lane=lane), "modest") == [5]
        mine = sum("modest" in step for step in work.steps[before:])
        assert len(work.steps) - before <= 2 * mine + 2  # half of the steps at least, once it is there
        assert not much.done()
        assert await much == [20] * 200

    asyncio.run(ask())


def test_many_callers_share_a_lane_and_one_with_many_texts_has_its_own(worker: BatchWorker, work: Counting) -> None:
    async def ask() -> None:
        greedy = asyncio.create_task(worker.compute("a", items(*[30] * 15), "greedy"))
        await begun(work)
        modest = [asyncio.create_task(worker.compute("a", items(10, 10), f"modest {n}")) for n in range(4)]
        assert await asyncio.gather(*modest) == [[10, 10]] * 4
        assert await greedy == [30] * 15

    asyncio.run(ask())
    shared = [set(step) for step in work.steps if len(set(step)) > 1]
    assert any(len(step) == 4 for step in shared)  # the modest together
    for step in work.steps:
        if len(set(step)) > 1:
            assert max(map(step.count, step)) <= FEW


def test_texts_join_between_steps_and_leave_when_done(worker: BatchWorker, work: Counting) -> None:
    async def ask() -> None:
        long = asyncio.create_task(worker.compute("a", items(50), "a"))
        await begun(work)
        assert await worker.compute("b", items(3), "b") == [3]
        assert not long.done()
        assert await long == [50]

    asyncio.run(ask())
    assert ["a", "b"] in work.steps and work.steps[-1] == ["a"]
    assert len(work.steps) <= 52


def test_a_step_that_fails_fails_only_its_request(worker: BatchWorker) -> None:
    async def ask() -> list[Any]:
        requests = [worker.compute("a", items(value, 3), f"caller {value}") for value in (4, BROKEN, 6)]
        return await asyncio.gather(*requests, return_exceptions=True)

    good, bad, other = asyncio.run(ask())
    assert (good, other) == ([4, 3], [6, 3])
    assert isinstance(bad, RequestError) and bad.status == 500


def test_a_cancelled_request_leaves_its_lane(worker: BatchWorker, work: Counting) -> None:
    async def ask() -> None:
        endless = asyncio.create_task(worker.compute("a", items(10**9), "gone"))
        await begun(work)
        endless.cancel()
        assert await worker.compute("a", items(3), "there") == [3]

    asyncio.run(ask())
    assert work.steps[-1] == ["there"]


def test_what_cannot_be_answered_in_time_is_refused_at_once(work: Counting) -> None:
    settings = ServiceSettings(wait=0, batch_tokens=100, time_limit=0.5, queued_tokens=10**6)
    worker = BatchWorker("counting", work, settings, Metrics())

    async def ask() -> None:
        for _ in range(3):  # shows how fast it is
            assert await worker.compute("a", items(*[1] * 400, lane=None)) == [1] * 400
        assert worker.admission.rate is not None
        rate = worker.admission.rate / 5  # in items a second
        much = items(*[1] * int(rate), lane=None)
        first = asyncio.create_task(worker.compute("a", much, "a"))
        await asyncio.sleep(0.01)
        with pytest.raises(RequestError) as refused:
            await worker.compute("a", items(1, lane=None), "a")
        assert refused.value.status == 429 and refused.value.retry_after is not None and refused.value.retry_after >= 1
        assert await worker.compute("a", items(1, lane=None), "b") == [1]  # another caller's turn comes at once
        with pytest.raises(RequestError) as refused:
            await worker.compute("a", items(*[1] * int(3 * rate), lane=None), "c")
        assert refused.value.status == 422 and "send less" in refused.value.message
        assert not first.done()
        first.cancel()

    asyncio.run(ask())
    worker.close()


def test_a_caller_has_half_of_the_queue(worker: BatchWorker, work: Counting) -> None:
    async def ask() -> None:
        much = asyncio.create_task(worker.compute("a", items(*[50] * 45, cost=51), "greedy"))  # 2,295 of 4,000
        await begun(work)
        with pytest.raises(RequestError) as refused:
            await worker.compute("a", items(1), "greedy")
        assert (refused.value.status, refused.value.code) == (429, "busy")
        assert await worker.compute("a", items(1), "modest") == [1]
        much.cancel()

    asyncio.run(ask())


def test_what_waits_in_other_processes_counts(work: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_limits, "GRAIN", 1)
    limits = SharedLimits(processes=2)
    settings = ServiceSettings(wait=0, batch_tokens=100, queued_tokens=4000)
    worker, other = BatchWorker("counting", work, settings, Metrics(), limits), SharedBacklog(limits, "counting")
    limits.process = 1
    other.share({"greedy": 1900.0})
    limits.process = 0

    async def ask() -> None:
        assert await worker.compute("a", items(*[1] * 20), "greedy") == [1] * 20  # 100 of the 100 that are left
        with pytest.raises(RequestError) as refused:
            await worker.compute("a", items(*[1] * 21), "greedy")
        assert (refused.value.status, refused.value.code) == (429, "busy")
        assert await worker.compute("a", items(*[1] * 21), "modest") == [1] * 21
        limits.forget_process(1)  # as the supervisor does when a process was killed
        assert await worker.compute("a", items(*[1] * 21), "greedy") == [1] * 21

    asyncio.run(ask())
    worker.close()
    limits.process = 1
    assert other.elsewhere() == 0  # nothing is left behind


def test_clocks_of_callers() -> None:
    clock = FairClock()
    for caller in ("a", "b"):
        clock.enter(caller)
    clock.charge({"a": 3, "b": 1}, 4.0)
    assert clock.order(["a", "b"]) == ["b", "a"]
    assert clock.close(["b", "a"], 0.5) == ["b"] and clock.close(["b", "a"], 1.0) == ["b", "a"]
    clock.charge({"b": 1}, 9.0)
    assert clock.order(["a", "b"]) == ["a", "b"]
    clock.enter("c")  # has not computed for long, but gets only a little in advance of those who wait
    clock.charge({"c": 1}, ADVANCE + 0.01)
    order = clock.order(["a", "b", "c"])
    assert order == ["a", "c", "b"]
    assert clock.close(order, 0.0) == ["a", "c"] and clock.close([], 0.0) == []
