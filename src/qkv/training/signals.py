"""Ctrl-C and SIGTERM: the update under way is finished and everything saved; a second one leaves at once."""

import signal
from types import FrameType
from typing import Any

from qkv.training.progress import Progress


class Signals:
    """Listens while it is entered; `number` is the signal that came, if one did."""

    def __init__(self, progress: Progress):
        self.progress = progress
        self.number: int | None = None
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.before[number] = signal.signal(number, self.heard)

    def heard(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        self.progress.warn("stopping after this step; everything will be saved (again to stop at once)")

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
