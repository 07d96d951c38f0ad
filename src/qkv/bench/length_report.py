"""The report of `qkv bench length`: a table, all numbers, and a plot of the curves."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from qkv.base.files import atomic_file
from qkv.bench.length import OUT_OF_MEMORY, PASSES, LengthCurve, exponent, long_half
from qkv.bench.plots import Line, growth
from qkv.bench.report import RESULTS, TABLE, as_markdown, as_table
from qkv.bench.workers.length import attention_settings
from qkv.bench.workload import DROPOUT, EncoderSize

PLOT = "length.svg"
MEASURES = {"ms": 1e3, "MiB": 2.0**-20}  # unit -> units in a second or a byte
MEASURED = (
    f"Forward pass: embeddings and layers, without gradients. Training step: the same with dropout {DROPOUT}, the mean "
    "square of the output as the loss, and its gradient for all weights; no optimiser. Memory: the peak of a pass beyond the "
    "weights, including their gradients"
)
MEMORY = {
    "cpu": ", measured as the memory of the process.",
    "cuda": ", measured as torch's tensors. Passes of up to a second are timed as CUDA graphs, "
    "without the host's work; exponents "
    "are fitted to times that were taken in the same way as the longest text's.",
}
WHY_ROWS = (
    "At every length there {rows}: with a fixed number of tokens instead, an RNN, which takes each step for all rows at once, "
    "would seem to grow faster than its steps. Short rows leave a device partly idle, so curves are flat at their beginnings."
)
HOW_FITTED = "Exponents: least-squares slope of the logarithms, over the longer half of each curve's lengths{which}."


@dataclass(frozen=True)
class LengthReport:
    """The results of a benchmark of lengths."""

    size: EncoderSize
    rows: int
    facts: dict[str, Any]  # machine, device, precision, versions, command, date, seed, rounds
    lengths: list[int]
    curves: list[LengthCurve]

    @property
    def title(self) -> str:
        s, rows = self.size, "one row" if self.rows == 1 else f"{self.rows} rows"
        shape = f"width {s.width}, {s.layers} layers, {s.heads} heads, feed-forward width {s.feedforward:,}"
        return f"Encoders against length: {shape}; {rows}, {self.facts['precision']}"

    @property
    def measured(self) -> bool:
        return any(curve.seconds for curve in self.curves)

    def cases(self) -> list[tuple[str, str, list[LengthCurve]]]:
        """Return each kind of pass and each unit, with the curves."""
        return [(kind, unit, [c for c in self.curves if c.kind == kind]) for unit in MEASURES for kind in PASSES]

    def columns(self) -> dict[str, list[str]]:
        """Return the table: heading -> a cell for each system in each case."""
        lines = [(f"{kind}, {unit}", unit, curve) for kind, unit, curves in self.cases() for curve in curves]
        columns = {"": [case for case, _, _ in lines], "system": [curve.system for _, _, curve in lines]}
        for length in self.lengths:
            columns[f"{length:,}"] = [_cell(curve, unit, length) for _, unit, curve in lines]
        return {**columns, "exponent": [_slope(curve, unit) for _, unit, curve in lines]}

    def notes(self) -> list[str]:
        """Return the notes below the table."""
        rounds = self.facts["rounds"]
        notes = [f"{self.title}. " + ("One round." if rounds == 1 else f"Median of {rounds} rounds.")]
        notes.append(MEASURED + MEMORY[self.facts["device"]])
        notes.append(WHY_ROWS.format(rows="is one row" if self.rows == 1 else f"are {self.rows} rows"))
        half = long_half(self.lengths)
        notes.append(HOW_FITTED.format(which=f", {half[0]:,} to {half[-1]:,} if all were measured" if len(half) > 1 else ""))
        notes.append(f"Attention: {attention_settings()}.")
        weights = {c.system: c.weights[max(c.weights)] / 1e6 for c in self.curves if c.weights}
        if weights:
            listed = ", ".join(f"{system} {millions:.1f}" for system, millions in weights.items())
            notes.append(f"Millions of parameters in the layers, at the longest text: {listed}.")
        for slow in ("full", "full, open"):
            ratios = [ratio for kind in PASSES if (ratio := self._ratio(slow, kind))]
            if ratios:
                notes.append(f"{slow}, beside Linformer: {'; '.join(ratios)}.")
        failed = [(c, *c.ended) for c in self.curves if c.ended and c.ended[1] != OUT_OF_MEMORY]
        return notes + [f"{c.system}, {c.kind}, {length:,}: {why}" for c, length, why in failed]

    def _ratio(self, slow: str, kind: str) -> str:
        """Compare time and memory with Linformer's, at the longest length that both reached."""
        curves = {curve.system: curve for curve in self.curves if curve.kind == kind and curve.seconds}
        if slow not in curves or "Linformer" not in curves:
            return ""
        slower, faster = curves[slow], curves["Linformer"]
        last = max(set(slower.seconds) & set(faster.seconds))
        time, memory = slower.times[last] / faster.times[last], slower.memory[last] / max(1, faster.memory[last])
        return f"{kind} at {last:,}: {time:.2f} x the time, {memory:.2f} x the memory"

    def table(self) -> Table:
        return as_table(self.columns(), len(self.curves) // len(PASSES))

    def markdown(self) -> str:
        return as_markdown(self.columns(), self.facts, self.notes())

    def write(self, folder: Path) -> None:
        with atomic_file(folder / TABLE) as path:
            path.write_text(self.markdown(), encoding="utf-8")
        with atomic_file(folder / RESULTS) as path:
            path.write_text(json.dumps(self.figures(), indent=1), encoding="utf-8")
        with atomic_file(folder / PLOT) as path:
            facts = self.facts
            where = f"{self.title}. {facts['machine']}, torch {facts['torch']}, {facts['date']}, seed {facts['seed']}"
            panels: dict[str, list[Line]] = {}
            for kind, unit, curves in self.cases():
                panels[f"{kind}, {unit}"] = [(c.system, v, _slope(c, unit)) for c in curves if (v := values_of(c, unit))]
            growth(where, panels, path)

    def figures(self) -> dict[str, Any]:
        """Return all numbers, for other programs."""
        curves = [{**asdict(curve), "exponents": {unit: _exponent(curve, unit) for unit in MEASURES}} for curve in self.curves]
        return {"title": self.title, **self.facts, "size": asdict(self.size), "rows": self.rows, "curves": curves}


def values_of(curve: LengthCurve, unit: str) -> dict[int, float]:
    """Return times or memory in a unit, by length."""
    found: dict[int, float] = dict(curve.times if unit == "ms" else curve.memory)
    return {length: value * MEASURES[unit] for length, value in sorted(found.items())}


def _exponent(curve: LengthCurve, unit: str) -> float | None:
    """Return the exponent of times or memory; times of CUDA graphs and times with the host's work are not mixed."""
    values = values_of(curve, unit)
    return exponent({length: values[length] for length in curve.comparable} if unit == "ms" and values else values)


def _cell(curve: LengthCurve, unit: str, length: int) -> str:
    value = values_of(curve, unit).get(length)
    if value is not None:
        return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
    if curve.ended and curve.ended[0] == length:
        return OUT_OF_MEMORY if curve.ended[1] == OUT_OF_MEMORY else "failed"
    return ""


def _slope(curve: LengthCurve, unit: str) -> str:
    found = _exponent(curve, unit)
    return "" if found is None else f"{found:.2f}"
