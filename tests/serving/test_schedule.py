"""The schedule of a worker, in simulated time: texts are read between steps, long ones in pieces."""

import asyncio
import random
import weakref
from itertools import pairwise

import pytest
from simulated_load import BROKEN, STEP, STEP_ROW, SimulatedLoad, SimulatedWorker, p99, spread

from qkv.serving.batching import QueuedRequest
from qkv.serving.errors import RequestError
from qkv.serving.schedule import MAX_READING

PIECE, LONG = 256, 1000  # tokens


def take_turns(load: SimulatedLoad, one: SimulatedWorker) -> None:
    while (turn := one.schedule.next_turn(load.now)) is not None:
        one._take(turn)


def take(load: SimulatedLoad, one: SimulatedWorker, kind: str, count: int) -> None:
    """Take turns until there have been so many of a kind."""
    before = [each for each, _ in load.turns].count(kind)
    while [each for each, _ in load.turns].count(kind) < before + count:
        turn = one.schedule.next_turn(load.now)
        assert turn is not None
        one._take(turn)


def test_first_tokens_come_soon_under_load() -> None:
    load = SimulatedLoad([spread] * 64)
    load.run(12)
    first = load.first_tokens()
    assert len(first) > 300
    assert p99(first) < 1.5 * (STEP + 64 * STEP_ROW)  # steps of all: texts are read during a step too


@pytest.mark.parametrize("broken", [False, True])
def test_texts_are_read_during_a_step_and_join_after_it(broken: bool) -> None:
    """They outlive the step if it fails."""

    async def ask() -> None:
        load, came = SimulatedLoad(), list[QueuedRequest]()
        with load.worker() as one:
            others = [load.put(one, caller, 5, 10) for caller in range(40)]
            take(load, one, "step", 4)
            for request in others:
                request.items[0].streamed = True

            def arrive() -> None:
                if not came:
                    came.append(load.put(one, 99, 10, 4))
                elif broken and load.turns[-1] == ("read", [99]):
                    load.turns.append(("failed", []))
                    raise RuntimeError

            load.arrive = arrive  # type: ignore[method-assign]
            load.turns.clear()
            take(load, one, "step", 1)
            assert [kind for kind, _ in load.turns] == ["step", "read", "failed"][: 2 + broken]
            assert load.turns[1][1] == [99] and 99 not in load.turns[0][1] and len(one.schedule.lanes) == 1
            (first_token,) = came[0].items[0].value.steps
            assert broken or first_token < load.now - 0.3 * (STEP + 40 * STEP_ROW)  # it does not wait for the end of the step
            take_turns(load, one)
        found = await asyncio.gather(*(request.done for request in [*others, *came]), return_exceptions=True)
        assert [isinstance(each, RequestError) for each in found] == [broken] * 40 + [False]
        assert sorted(len(text.steps) for text in load.done) == [4] + [10] * (0 if broken else 40)

    asyncio.run(ask())


def test_others_go_on_while_long_texts_are_read() -> None:
    def long(rng: random.Random) -> tuple[int, int]:
        return LONG, 20

    load = SimulatedLoad([spread] * 8 + [long] * 6)
    load.run(8)
    kinds = "".join(kind[0] for kind, _ in load.turns)
    assert "rrr" not in kinds[1:]  # one may follow during a step, and one after it
    waited = [later - sooner for text in load.done for sooner, later in pairwise(text.steps)]
    assert max(waited) < 0.1  # a whole long text takes that long
    pieces = [callers for kind, callers in load.turns if kind == "read" and callers[0] >= 8]
    assert all(len(callers) == 1 for callers in pieces)
    texts = sum(text.caller >= 8 for text in load.done)
    assert texts > 20 and 0 <= len(pieces) - texts * -(-LONG // PIECE) <= 4 * 6
    shared = [callers for kind, callers in load.turns if kind == "step" and max(callers) >= 8]
    assert all(len(callers) > 1 for callers in shared[:50])  # they join the others


def test_a_long_text_alone_is_read_at_once_and_some_texts_are_read_in_turns() -> None:
    async def ask() -> None:
        load = SimulatedLoad()
        with load.worker() as one:
            load.put(one, 0, LONG, 5)
            take_turns(load, one)
            assert load.turns == [("read", [0])] * 4 + [("step", [0])] * 4
            load.turns.clear()
            for caller in range(MAX_READING + 2):
                load.put(one, caller, LONG, 1)
            take_turns(load, one)
        assert len(load.turns) == 4 * (MAX_READING + 2)
        assert {callers[0] for _, callers in load.turns[: 2 * MAX_READING]} <= set(range(6))
        assert len({callers[0] for _, callers in load.turns[: 3 * MAX_READING]}) == MAX_READING

    asyncio.run(ask())


def test_a_request_that_is_cancelled_while_it_is_read_leaves_nothing() -> None:
    async def ask() -> None:
        load = SimulatedLoad()
        with load.worker() as one:
            gone, there = load.put(one, 0, LONG, 5), load.put(one, 1, 10, 50)
            while not any(lane.reading for lane in one.schedule.lanes):
                turn = one.schedule.next_turn(load.now)
                assert turn is not None
                one._take(turn)
            (texts,) = [weakref.ref(lane.running) for lane in one.schedule.lanes if lane.reading]
            gone.cancelled = True
            turn = None
            take_turns(load, one)
            assert texts() is None and not one.schedule.unfinished() and not one.schedule.lanes
            await asyncio.wait_for(there.done, 1)
        assert load.turns.count(("read", [0])) == 1 and load.turns[-1] == ("step", [1])

    asyncio.run(ask())


@pytest.mark.parametrize("prompt", [10, LONG])
def test_an_error_while_reading_fails_only_its_request(prompt: int) -> None:
    async def ask() -> None:
        load = SimulatedLoad()
        with load.worker() as one:
            requests: list[QueuedRequest] = [load.put(one, 0, 10, 30)]
            requests += [load.put(one, caller, prompt, tokens) for caller, tokens in ((1, 7), (2, BROKEN), (3, 7))]
            for request in requests:
                request.items[0].streamed = True  # nothing of it has been passed on yet
            take_turns(load, one)
        found = await asyncio.gather(*(request.done for request in requests), return_exceptions=True)
        assert [isinstance(one, RequestError) for one in found] == [False, False, True, False]
        assert sorted(text.caller for text in load.done) == [0, 1, 3]

    asyncio.run(ask())
