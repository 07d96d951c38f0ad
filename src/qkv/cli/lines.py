"""Reading lines of text that a command gets, and printing warnings as lines."""

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qkv.base.errors import DataError, QkvWarning
from qkv.text.files import find_files, read_lines


def input_lines(file: Path | None) -> Iterator[str]:
    """Yield the lines of a file, compressed or not, or of standard input where the file is None or "-"."""
    named = file is not None and str(file) != "-"
    for number, line in enumerate(read_lines(find_files(str(file))[0]) if named else _standard_input(), 1):
        if line is None:
            raise DataError(f"line {number} is not UTF-8 text; convert the input, for example with iconv")
        yield line.rstrip("\r")


@contextlib.contextmanager
def printed_warnings() -> Iterator[None]:
    """Print each of qkv's own warnings inside as one line on standard error."""
    with warnings.catch_warnings():
        show_others = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, QkvWarning):
                print(f"qkv: {message}", file=sys.stderr)
            else:
                show_others(message, category, *rest, **more)

        warnings.simplefilter("always", QkvWarning)
        warnings.showwarning = show
        yield


def _standard_input() -> Iterator[str | None]:
    # A stream of our own: a thread that blocks in sys.stdin holds its lock, and Python would wait for that lock at exit.
    with os.fdopen(os.dup(sys.stdin.fileno()), "rb") as stream:
        for line in stream:
            try:
                yield line.decode().rstrip("\n")
            except UnicodeDecodeError:
                yield None
