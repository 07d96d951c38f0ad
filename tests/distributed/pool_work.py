"""Work for tests of pools; it needs no torch, so that a worker starts at once."""

import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError, QkvWarning


def counting(folder: str, refuse: bool = False) -> Callable[..., Any]:
    """Set up once per worker; each task says who did it, and some kill their worker so many times."""
    if refuse:
        raise ConfigError("no such model")
    warnings.warn("set up", QkvWarning, stacklevel=1)

    def work(number: int, deaths: int = 0, bug: bool = False, seconds: float = 0) -> dict[str, Any]:
        if bug:
            raise ZeroDivisionError("a bug")
        tries = Path(folder) / f"{number}"
        with tries.open("a") as file:
            file.write("x")
        if len(tries.read_text()) <= deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(seconds)
        return {"square": number**2, "process": os.getpid()}

    return work
