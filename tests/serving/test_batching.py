"""Batching: what waits together is computed together, within the budget; a slot is freed however a request ends."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from qkv.base.errors import DataError
from qkv.serving.batching import BatchItem
from qkv.serving.errors import RequestError
from qkv.serving.metrics import Metrics, share_metrics
from qkv.serving.settings import ServiceSettings
from qkv.serving.worker import BatchWorker

BAD, BROKEN, LOST = -1, -2, -3
SECRET = "what a user wrote"


def test_counters_keep_every_digit() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.count_batch("m", size=1, prompt_tokens=1_234_567_891, seconds=0.5)
    (family,) = [one for one in text_string_to_metric_families(metrics.text()) if one.name == "qkv_prompt_tokens"]
    (sample,) = family.samples
    assert (sample.name, sample.labels, sample.value) == ("qkv_prompt_tokens_total", {"model": "m"}, 2_469_135_782)
    assert "_created" not in metrics.text()


def test_metrics_whose_files_are_gone_stop_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    monkeypatch.setattr(prometheus_client.values, "ValueClass", prometheus_client.values.ValueClass)
    share_metrics(str(tmp_path / "gone"), "1")
    metrics = Metrics()
    metrics.watch_queue("m", lambda: 1, lambda: 2)
    for _ in range(2):
        metrics.refresh()
        metrics.count_request("/translate", 200, 0.1)
        metrics.count_refusal("m", "busy")
        metrics.count_batch("m", size=1, prompt_tokens=2, seconds=0.5)
    assert [line.partition(",")[0] for line in caplog.messages] == ["metrics are incomplete"]


class Doubling:
    """Doubles numbers, when it is let; remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[Hashable, list[int]]] = []
        self.go, self.busy = threading.Event(), threading.Event()
        self.go.set()

    def compute(self, key: Hashable, items: Sequence[BatchItem]) -> list[int]:
        self.batches.append((key, [item.value for item in items]))
        self.busy.set()
        assert self.go.wait(10)
        if any(item.value == BAD for item in items):
            raise DataError("this is not doubled")
        if any(item.value == LOST for item in items):
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")
        if any(item.value == BROKEN for item in items):
            raise RuntimeError(SECRET)
        return [2 * item.value for item in items]


Start = Callable[..., BatchWorker]


@pytest.fixture
def work() -> Doubling:
    return Doubling()


@pytest.fixture
def start(work: Doubling) -> Iterator[Start]:
    workers: list[BatchWorker] = []

    def start(**settings: Any) -> BatchWorker:
        workers.append(BatchWorker("doubling", work, ServiceSettings(**{"wait": 0.05, **settings}), Metrics()))
        return workers[-1]

    yield start
    work.go.set()
    for worker in workers:
        worker.close()


def items(*values: int, cost: float = 10) -> list[BatchItem]:
    return [BatchItem(value, 1, cost) for value in values]


async def until(happened: Callable[[], Any]) -> None:
    """Come back when something has happened, which must be soon."""
    async with asyncio.timeout(10):
        while not happened():
            await asyncio.sleep(0.001)


async def behind_another(worker: BatchWorker, work: Doubling, act: Callable[[], Awaitable[Any]]) -> Any:
    """Do something while the worker is busy with a request for another key."""
    work.go.clear()
    first = asyncio.create_task(worker.compute("first", items(0)))
    await until(work.busy.is_set)
    found = await act()
    work.go.set()
    assert await first == [0]
    return found


def test_requests_share_batches(start: Start, work: Doubling) -> None:
    async def ask() -> None:
        worker = start(wait=5, batch_tokens=40)
        found = await asyncio.gather(*(worker.compute("a", items(n, n + 10)) for n in range(4)))
        assert found == [[2 * n, 2 * n + 20] for n in range(4)]

    asyncio.run(ask())
    assert [len(values) for _, values in work.batches] == [4, 4]
    # Each request's first item goes before the second ones.
    assert sorted(work.batches[0][1]) == [0, 1, 2, 3]


