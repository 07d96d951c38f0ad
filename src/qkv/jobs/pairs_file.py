"""A file of synthetic pairs that grows chunk by chunk and survives kill -9: the same command goes on behind the last whole chunk.

While it grows, pairs.tsv is called pairs.tsv.unfinished. pairs.tsv.json beside it says what it is made of and how far it is.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from qkv.base.config import Config, describe_differences, differences, parse
from qkv.base.errors import CheckpointError, ConfigError, QkvError
from qkv.base.files import atomic_file, write_error
from qkv.base.locks import lock_file
from qkv.decoding.config import DecodingConfig
from qkv.text.check import CheckConfig, CheckReport

HEADER = b"source\ttarget\tscore\n"
OTHER = {"model": "other weights", "text": "other text", "lines": "other text"}  # instead of two digests


class SyntheticPairsConfig(Config):
    """Everything that decides the pairs."""

    model: str  # digest of the weights
    engine: str
    precision: str | None
    text: str  # digest
    lines: int  # of the text
    reverse: bool  # whether the text is the target, as in back-translation
    tag: str  # begins each source
    min_score: float | None
    decoding: DecodingConfig
    check: CheckConfig


class PairsFile:
    """A TSV file of pairs and its manifest."""

    def __init__(self, path: Path, made_of: SyntheticPairsConfig):
        self.path, self.made_of = path, made_of
        self.partial, self.manifest = (path.with_name(f"{path.name}.{suffix}") for suffix in ("unfinished", "json"))
        self.lines, self.size, self.report = 0, 0, CheckReport()  # lines of the text that are done, bytes that are whole
        self.read()

    @property
    def finished(self) -> bool:
        """Whether all pairs are in the file."""
        return self.lines == self.made_of.lines and self.path.exists()

    def read(self) -> None:
        """Take over what an earlier process made; refuse files that another command or somebody else made."""
        if not self.manifest.exists():
            for path in (self.path, self.partial):
                if path.exists() and (path == self.path or path.stat().st_size):
                    raise ConfigError(f"{path} exists, and no {self.manifest.name} says that it is ours; choose another --out")
            return
        try:
            found = json.loads(self.manifest.read_text(encoding="utf-8"))
            before, lines, size = parse(SyntheticPairsConfig, found["made of"], str(self.manifest)), found["done"], found["bytes"]
            report = CheckReport.from_dict(found["report"])
        except (OSError, ValueError, KeyError, TypeError, QkvError) as error:
            raise CheckpointError(f"{self.manifest}: not readable ({error}); choose another --out") from None
        found_changes = differences(before, self.made_of)
        changes = list(dict.fromkeys(OTHER.get(change.partition(":")[0], change) for change in found_changes))
        if changes and lines:
            raise ConfigError(
                f"{self.path} is made by another command: {describe_differences(changes)}. "
                "Run that command again, or choose another --out"
            )
        if not changes:
            self.lines, self.size, self.report = lines, size, report
        if self.path.exists() and not self.finished:
            raise ConfigError(f"{self.path} exists already, and its pairs are not finished; move it, or choose another --out")

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Lock and open the unfinished file behind its last whole chunk; without any, nothing is left of it after an error."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.partial.open("ab")
        except OSError as error:
            raise write_error(self.path, error) from None
        with file:
            try:
                lock_file(file, wait=False)
            except OSError:
                raise ConfigError(f"{self.path} is being written by another process; wait, or choose another --out") from None
            self.read()
            size = os.fstat(file.fileno()).st_size
            if self.lines and size < self.size and not self.finished:
                raise CheckpointError(f"{self.partial}: shorter than {self.manifest.name} says; delete both to start anew")
            try:
                if self.lines:
                    file.truncate(min(size, self.size))
                else:
                    self.size = 0
                    self._save()  # before the first byte, so that the file is known as ours
                    file.truncate(0)
                    self.add(file, HEADER, 0)
                yield file
            except QkvError:
                if not self.lines:
                    self.manifest.unlink(missing_ok=True)
                    self.partial.unlink()
                raise

    def add(self, file: BinaryIO, content: bytes, lines: int) -> None:
        """Append the pairs of the next lines, so that they are either whole or, after a kill, written again."""
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise write_error(self.path, error) from None
        self.lines, self.size = self.lines + lines, self.size + len(content)
        self._save()

    def _save(self) -> None:
        values = {"made of": self.made_of.model_dump(mode="json"), "done": self.lines, "bytes": self.size}
        with atomic_file(self.manifest) as path:
            path.write_text(json.dumps({**values, "report": self.report.as_dict()}, indent=1), encoding="utf-8")

    def finish(self) -> None:
        """Give the file its name, unless another process was faster."""
        try:
            if self.finished:
                self.partial.unlink()
            else:
                self.partial.rename(self.path)
        except OSError as error:
            raise write_error(self.path, error) from None
