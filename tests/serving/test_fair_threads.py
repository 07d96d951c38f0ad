"""Threads that read requests and write answers: fair between callers, and considerate of other threads."""

import asyncio
import json
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from qkv.serving import fair_threads
from qkv.serving.fair_threads import FairThreads, giving_way
from qkv.serving.json_answer import write_with_list


@pytest.fixture
def threads() -> Iterator[FairThreads]:
    threads = FairThreads(2, "test")
    yield threads
    threads.close()


def test_a_caller_with_much_to_do_leaves_a_thread_to_others(threads: FairThreads) -> None:
    go, done = threading.Event(), list[str]()

    async def ask() -> None:
        async def greedy() -> None:
            await threads.run("greedy", lambda: go.wait(30))
            done.append("greedy")

        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(greedy())
            await asyncio.sleep(0)
            async with asyncio.timeout(10):
                assert [await threads.run("modest", lambda n=n: n) for n in range(3)] == [0, 1, 2]  # type: ignore[misc]
            assert not done
            go.set()

    asyncio.run(ask())
    assert len(done) == 5


def test_errors_are_the_askers_and_cancelled_work_is_not_done(threads: FairThreads) -> None:
    go, done = threading.Event(), list[str]()

    async def ask() -> None:
        first = asyncio.create_task(threads.run("a", lambda: go.wait(30)))
        second = asyncio.create_task(threads.run("a", lambda: done.append("second")))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        go.set()
        assert await first
        with pytest.raises(ZeroDivisionError):
            await threads.run("a", lambda: 1 // 0)
        assert await threads.run("a", lambda: "still there") == "still there"

    asyncio.run(ask())
    assert not done


def test_closing_does_what_waits() -> None:
    threads, go = FairThreads(1, "test"), threading.Event()

    async def ask() -> list[int]:
        first = asyncio.create_task(threads.run("a", lambda: go.wait(30) * 1))
        others = [asyncio.create_task(threads.run(caller, lambda: 2)) for caller in "ab"]
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(threads.close))
        go.set()
        await closing
        with pytest.raises(RuntimeError):
            await threads.run("a", lambda: 3)
        return [await one for one in (first, *others)]

    assert asyncio.run(ask()) == [1, 2, 2]


def test_long_work_gives_way_on_these_threads_alone(threads: FairThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[Any] = []
    monkeypatch.setattr(fair_threads, "WORK", -1.0)
    monkeypatch.setattr("qkv.serving.fair_threads.time.sleep", lambda _: pauses.append(threading.current_thread()))
    values = list(range(5))
    assert list(giving_way(values)) == values
    assert not pauses  # the event loop must not sleep
    assert asyncio.run(threads.run("a", lambda: list(giving_way(values)))) == values
    assert len(pauses) == 5 and threading.current_thread() not in pauses


def test_an_answer_in_pieces_is_the_json_of_the_whole() -> None:
    values = [{"text": 'é "\n😀', "numbers": [0.1, 1e-7, -1e30, 3]}, [], None]
    fields = {"model": 'a"b', "usage": {"tokens": 3}}
    assert json.loads(write_with_list(fields, "data", values)) == {**fields, "data": values}
    assert json.loads(write_with_list(fields, "data", [])) == {**fields, "data": []}
    assert json.loads(write_with_list(fields, "data", [[math.nan, -math.inf, 1.0]]))["data"] == [[None, None, 1.0]]
