"""Items that wait are found by request, in the order in which they are due, however many there are."""

import asyncio
import random
from operator import attrgetter

from qkv.serving.batching import BatchItem, QueuedRequest
from qkv.serving.waiting import WaitingItems


async def request(caller: str, items: int, lane: str | None = None) -> QueuedRequest:
    return QueuedRequest("key", [BatchItem("text", 1, 2.0, lane=lane) for _ in range(items)], caller)


def test_order_number_and_work_are_those_of_one_sorted_list() -> None:
    asyncio.run(compare_with_a_sorted_list())


async def compare_with_a_sorted_list() -> None:
    rng, waiting, reference = random.Random(1), WaitingItems(), list[BatchItem]()
    requests = [await request(rng.choice("abc"), rng.randrange(1, 30), rng.choice([None, "lane"])) for _ in range(20)]
    for one in requests:
        waiting.add(one.items)
        reference = sorted([*reference, *one.items], key=attrgetter("due"))
    for _ in range(30):
        taken = rng.sample(reference, min(len(reference), 7))
        waiting.take(taken)
        reference = [item for item in reference if item not in taken]
        back = [item for item in taken if rng.random() < 0.3]
        waiting.add(back)
        reference = sorted([*reference, *back], key=attrgetter("due"))
        assert len(waiting) == len(reference) and set(waiting) == set(reference)
        for grows in (False, True):
            wanted = [item for item in reference if (item.lane is not None) == grows and item.request in requests[::2]]
            assert list(waiting.in_order(grows, set(requests[::2]))) == wanted
        firsts = {(item.request.caller, item.lane is not None): item for item in reversed(reference)}
        assert waiting.firsts() == firsts
        assert waiting.backlog() == {
            caller: sum(item.cost for item in reference if item.request.caller == caller)
            for caller in {item.request.caller for item in reference}
        }


def test_cancelled_requests_are_no_work_and_are_forgotten() -> None:
    asyncio.run(forget_a_cancelled_request())


async def forget_a_cancelled_request() -> None:
    waiting, gone, kept = WaitingItems(), await request("a", 3), await request("a", 2)
    for one in (gone, kept):
        waiting.add(one.items)
    gone.cancelled = True
    assert waiting.backlog() == {"a": 4.0} and len(waiting) == 5
    waiting.forget_cancelled()
    assert list(waiting) == kept.items and len(waiting) == 2 and waiting.requests() == {kept}
