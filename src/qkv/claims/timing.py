"""Time for claims about cost."""

import time
from collections.abc import Callable

import torch


def seconds(work: Callable[[], object], device: str = "cpu", times: int = 5, enough: float = 0.05) -> float:
    """Return the shortest of some runs of `work`, after a first that does not count: whatever else a machine does adds time.

    It is run at least so many times, and until `enough` seconds are over.
    """
    work()
    found: list[float] = []
    while len(found) < times or sum(found) < enough:
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return min(found)
