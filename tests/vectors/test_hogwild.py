"""Threads at work: an interrupt waits for the pieces that are being done, an error ends all."""

import signal
import time
from types import FrameType

import pytest

from qkv.vectors.hogwild import Crew, Work


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_waits_for_the_pieces_that_are_being_done(threads: int) -> None:
    finished: list[int] = []

    def piece(number: int) -> None:
        time.sleep(0.2)
        finished.append(number)

    crew = Crew(Work(piece, 100, 100, "words"), first=3, threads=threads)
    usual = signal.signal(signal.SIGALRM, interrupt)
    try:
        crew.start()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            crew.wait(5)
        assert not finished
        crew.stop()
    finally:
        signal.signal(signal.SIGALRM, usual)
    assert sorted(finished) == [3, 4][:threads] and crew.next == 3 + threads


def test_an_error_in_a_piece_ends_all_and_is_raised() -> None:
    def piece(number: int) -> None:
        if number == 2:
            raise ValueError("the third piece")

    crew = Crew(Work(piece, 1_000_000, 1, "words"), first=0, threads=2)
    crew.start()
    assert crew.wait(5)
    with pytest.raises(ValueError, match="the third piece"):
        crew.stop()
    assert crew.next < 1_000_000
