"""The engine: what waits together is computed together, within its room; a place is freed however a request ends."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import Any

import pytest

from qkv.base.errors import DataError
from qkv.serving.engine import Unit, Worker
from qkv.serving.metrics import Metrics
from qkv.serving.refusals import Refusal
from qkv.serving.settings import Settings

BAD, BROKEN = -1, -2
SECRET = "what a user wrote"


def test_counters_are_told_to_the_last_digit() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.batch("m", size=1, tokens=1_234_567, seconds=0.5)
    assert 'qkv_tokens_total{model="m"} 2469134\n' in metrics.text({})


class Doubling:
    """Doubles numbers, when it is let; remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[Hashable, list[int]]] = []
        self.go, self.busy = threading.Event(), threading.Event()
        self.go.set()

    def compute(self, key: Hashable, units: Sequence[Unit]) -> list[int]:
        self.batches.append((key, [unit.value for unit in units]))
        self.busy.set()
        assert self.go.wait(10)
        if any(unit.value == BAD for unit in units):
            raise DataError("this is not doubled")
        if any(unit.value == BROKEN for unit in units):
            raise RuntimeError(SECRET)
        return [2 * unit.value for unit in units]


Start = Callable[..., Worker]


@pytest.fixture
def work() -> Doubling:
    return Doubling()


@pytest.fixture
def start(work: Doubling) -> Iterator[Start]:
    workers: list[Worker] = []

    def start(**settings: Any) -> Worker:
        workers.append(Worker("doubling", work, Settings(**{"wait": 0.05, **settings}), Metrics()))
        return workers[-1]

    yield start
    work.go.set()
    for worker in workers:
        worker.close()


def units(*values: int, cost: float = 10) -> list[Unit]:
    return [Unit(value, 1, cost) for value in values]


async def until(happened: Callable[[], Any]) -> None:
    """Come back when something has happened, which must be soon."""
    async with asyncio.timeout(10):
        while not happened():
            await asyncio.sleep(0.001)


async def behind_another(worker: Worker, work: Doubling, act: Callable[[], Awaitable[Any]]) -> Any:
    """Do something while the worker is busy with a request for another key."""
    work.go.clear()
    first = asyncio.create_task(worker.ask("first", units(0)))
    await until(work.busy.is_set)
    found = await act()
    work.go.set()
    assert await first == [0]
    return found


def test_requests_share_batches(start: Start, work: Doubling) -> None:
    async def ask() -> None:
        worker = start(wait=5, batch_tokens=40)
        found = await asyncio.gather(*(worker.ask("a", units(n, n + 10)) for n in range(4)))
        assert found == [[2 * n, 2 * n + 20] for n in range(4)]

    asyncio.run(ask())
    assert [len(values) for _, values in work.batches] == [4, 4]
    # Each request's first unit goes before the second ones.
    assert sorted(work.batches[0][1]) == [0, 1, 2, 3]


def test_different_work_is_computed_apart(start: Start, work: Doubling) -> None:
    async def ask() -> None:
        worker = start()
        keys = ["a", "b", "a", "b"]
        assert await asyncio.gather(*(worker.ask(key, units(n)) for n, key in enumerate(keys))) == [[0], [2], [4], [6]]

    asyncio.run(ask())
    assert work.batches == [("a", [0, 2]), ("b", [1, 3])]


def test_what_is_too_large_for_a_batch_is_one(start: Start, work: Doubling) -> None:
    assert asyncio.run(start_and_ask(start, units(1, 2, cost=10**6))) == [2, 4]
    assert [values for _, values in work.batches] == [[1], [2]]


async def start_and_ask(start: Start, asked: list[Unit]) -> list[Any]:
    return await start().ask("a", asked)


def test_a_full_queue_refuses(start: Start, work: Doubling) -> None:
    worker = start(queue=2)
    with worker.enter(), worker.enter():
        with pytest.raises(Refusal) as refused:
            worker.enter()
        assert refused.value.status == 429 and refused.value.retry_after
    with worker.enter():
        pass
    assert worker.inside == 0


def test_who_leaves_frees_the_place(start: Start, work: Doubling) -> None:
    async def ask() -> None:
        worker = start()

        async def leave() -> None:
            leaving = asyncio.create_task(worker.ask("a", units(*range(100))))
            await until(lambda: worker.waiting == 100)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

        await behind_another(worker, work, leave)
        assert await worker.ask("a", units(7)) == [14]
        assert worker.waiting == 0

    asyncio.run(ask())
    assert work.batches == [("first", [0]), ("a", [7])]


@pytest.mark.parametrize("begun", [False, True])
def test_time_is_up(start: Start, work: Doubling, begun: bool) -> None:
    """A request that never had its turn may be asked again; one that takes too long should be shorter."""

    async def ask() -> Refusal:
        worker = start(time_limit=0.05, wait=0)
        work.go.clear()
        first = asyncio.create_task(worker.ask("first", units(0)))
        await until(work.busy.is_set)
        second = asyncio.create_task(worker.ask("second", units(1)))
        found = await asyncio.gather(first, second, return_exceptions=True)
        work.go.set()
        refusal = found[0 if begun else 1]
        assert isinstance(refusal, Refusal)
        return refusal

    refusal = asyncio.run(ask())
    assert refusal.code == "time_limit" and refusal.status == (422 if begun else 429)


def test_one_bad_text_does_not_spoil_the_batch(start: Start, work: Doubling, caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> list[Any]:
        worker = start(wait=1, batch_tokens=40)
        return await asyncio.gather(*(worker.ask("a", units(n)) for n in (1, BAD, BROKEN, 4)), return_exceptions=True)

    first, bad, broken, last = asyncio.run(ask())
    assert (first, last) == ([2], [8])
    assert isinstance(bad, Refusal) and bad.status == 400 and "this is not doubled" in bad.message
    assert isinstance(broken, Refusal) and broken.status == 500 and SECRET not in broken.message
    assert "RuntimeError" in caplog.text and SECRET not in caplog.text


def test_closing_answers_what_waits(start: Start, work: Doubling) -> None:
    async def ask() -> None:
        worker = start(wait=10)
        asked = asyncio.create_task(worker.ask("a", units(1, 2)))
        await until(lambda: worker.waiting == 2)
        await asyncio.to_thread(worker.close)
        assert await asked == [2, 4]
        with pytest.raises(Refusal, match="stopping"):
            await worker.ask("a", units(3))
        assert not worker.alive

    asyncio.run(ask())


def test_nothing_asked_is_nothing_computed(start: Start, work: Doubling) -> None:
    assert asyncio.run(start_and_ask(start, [])) == []
    assert work.batches == []


def test_no_request_is_lost_or_answered_twice(start: Start, work: Doubling) -> None:
    async def one(worker: Worker, number: int) -> None:
        assert await worker.ask(number % 3, units(*range(number, number + number % 4))) == [
            2 * n for n in range(number, number + number % 4)
        ]

    async def ask() -> None:
        worker = start(wait=0.001, batch_tokens=70)
        await asyncio.gather(*(one(worker, number) for number in range(300)))

    asyncio.run(ask())
    computed = sorted(value for _, values in work.batches for value in values)
    assert computed == sorted(value for number in range(300) for value in range(number, number + number % 4))
