"""Progress of a training or a translation on stderr: a bar on a terminal, a line every few seconds elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

LINE_EVERY = 15  # seconds between lines where there is no terminal


class Progress:
    """Prints messages, warnings and the current step; `quiet` in all processes but the first."""

    def __init__(self, quiet: bool = False):
        self.console = Console(stderr=True, highlight=False, quiet=quiet, soft_wrap=True)
        self.live = self.console.is_terminal and not quiet
        self.bar: Bar | None = None
        self.last_line = 0.0

    def say(self, message: RenderableType) -> None:
        """Print a message; brackets in a string are not markup."""
        self.console.print(message, markup=False) if isinstance(message, str) else self.console.print(message)

    def warn(self, message: str) -> None:
        """Print a warning."""
        self.console.print(f"warning: {message}", style="yellow", markup=False)

    def step(self, step: int, steps: int, values: dict[str, Any]) -> None:
        """Show the current step and its figures."""
        mfu = f"{values['mfu']:.1%} of the GPU's peak  " if "mfu" in values else ""
        text = (
            f"loss {values['loss']:.3f}  {values['tokens_per_second']:,.0f} tokens/s  "
            f"{values['padding']:.1%} padding  {mfu}lr {values['learning_rate']:.2e}"
        )
        if self.live:
            if self.bar is None:
                columns = (MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
                self.bar = Bar(*columns, console=self.console, speed_estimate_period=120)
                self.bar.add_task(text, total=steps or None)
                self.bar.start()
            self.bar.update(self.bar.task_ids[0], completed=step, total=steps or None, description=text)
        elif time.monotonic() - self.last_line > LINE_EVERY or step == steps:
            left = f"  {duration(values['seconds'] / step * (steps - step))} left" if steps else ""
            self.say(f"step {step:,}{f'/{steps:,}' if steps else ''}  {text}{left}")
            self.last_line = time.monotonic()

    @contextmanager
    def count(self, unit: str, first: int = 0, log: bool = False) -> Iterator[Callable[..., None]]:
        """Yield a function that shows how many texts or lines are done, of how many if that is known, and the rate.

        `first` were done before. Where there is no terminal, `log` prints a line every few seconds and at the end.
        """
        began = last = time.monotonic()
        columns = (MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        bar = Bar(*columns, console=self.console, transient=True, disable=not self.live, speed_estimate_period=600)
        task = bar.add_task(unit, total=None, completed=first)

        def show(done: int, total: int | None = None) -> None:
            nonlocal last
            now = time.monotonic()
            rate = (done - first) / max(1e-9, now - began)
            bar.update(task, completed=done, total=total, description=f"{rate:,.0f} {unit}/s")
            if log and total and not self.live and (now - last > LINE_EVERY or done == total):
                last = now
                self.say(f"{done:,} of {total:,} {unit}  {rate:,.0f} {unit}/s  {duration((total - done) / rate)} left")

        with bar:
            yield show

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def duration(seconds: float) -> str:
    """Format a time in the unit that a person would use."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
