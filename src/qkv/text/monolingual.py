"""Monolingual text: files with one text per line, or standard input, read several times in the same order."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

from qkv.base.errors import DataError
from qkv.text.corpus import ONE_FILE, OTHER_SUFFIXES
from qkv.text.files import find_files, read_lines, uncompressed_suffix
from qkv.text.pair import UNDECODABLE

STANDARD_INPUT = "-"


class TextLine(NamedTuple):
    """A line of a file; one that is not UTF-8 has a `problem` and no text."""

    text: str
    number: int  # in its file, from 1
    file: str
    problem: str = ""


class MonolingualText:
    """The lines of some files, patterns or standard input ("-"), with their number and a digest of all of them."""

    def __init__(self, names: Sequence[str]):
        self.copies = ExitStack()  # standard input can be read once, so that it is copied to a file
        self.files = list(self._find(names))  # each with its name in reports
        found = blake2b(digest_size=16)
        self.lines = 0
        for line in self:
            found.update(b"\xff\n" if line.problem else line.text.encode() + b"\n")
            self.lines += 1
        self.digest = found.hexdigest()
        if not self.lines:
            raise DataError(f"{', '.join(map(str, names))[:200]}: no text in it; one text per line is wanted")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.copies.close()

    def _find(self, names: Sequence[str]) -> Iterator[tuple[Path, str]]:
        """Yield each file with its name in reports; refuse files that hold pairs."""
        for name in names:
            if name == STANDARD_INPUT:
                copy = self.copies.enter_context(tempfile.NamedTemporaryFile(prefix="qkv-"))  # noqa: SIM115
                with os.fdopen(os.dup(sys.stdin.fileno()), "rb") as stream:
                    shutil.copyfileobj(stream, copy)
                copy.flush()
                yield Path(copy.name), "standard input"
                continue
            for file in find_files(name):
                suffix = uncompressed_suffix(file).removeprefix(".")
                if OTHER_SUFFIXES.get(suffix, suffix) in (*ONE_FILE, "json"):
                    raise DataError(
                        f"{file}: by its name a file of pairs; give plain text with one text per line, "
                        f"such as one side of it: cut -f1 {file.name} | qkv ... -"
                    )
                yield file, str(file)

    def __iter__(self) -> Iterator[TextLine]:
        for file, name in self.files:
            for number, line in enumerate(read_lines(file), 1):
                yield TextLine("", number, name, UNDECODABLE) if line is None else TextLine(line.rstrip("\r"), number, name)

    def chunks(self, size: int, first: int) -> Iterator[list[TextLine]]:
        """Yield the lines from number `first` on (from 0), `size` at a time."""
        lines = islice(self, first, None)
        while chunk := list(islice(lines, size)):
            yield chunk
