"""What a person sees while training runs, on stderr: a bar on a terminal, a line now and then elsewhere."""

import time
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

LINE_EVERY = 15  # seconds between lines where there is no terminal


class Progress:
    """Says what happens; `quiet` for all processes but the first."""

    def __init__(self, quiet: bool = False):
        self.console = Console(stderr=True, highlight=False, quiet=quiet, soft_wrap=True)
        self.live = self.console.is_terminal and not quiet
        self.bar: Bar | None = None
        self.last_line = 0.0

    def say(self, what: RenderableType) -> None:
        self.console.print(what, markup=False) if isinstance(what, str) else self.console.print(what)

    def warn(self, what: str) -> None:
        self.console.print(f"warning: {what}", style="yellow", markup=False)

    def resumed(self, step: int, steps: int) -> None:
        self.say(f"going on from step {step:,}" + (f" of {steps:,}" if steps else ""))

    def will_take(self, seconds: float, steps: int) -> None:
        self.say(f"{steps:,} steps on this machine: about {duration(seconds)} to go")

    def step(self, step: int, steps: int, values: dict[str, Any]) -> None:
        """Show where training stands."""
        text = (
            f"loss {values['loss']:.3f}  {values['tokens_per_second']:,.0f} tokens/s  "
            f"{values['padding']:.1%} padding  {_mfu(values)}rate {values['learning_rate']:.2e}"
        )
        if self.live:
            self._move_bar(step, steps, text)
        elif time.monotonic() - self.last_line > LINE_EVERY or step == steps:
            left = values["seconds"] / step * (steps - step) if steps else 0
            self.say(f"step {step:,}/{steps:,}  {text}  {duration(left)} left")
            self.last_line = time.monotonic()

    def _move_bar(self, step: int, steps: int, text: str) -> None:
        if self.bar is None:
            columns = (MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
            self.bar = Bar(*columns, console=self.console, speed_estimate_period=120)
            self.bar.add_task(text, total=steps or None)
            self.bar.start()
        self.bar.update(self.bar.task_ids[0], completed=step, total=steps or None, description=text)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def _mfu(values: dict[str, Any]) -> str:
    return f"{values['mfu']:.1%} of the GPU's peak  " if "mfu" in values else ""


def duration(seconds: float) -> str:
    """A time in words that a person would use."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
