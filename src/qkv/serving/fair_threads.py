"""Threads that read requests and write answers, in turn for the caller who has had the least of their time.

Python runs one thread at a time, so a large answer that is written in one go would hold up the event loop, and the threads of
models at each of their operations. Long loops of these threads therefore go over `giving_way(...)`.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from qkv.serving.fairness import FairClock

WORK, PAUSE = 0.0005, 0.0005  # seconds that a thread works at most before it gives way, and for how long
Result = TypeVar("Result")
Value = TypeVar("Value")
_thread = threading.local()


class FairThreads:
    """A few threads for all callers; each caller has one of them at a time, so that none has all."""

    def __init__(self, count: int, name: str):
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}  # by caller
        self._served: set[str] = set()  # callers that have a thread now
        self._clock = FairClock()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{index}", daemon=True) for index in range(count)]
        for thread in self._threads:
            thread.start()

    async def run(self, caller: str, function: Callable[[], Result]) -> Result:
        """Call a function on one of the threads, and return its result."""
        future: Future[Result] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the threads have ended")
            if caller not in self._waiting and caller not in self._served:
                self._clock.enter(caller)
            self._waiting.setdefault(caller, deque()).append((future, function))
            self._changed.notify()
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Do what waits, then end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (caller := self._next_caller()) is not None:
            started = _thread.resumed = time.monotonic()
            self._do_first_job(caller)
            with self._changed:
                self._served.remove(caller)
                self._clock.charge({caller: 1.0}, time.monotonic() - started)
                self._changed.notify_all()

    def _next_caller(self) -> str | None:
        """Wait for a caller who has something to do and no thread, and give it this one; None when everything is done."""
        with self._changed:
            while True:
                if ready := self._waiting.keys() - self._served:
                    caller = self._clock.order(ready)[0]
                    self._served.add(caller)
                    return caller
                if self._closed and not self._waiting:
                    return None
                self._changed.wait()

    def _do_first_job(self, caller: str) -> None:
        with self._changed:
            future, function = self._waiting[caller].popleft()
            if not self._waiting[caller]:
                del self._waiting[caller]
        if future.set_running_or_notify_cancel():  # else nobody waits for it any more
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)


def giving_way(values: Iterable[Value]) -> Iterator[Value]:
    """Yield values; before one, let other threads run if this one has worked for a while and is of `FairThreads`."""
    for value in values:
        resumed = getattr(_thread, "resumed", None)
        if resumed is not None and time.monotonic() - resumed > WORK:
            time.sleep(PAUSE)
            _thread.resumed = time.monotonic()
        yield value
