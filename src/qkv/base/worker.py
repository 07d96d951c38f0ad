"""One worker of a pool: it is set up once, then called for each task. Everything that goes in and out is JSON.

The work is named as "module:name": a class or function that takes the set-up as keywords and returns a function, which takes a
task as keywords and returns a plain value. `python -m qkv.base.worker` reads the work and then tasks as lines of standard
input, and answers each by a line. It ends when its input does, also in the middle of a task: the command that started it is gone.
"""

import importlib
import json
import os
import queue
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from qkv.base import errors

Work = Callable[..., Any]


def set_up(given: str) -> Work:
    """Return the work that a line of JSON names, ready for tasks."""
    named = json.loads(given)
    module, _, name = named["work"].partition(":")
    return getattr(importlib.import_module(module), name)(**named["setup"])


def answer(act: Callable[[], Any]) -> str:
    """Call a function; return its result, its error and its warnings as a line of JSON."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", errors.QkvWarning)
        try:
            found: dict[str, Any] = {"result": act()}
        except errors.QkvError as error:
            found = {"error": str(error), "kind": type(error).__name__}
        except Exception:
            found = {"bug": traceback.format_exc()}
    found["warnings"] = [str(one.message) for one in caught if issubclass(one.category, errors.QkvWarning)]
    return json.dumps(found)


def main() -> None:
    """Answer the lines of standard input on what was standard output; prints of libraries go to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a command; the first one ends the others
    tasks: queue.Queue[str] = queue.Queue()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def read() -> None:
        for line in sys.stdin:
            tasks.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    work: Work | None = None

    def begin() -> None:
        nonlocal work
        work = set_up(tasks.get())

    print(answer(begin), file=answers, flush=True)
    while True:
        print(answer(lambda: work and work(**json.loads(tasks.get()))), file=answers, flush=True)


if __name__ == "__main__":
    main()
