"""The log of a run: `metrics.jsonl`, one JSON object per line, "step" first; and the same numbers for TensorBoard."""

import json
import math
from pathlib import Path
from typing import Any

from qkv.base.files import atomic_file, write_error
from qkv.training.events import Events, append

METRICS = "metrics.jsonl"
EVENTS = "tensorboard"


class Log:
    """The open log of a run folder, held by one process."""

    def __init__(self, folder: Path) -> None:
        try:
            (folder / EVENTS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(folder / EVENTS, error) from error
        self.path = folder / METRICS
        self.events = Events(folder / EVENTS)
        self._mend()

    def write(self, step: int, **values: Any) -> None:
        """Add one line; a number that is not finite becomes null, as JSON has no other way to say it."""
        line = json.dumps({"step": step} | {name: _plain(value) for name, value in values.items()}, ensure_ascii=False)
        append(self.path, line.encode() + b"\n")
        numbers = {name: float(value) for name, value in values.items() if _is_number(value)}
        if numbers:
            self.events.scalars(step, numbers)

    def rewind(self, step: int) -> None:
        """Forget everything past a step, because training goes on from there."""
        lines = read_metrics(self.path.parent)
        kept = [line for line in lines if line["step"] <= step]
        if len(kept) < len(lines):
            with atomic_file(self.path) as aside:
                aside.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept), encoding="utf-8")
        self.events.restart(step + 1)

    def _mend(self) -> None:
        """Cut off the half of a line that a killed process may have left, or the next line would be joined to it."""
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with self.path.open("r+b") as file:
                file.truncate(whole)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log that are whole."""
    path = folder / METRICS
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    parsed = (_parse(line) for line in lines)
    return [line for line in parsed if line is not None]


def _parse(line: bytes) -> dict[str, Any] | None:
    """One line, or None where a kill left only a part of it."""
    try:
        values = json.loads(line)
    except ValueError:
        return None
    return values if isinstance(values, dict) and isinstance(values.get("step"), int) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
