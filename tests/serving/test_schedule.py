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


def test_first_tokens_come_soon_under_load() -> None:
    load = SimulatedLoad([spread] * 64)
    load.run(12)
    first = load.first_tokens()
    assert len(first) > 300
    assert p99(first) < 3 * (STEP + 64 * STEP_ROW)  # steps of all; without any other caller in the way, two of them


def test_others_go_on_while_long_texts_are_read() -> None:
    def long(rng: random.Random) -> tuple[int, int]:
        return LONG, 20

    load = SimulatedLoad([spread] * 8 + [long] * 6)
    load.run(8)
    kinds = [kind for kind, _ in load.turns]
    assert not any(pair == ("read", "read") for pair in pairwise(kinds[1:]))
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
