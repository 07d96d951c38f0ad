"""Trackers show the figures of a run elsewhere than in metrics.jsonl: TensorBoard (log.py), MLflow, Weights & Biases.

The last two are asked from a thread: training waits for neither, and one that fails is left with a warning. The run's folder
remembers the tracked run and the last line that was sent, so that a resumed run goes on in it, sends what it lacks, and sends no
line twice.
"""

import contextlib
import json
import queue
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Literal, Protocol

from qkv.base.errors import ConfigError, TrainingError
from qkv.base.files import atomic_file
from qkv.training.tracked_runs import RESULT, MlflowRun, Status, TrackedRun, Tracking, WandbRun

TrackerName = Literal["mlflow", "wandb"]
TRACKED_RUNS: dict[TrackerName, Callable[[Tracking], TrackedRun]] = {"mlflow": MlflowRun, "wandb": WandbRun}
CHUNK = 100  # lines that are sent at once, at most
LONGEST_END = 60.0  # seconds that the end of a run waits for a tracker


class StoppedByTrackerError(TrainingError):
    """A tracker ends the training, whose checkpoints stay."""


class Tracker(Protocol):
    """Shows the figures of a run."""

    def rewind(self, step: int, lines: list[dict[str, Any]]) -> None:
        """Go on after a step; `lines` are those of metrics.jsonl up to it."""
        ...

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Show a new line of metrics.jsonl."""
        ...

    def end(self, status: Status) -> None:
        """Take note that the training ends in this process."""
        ...


def check_trackers(names: tuple[TrackerName, ...]) -> None:
    """Refuse trackers whose packages are not installed."""
    for name in names:
        if find_spec(name) is None:
            raise ConfigError(
                f"training.trackers has {name}, whose package is not installed; pip install 'qkv[{name}]', or leave it out"
            )


class _Line:
    """A line of metrics.jsonl, with its place: the step, and its number among the lines of the step."""

    def __init__(self, place: tuple[int, int], values: dict[str, Any]):
        self.place, self.values = place, values


class Follower:
    """Sends the lines of metrics.jsonl to a tracked run, from a thread of its own."""

    def __init__(self, name: TrackerName, given: Tracking, warn: Callable[[str], None]):
        self.name, self.given, self.warn = name, given, warn
        self.file = given.run / f"tracker-{name}.json"
        self.memory: dict[str, Any] = {}
        self.last = (-1, 0)  # place of the last line written
        self.waiting: queue.SimpleQueue[_Line | Status] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._follow, name=f"tracker {name}", daemon=True)

    def rewind(self, step: int, lines: list[dict[str, Any]]) -> None:
        self.last = (-1, 0)
        for line in lines:
            self.write(line["step"], line)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        self.last = (step, self.last[1] + 1 if step == self.last[0] else 1)
        self.waiting.put(_Line(self.last, {**values, "step": step}))
        if self.thread.ident is None:
            self.thread.start()

    def end(self, status: Status) -> None:
        if self.thread.ident is None:
            return
        self.waiting.put(status)
        self.thread.join(LONGEST_END)
        if self.thread.is_alive():
            self.warn(f"{self.name} has not taken all figures after {LONGEST_END:.0f} s, and is left; metrics.jsonl has them")

    def _follow(self) -> None:
        try:
            if self.file.exists():
                self.memory = json.loads(self.file.read_text())
            tracked = TRACKED_RUNS[self.name](self.given._replace(memory=self.memory))
            self._remember(**tracked.memory)
            status = None
            while status is None:
                lines, status = self._take()
                self._send(tracked, [line for line in lines if line.place > self._sent()])
            finished = status == "finished" and (self.given.run / RESULT).exists()
            tracked.end(status, json.loads((self.given.run / RESULT).read_text()) if finished else {})
        except Exception as error:  # whatever a library raises, or its server: it must not end the training
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            self.warn(
                f"{self.name} does not take the figures ({reason}); training goes on without it: metrics.jsonl has them, and "
                "what is missing is sent when the run is resumed"
            )

    def _take(self) -> tuple[list[_Line], Status | None]:
        """Wait for lines. -> those that wait, and the status if the training ends after them."""
        lines: list[_Line] = []
        while not lines or (len(lines) < CHUNK and not self.waiting.empty()):
            found = self.waiting.get()
            if not isinstance(found, _Line):
                return lines, found
            lines.append(found)
        return lines, None

    def _sent(self) -> tuple[int, int]:
        return tuple(self.memory.get("sent", (-1, 0)))

    def _send(self, tracked: TrackedRun, lines: list[_Line]) -> None:
        """Send lines; they count as sent before, so that a process that is killed meanwhile sends none of them twice."""
        if not lines:
            return
        before = self._sent()
        self._remember(sent=lines[-1].place)
        try:
            tracked.send([line.values for line in lines])
        except Exception:
            with contextlib.suppress(Exception):  # a full disk may be why
                self._remember(sent=before)
            raise

    def _remember(self, **values: Any) -> None:
        self.memory |= values
        with atomic_file(self.file) as aside:
            aside.write_text(json.dumps(self.memory))
