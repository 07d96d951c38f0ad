"""Lines of text that a command is given, and lines that it says on the side."""

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qkv.base.errors import DataError, QkvWarning
from qkv.text.files import find_files, read_lines


def lines_of(file: Path | None) -> Iterator[str]:
    """Lines of a file, compressed or not, or of standard input, which is also called "-"."""
    named = file is not None and str(file) != "-"
    for number, line in enumerate(read_lines(find_files(str(file))[0]) if named else _standard_input(), 1):
        if line is None:
            raise DataError(f"line {number} is not UTF-8 text; convert the input, for example with iconv")
        yield line.rstrip("\r")


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """What qkv warns of inside becomes a line each for people."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, QkvWarning):
                print(f"qkv: {message}", file=sys.stderr)
            else:
                usual(message, category, *rest, **more)

        warnings.simplefilter("always", QkvWarning)
        warnings.showwarning = show
        yield


def _standard_input() -> Iterator[str | None]:
    # A stream of our own: at the end of the program Python would wait for a lock that a reading thread holds on its own.
    with os.fdopen(os.dup(sys.stdin.fileno()), "rb") as stream:
        for line in stream:
            try:
                yield line.decode().rstrip("\n")
            except UnicodeDecodeError:
                yield None
