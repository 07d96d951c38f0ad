"""The report of a benchmark: a table on the terminal, and a folder with the table, all numbers and plots."""

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from qkv.base.files import atomic_file
from qkv.bench.measure import Measurement
from qkv.bench.plots import Bar, bars, curves
from qkv.bench.systems import System

TABLE, RESULTS, SPEED, LOSS = "table.md", "results.json", "speed.svg", "loss.svg"
LAST = 10  # updates over which the loss at the end is averaged


@dataclass(frozen=True)
class SpeedReport:
    """The results of a speed benchmark."""

    title: str  # the workload, in one line
    unit: str  # of the rates
    headline: str  # the precision in which peers are compared
    facts: dict[str, Any]  # machine, versions, command, date, seed
    cases: list[str]  # names of the cases; one empty name where there is only one case
    found: list[Measurement]
    missing: list[System]
    operations: float = 0.0  # floating-point operations of a token; with `peak`, the report has the utilisation
    peak: float | None = None  # the device's floating-point operations a second

    @property
    def measured(self) -> bool:
        return any(m.rates for m in self.found)

    def best_peer(self, case: str) -> tuple[str, float] | None:
        """Return the fastest peer in the headline's precision, and its median rate."""
        peers = [m for m in self.found if m.system.peer and m.system.precision == self.headline]
        rates = [(m.system.label, spread[0]) for m in peers if (spread := m.spread(case))]
        return max(rates, key=lambda pair: pair[1], default=None)

    def columns(self) -> dict[str, list[str]]:
        """Return the table: heading -> a cell for each case of each system."""
        lines = [(case, m) for case in self.cases for m in self.found]
        columns = {
            "": [case for case, _ in lines],
            "system": [m.system.label for _, m in lines],
            self.unit: [_rate(m, case) for case, m in lines],
            "x best peer": [self._ratio(m, case) for case, m in lines],
            "of the peak": [self._share(m, case) for case, m in lines],
            "peak memory": [f"{m.memory[case] / 2**30:.2f} GiB" if case in m.memory else "" for case, m in lines],
            "loss at the end": [f"{statistics.mean(m.losses[-LAST:]):.3f}" if m.losses else "" for _, m in lines],
        }
        return {heading: cells for heading, cells in columns.items() if any(cells)}

    def _ratio(self, m: Measurement, case: str) -> str:
        spread, best = m.spread(case), self.best_peer(case)
        return f"{spread[0] / best[1]:.2f} x" if spread and best else ""

    def _share(self, m: Measurement, case: str) -> str:
        spread = m.spread(case)
        if spread is None or self.peak is None or not self.operations or m.system.precision != "bf16":
            return ""
        return f"{spread[0] * self.operations / self.peak:.1%}"

    def notes(self) -> list[str]:
        """Return the notes below the table."""
        notes = [f"{self.title}. Median of {self.facts['rounds']} rounds, lowest and highest in brackets."]
        best = [found for case in self.cases if (found := self.best_peer(case))]
        if best:
            notes.append(f"1 x is the fastest peer in {self.headline}: {' or '.join(dict.fromkeys(name for name, _ in best))}.")
        notes += [f"{m.system.label}: {m.error}" for m in self.found if m.error]
        notes += [f"{name}: not installed: {remedy}" for name, remedy in dict.fromkeys((s.name, s.remedy) for s in self.missing)]
        return notes

    def table(self) -> Table:
        return as_table(self.columns(), len(self.found) if len(self.cases) > 1 else 0)

    def markdown(self) -> str:
        return as_markdown(self.columns(), self.facts, self.notes())

    def write(self, folder: Path) -> None:
        with atomic_file(folder / TABLE) as path:
            path.write_text(self.markdown(), encoding="utf-8")
        with atomic_file(folder / RESULTS) as path:
            path.write_text(json.dumps(self.figures(), indent=1), encoding="utf-8")
        with atomic_file(folder / SPEED) as path:
            bars(self.title, {f"{case}: {self.unit}".lstrip(": "): self._bars(case) for case in self.cases}, path)
        losses = {m.system.label: m.losses for m in self.found if m.losses}
        if losses:
            with atomic_file(folder / LOSS) as path:
                curves(losses, path)

    def _bars(self, case: str) -> list[Bar]:
        return [(m.system.label, spread, m.system.peer) for m in self.found if (spread := m.spread(case))]

    def figures(self) -> dict[str, Any]:
        """Return all numbers, for other programs."""
        systems = []
        for m in self.found:
            figures = {name: getattr(m, name) for name in ("version", "rates", "memory", "losses", "error")}
            systems.append({**asdict(m.system), **figures})
        missing = [{"name": s.name, "remedy": s.remedy} for s in self.missing]
        return {"title": self.title, "unit": self.unit, **self.facts, "systems": systems, "not_installed": missing}


def as_table(columns: dict[str, list[str]], together: int) -> Table:
    """Return a table for the terminal; `together` consecutive rows share a case, which is named once."""
    table = Table(*columns)
    for number, (first, *others) in enumerate(zip(*columns.values(), strict=True)):
        again = together and number % together > 0
        table.add_row("" if again else first, *others, end_section=bool(together) and (number + 1) % together == 0)
    return table


def as_markdown(columns: dict[str, list[str]], facts: dict[str, Any], notes: list[str]) -> str:
    """Return the table in Markdown, with the command, machine and date above it."""
    where = f"{facts['machine']}, torch {facts['torch']}, {facts['date']}, seed {facts['seed']}."
    head = ["```", facts["command"], "```", "", where, *notes, ""]
    rows = [list(columns), ["---"] * len(columns), *zip(*columns.values(), strict=True)]
    return "\n".join([*head, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _rate(m: Measurement, case: str) -> str:
    spread = m.spread(case)
    if spread is None:
        return "failed"
    digits = 1 if spread[0] < 100 else 0
    return "{:,.{d}f} ({:,.{d}f} to {:,.{d}f})".format(*spread, d=digits)
