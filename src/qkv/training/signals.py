"""Ctrl-C and SIGTERM: the current update is finished and everything is saved; a second signal exits at once."""

import signal
from types import FrameType
from typing import Any

from qkv.training.progress import Progress


class StopSignals:
    """A context that handles SIGINT and SIGTERM; `number` is the signal that was received, or None."""

    def __init__(self, progress: Progress):
        self.progress = progress
        self.number: int | None = None
        self.handlers_before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.handlers_before[number] = signal.signal(number, self.handle)

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        self.progress.warn("stopping after this step; everything will be saved (again to stop at once)")

    def __exit__(self, *_: object) -> None:
        for number, handler in self.handlers_before.items():
            signal.signal(number, handler)