async def ask_at_once(worker: BatchWorker, *asked: Awaitable[Any]) -> list[Any]:
    """Await answers; the worker sees all requests at once, however slow the machine is."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    with worker._changed:  # this thread may enter it again, to put requests
        await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_different_work_is_computed_apart(start: Start, work: Doubling) -> None:
    async def ask() -> None:
        worker = start()
        asked = (worker.compute(key, items(n)) for n, key in enumerate(["a", "b", "a", "b"]))
        assert await ask_at_once(worker, *asked) == [[0], [2], [4], [6]]

    asyncio.run(ask())
    assert work.batches == [("a", [0, 2]), ("b", [1, 3])]


def test_what_is_too_large_for_a_batch_is_one(start: Start, work: Doubling) -> None:
    assert asyncio.run(start_and_ask(start, items(1, 2, cost=10**6))) == [2, 4]
    assert [values for _, values in work.batches] == [[1], [2]]


async def start_and_ask(start: Start, asked: list[BatchItem]) -> list[Any]:
    return await start().compute("a", asked)


def test_a_full_queue_refuses(start: Start, work: Doubling) -> None:
    worker = start(queue=2)
    with worker.reserve(), worker.reserve():
        with pytest.raises(RequestError) as refused:
            worker.reserve()
        assert refused.value.status == 429 and refused.value.retry_after
    with worker.reserve():
        pass
    assert worker.active == 0


def test_who_leaves_frees_the_place(start: Start, work: Doubling) -> None:
    async def ask() -> None:
        worker = start()

        async def leave() -> None:
            leaving = asyncio.create_task(worker.compute("a", items(*range(100))))
            await until(lambda: worker.waiting == 100)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

        await behind_another(worker, work, leave)
        assert await worker.compute("a", items(7)) == [14]
        assert worker.waiting == 0

    asyncio.run(ask())
    assert work.batches == [("first", [0]), ("a", [7])]


def test_time_is_up(start: Start, work: Doubling) -> None:
    """A request whose turn has not come may be asked again; one that has begun is computed to its end."""

    async def ask() -> RequestError:
        worker = start(time_limit=0.1, wait=0)
        work.go.clear()
        first = asyncio.create_task(worker.compute("first", items(0)))
        await until(work.busy.is_set)
        with pytest.raises(RequestError) as second:
            await worker.compute("second", items(1))
        assert not first.done()
        work.go.set()
        assert await first == [0]
        return second.value

    error = asyncio.run(ask())
    assert (error.code, error.status) == ("time_limit", 429)


def test_one_bad_text_does_not_spoil_the_batch(start: Start, work: Doubling, caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> list[Any]:
        worker = start(wait=1, batch_tokens=40)
        return await asyncio.gather(*(worker.compute("a", items(n)) for n in (1, BAD, BROKEN, 4)), return_exceptions=True)

    first, bad, broken, last = asyncio.run(ask())
    assert (first, last) == ([2], [8])
    assert isinstance(bad, RequestError) and bad.status == 400 and "this is not doubled" in bad.message
    assert isinstance(broken, RequestError) and broken.status == 500 and SECRET not in broken.message
    assert "RuntimeError" in caplog.text and SECRET not in caplog.text


def test_a_worker_whose_device_failed_ends(start: Start, work: Doubling) -> None:
    """After it, every call of CUDA fails in this process: what is not answered may be asked again, of the next process."""

    async def ask() -> list[Any]:
        worker = start(wait=0.1, batch_tokens=1)
        found = await ask_at_once(worker, *(worker.compute(n, items(n)) for n in (LOST, 1)))
        await until(lambda: not worker.alive)
        with pytest.raises(RequestError, match="stopping"):
            await worker.compute("a", items(3))
        return found

    assert [(each.code, each.status, each.retry_after) for each in asyncio.run(ask())] == [("device_failed", 503, 10)] * 2


def test_closing_answers_what_waits(start: Start, work: Doubling) -> None:
    async def ask() -> None:
        worker = start(wait=10)
        asked = asyncio.create_task(worker.compute("a", items(1, 2)))
        await until(lambda: worker.waiting == 2)
        await asyncio.to_thread(worker.close)
        assert await asked == [2, 4]
        with pytest.raises(RequestError, match="stopping"):
            await worker.compute("a", items(3))
        assert not worker.alive

    asyncio.run(ask())


def test_nothing_asked_is_nothing_computed(start: Start, work: Doubling) -> None:
    assert asyncio.run(start_and_ask(start, [])) == []
    assert work.batches == []


def test_no_request_is_lost_or_answered_twice(start: Start, work: Doubling) -> None:
    async def one(worker: BatchWorker, number: int) -> None:
        assert await worker.compute(number % 3, items(*range(number, number + number % 4))) == [
            2 * n for n in range(number, number + number % 4)
        ]

    async def ask() -> None:
        worker = start(wait=0.001, batch_tokens=70)
        await asyncio.gather(*(one(worker, number) for number in range(300)))

    asyncio.run(ask())
    computed = sorted(value for _, values in work.batches for value in values)
    assert computed == sorted(value for number in range(300) for value in range(number, number + number % 4))
