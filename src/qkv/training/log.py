"""The log of a run: `metrics.jsonl`, one JSON object per line, "step" first; and the same numbers for trackers."""

import errno
import io
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from qkv.base.files import atomic_file, write_error
from qkv.training.tracked_runs import Status
from qkv.training.trackers import StoppedByTrackerError, Tracker

METRICS = "metrics.jsonl"
EVENTS = "tensorboard"
NO_TENSORBOARD = (
    f"no curves for TensorBoard: its package is not installed (pip install 'qkv[tensorboard]'); {METRICS} has the same numbers"
)


class Log:
    """The open log of a run folder, held by one process; TensorBoard is among the trackers where its package is installed."""

    def __init__(self, folder: Path, trackers: Sequence[Tracker] = ()) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(folder, error) from error
        self.path = folder / METRICS
        self.trackers: list[Tracker] = list(trackers)
        self.has_tensorboard = True
        try:
            self.trackers.append(EventFile(folder / EVENTS))
        except ImportError:
            self.has_tensorboard = False
        # A killed process may have left half a line; without the cut, the next line would be joined to it.
        if self.path.exists():
            data = self.path.read_bytes()
            complete = data.rfind(b"\n") + 1
            if complete < len(data):
                with self.path.open("r+b") as file:
                    file.truncate(complete)

    def write(self, step: int, **values: Any) -> None:
        """Add one line; a number that is not finite becomes null, because JSON has no other way to write it."""
        plain = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()}
        append(self.path, json.dumps({"step": step} | plain, ensure_ascii=False).encode() + b"\n")
        for tracker in self.trackers:
            tracker.write(step, values)

    def rewind(self, step: int) -> None:
        """Remove everything after a step, because training continues from there."""
        lines = read_metrics(self.path.parent)
        kept = [line for line in lines if line["step"] <= step]
        if len(kept) < len(lines):
            with atomic_file(self.path) as aside:
                aside.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept), encoding="utf-8")
        for tracker in self.trackers:
            tracker.rewind(step, kept)

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the trackers; an error says how the training ended."""
        stopped = kind is not None and issubclass(kind, KeyboardInterrupt | SystemExit | StoppedByTrackerError)
        status: Status = "finished" if kind is None else "stopped" if stopped else "failed"
        for tracker in self.trackers:
            tracker.end(status)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a run's log; a kill may have left a part of a line."""
    path = folder / METRICS
    found = []
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if isinstance(values, dict) and isinstance(values.get("step"), int):
            found.append(values)
    return found


class EventFile:
    """A new TensorBoard event file; each event is on the disk, for readers to see, when its call returns.

    TensorBoard's `EventFileWriter` writes in a thread, which a kill would cut off and whose errors come late; so only its
    record format and its messages are used here.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.event, self.session, self.summary, self.writer = Event, SessionLog, Summary, RecordWriter
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise write_error(folder, error) from error
        # Readers take the files in the order of their names, so the name starts with the time.
        self.path = folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"
        self._write(0, file_version="brain.Event:2")

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Write one value for each tag; what is not a number is left out."""
        numbers = {name: float(v) for name, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        if numbers:
            scalars = [self.summary.Value(tag=tag, simple_value=value) for tag, value in numbers.items()]
            self._write(step, summary=self.summary(value=scalars))

    def rewind(self, step: int, lines: list[dict[str, Any]]) -> None:
        """Tell readers to discard events of earlier files after this step."""
        self._write(step + 1, session_log=self.session(status=self.session.START))

    def end(self, status: Status) -> None:
        """Do nothing: each event is on the disk already."""

    def _write(self, step: int, **content: Any) -> None:
        record = io.BytesIO()
        self.writer(record).write(self.event(wall_time=time.time(), step=step, **content).SerializeToString())
        append(self.path, record.getvalue())


def append(path: Path, data: bytes) -> None:
    """Append bytes to a file in one unbuffered write."""
    try:
        with path.open("ab", buffering=0) as file:
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise write_error(path, error) from error
