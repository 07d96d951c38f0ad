"""Limits that several processes share."""

import os
from collections.abc import Callable

import pytest

from qkv.serving import shared_limits
from qkv.serving.authentication import Caller
from qkv.serving.connections import ConnectionLimits
from qkv.serving.errors import RequestError
from qkv.serving.settings import ServiceSettings
from qkv.serving.shared_limits import PROBES, SharedBacklog, SharedLimits


def in_process(number: int, limits: SharedLimits, work: Callable[[], int]) -> int:
    """Do some work in a fork with a number of its own, which is then killed, and return a small result."""
    pid = os.fork()
    if pid == 0:
        limits.process = number
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_rate_holds_over_all_processes() -> None:
    limits, caller = SharedLimits(processes=4), Caller("anna", "key anna", 10)

    def admitted() -> int:
        count = 0
        for _ in range(4):
            try:
                limits.count(caller)
                count += 1
            except RequestError:
                pass
        return count

    assert [in_process(number, limits, admitted) for number in range(4)] == [4, 4, 2, 0]


def test_processes_at_the_same_time_lose_no_count() -> None:
    limits = SharedLimits(processes=4)
    pids = []
    for number in range(4):
        pids.append(os.fork())
        if pids[-1] == 0:
            limits.process = number
            for _ in range(500):
                limits.hold("queue", 2, 10**6)
                limits.release("queue", 1)
            os._exit(0)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
    assert limits.held("queue") == 4 * 500


def test_what_a_dead_process_held_is_given_back() -> None:
    limits = SharedLimits(processes=3)
    assert in_process(1, limits, lambda: limits.hold("queue", 3, 5)) == 1
    assert in_process(2, limits, lambda: limits.hold("queue", 2, 5)) == 1
    assert not limits.hold("queue", 1, 5) and limits.held("queue") == 5
    limits.forget_process(1)
    assert limits.held("queue") == 2 and limits.hold("queue", 3, 5)
    limits.release("queue", 3)
    assert limits.held("queue") == 2


def test_a_name_that_holds_something_is_not_forgotten() -> None:
    limits = SharedLimits(rows=PROBES)
    assert all(limits.hold(f"queue {number}", 1, 1) for number in range(PROBES))
    with pytest.raises(RequestError, match="too many callers"):
        limits.hold("one more", 1, 1)
    assert not limits.hold("queue 3", 1, 1)
    limits.release("queue 3", 1)
    assert limits.hold("one more", 1, 1)


def test_a_backlog_is_known_to_the_other_processes_until_its_own_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_limits, "GRAIN", 1)
    limits = SharedLimits(processes=3)

    def wait_for(backlog: dict[str, float]) -> int:
        shared = SharedBacklog(limits, "gpt")
        shared.share({"anna": 90.0, "bert": 5.5})
        shared.share(backlog)
        return shared.elsewhere("anna")

    shared = SharedBacklog(limits, "gpt")
    shared.share({"anna": 7.0})
    assert in_process(1, limits, lambda: wait_for({"anna": 20.0, "bert": 5.5})) == 7
    assert in_process(2, limits, lambda: wait_for({"anna": 1.0})) == 27
    assert (shared.elsewhere("anna"), shared.elsewhere("bert"), shared.elsewhere()) == (21, 6, 27)
    assert SharedBacklog(limits, "bert").elsewhere() == 0
    limits.forget_process(1)
    assert (shared.elsewhere("anna"), shared.elsewhere("bert"), shared.elsewhere()) == (1, 0, 1)


def test_a_full_table_leaves_backlogs_out() -> None:
    limits = SharedLimits(processes=2, rows=PROBES)
    assert all(limits.hold(f"queue {number}", 1, 1) for number in range(PROBES))
    SharedBacklog(limits, "gpt").share({"anna": 7.0})
    limits.process = 1
    assert SharedBacklog(limits, "gpt").elsewhere("anna") == 0


def test_a_share_is_that_of_the_processes_which_accept() -> None:
    shared = SharedLimits(processes=4)
    connections = ConnectionLimits(ServiceSettings(), shared)
    for shared.process, count in enumerate((9, 1, 2)):
        connections.begin_accepting()
        for _ in range(count):
            connections.take("10.0.0.1")

    def surplus(process: int, more: int = 0) -> float:
        shared.process = process
        return connections.surplus(more)

    assert [surplus(process) for process in range(3)] == [5, -3, -2]
    assert surplus(0, 3) == 7
    connections.end_accepting()  # as a worker that is replaced, and has connections still
    assert (surplus(1), surplus(2)) == (-0.5, 0.5)
    shared.forget_process(1)
    assert surplus(2) == 0, "the only one has no more than its share"
