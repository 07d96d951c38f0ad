"""Worker threads: an interrupt waits for running chunks, an error ends all."""

import signal
import time
from types import FrameType

import pytest

from qkv.vectors.hogwild import HogwildTask, WorkerPool


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_waits_for_running_chunks(threads: int) -> None:
    finished: list[int] = []

    def train_chunk(chunk: int) -> None:
        time.sleep(0.2)
        finished.append(chunk)

    pool = WorkerPool(HogwildTask(train_chunk, 100, 100, "words"), first=3, threads=threads)
    usual = signal.signal(signal.SIGALRM, interrupt)
    try:
        pool.start()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            pool.wait(5)
        assert not finished
        pool.stop()
    finally:
        signal.signal(signal.SIGALRM, usual)
    assert sorted(finished) == [3, 4][:threads] and pool.next == 3 + threads


def test_an_error_in_a_chunk_ends_all_and_is_raised() -> None:
    def train_chunk(chunk: int) -> None:
        if chunk == 2:
            raise ValueError("the third chunk")

    pool = WorkerPool(HogwildTask(train_chunk, 1_000_000, 1, "words"), first=0, threads=2)
    pool.start()
    assert pool.wait(5)
    with pytest.raises(ValueError, match="the third chunk"):
        pool.stop()
    assert pool.next < 1_000_000
