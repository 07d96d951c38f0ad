"""Requests are refused by true estimates, and only where much is waiting."""

import asyncio

import pytest

from qkv.serving.admission import LONGEST, Admission
from qkv.serving.batching import BatchItem, QueuedRequest
from qkv.serving.errors import RequestError
from qkv.serving.settings import ServiceSettings
from qkv.serving.shared_limits import SharedBacklog, SharedLimits

ALONE = SharedBacklog(SharedLimits(), "model")
LIMITS = ServiceSettings(time_limit=10, queued_tokens=10_000)


def request(*costs: float, caller: str = "a") -> QueuedRequest:
    async def make() -> QueuedRequest:
        return QueuedRequest("key", [BatchItem(None, 1, cost) for cost in costs], caller)

    return asyncio.run(make())


def refused(admission: Admission, asked: QueuedRequest, backlog: dict[str, float]) -> tuple[int, int | None]:
    with pytest.raises(RequestError) as error:
        admission.check(asked, backlog, ALONE)
    return error.value.status, error.value.retry_after


def test_nothing_is_refused_before_a_speed_is_known() -> None:
    admission = Admission(LIMITS, most_rows=128)
    admission.check(request(10**9), {}, ALONE)
    admission.check(request(4_000), {"a": 1_000, "b": 5_000}, ALONE)
    admission.note(1, 1, 0.9)  # one token in nearly a second
    admission.check(request(4_000), {"a": 1_000, "b": 5_000}, ALONE)


def test_the_speed_of_one_row_says_nothing_of_many() -> None:
    admission = Admission(LIMITS, most_rows=128)
    admission.note(200, 1, 2.0)
    assert refused(admission, request(5_000), {}) == (422, None)  # 50 s even alone, and 40 s are the limit
    admission.check(request(*[100] * 64), {}, ALONE)
    admission.note(2_000, 64, 2.0)
    admission.check(request(*[100] * 64), {}, ALONE)
    assert refused(admission, request(*[1_000] * 64), {}) == (422, None)  # at 1,000 a second
    admission.check(request(*[50] * 2_000), {}, ALONE)  # as many rows as there can be were not seen yet
    admission.note(3_000, 128, 2.0)
    assert refused(admission, request(*[50] * 2_000), {}) == (422, None)


def test_the_budget_is_for_all_callers_together_and_half_of_it_for_each() -> None:
    admission = Admission(LIMITS, most_rows=128)
    admission.note(40_000, 8, 20.0)  # 2,000 a second
    admission.check(request(9_000), {}, ALONE)
    admission.check(request(3_000), {"a": 2_000, "b": 5_000}, ALONE)
    assert refused(admission, request(3_001), {"a": 2_000, "b": 5_000}) == (429, 1)
    assert refused(admission, request(3_000, caller="c"), {"a": 2_000, "b": 7_000}) == (429, 1)
    assert refused(admission, request(9_000, caller="c"), {"a": 2_000, "b": 7_000}) == (429, 4)  # (18,000 - 10,000) / 2,000
    assert refused(admission, request(3_001), {"a": 2_000}) == (429, 1)


def test_work_that_would_end_too_late_is_refused() -> None:
    admission = Admission(ServiceSettings(time_limit=10, queued_tokens=10**9), most_rows=128)
    admission.note(2_000, 8, 20.0)  # 100 a second
    admission.check(request(1_000), {"a": 900, "b": 100}, ALONE)
    # Its turn would come after 2 x 600 / 100 = 12 s.
    assert refused(admission, request(1), {"a": 600, "b": 600}) == (429, 2)
    # It would end after 2 x 2,100 / 100 = 42 s.
    assert refused(admission, request(2_100, caller="c"), {"b": 9_000}) == (429, 42 - LONGEST * 10)
    admission.check(request(1_900, caller="c"), {"b": 9_000}, ALONE)


def test_an_item_is_done_bit_by_bit() -> None:
    item = BatchItem(None, 3, 10.0)
    assert [item.advance(3), item.advance(4), item.advance(9), item.advance(1)] == [3, 4, 3, 0]
