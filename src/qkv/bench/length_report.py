"""What `qkv bench length` found: a table, all figures, and a picture of the curves."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from qkv.base.files import atomic_file
from qkv.bench.length import OUT_OF_MEMORY, PASSES, Curve, exponent, long_half
from qkv.bench.pictures import Line, growth
from qkv.bench.report import RESULTS, TABLE, as_markdown, as_table
from qkv.bench.systems.qkv_length import settings
from qkv.bench.work import DROPOUT, EncoderSize

PICTURE = "length.svg"
MEASURES = {"ms": 1e3, "MiB": 2.0**-20}  # unit -> how many of them are a second or a byte
MEASURED = (
    f"Forward pass: embeddings and layers, nothing kept for gradients. Training step: the same with dropout {DROPOUT}, the mean "
    "square of the output as the loss, and its gradient for all weights; no optimiser. Memory: the most that a pass took beyond "
    "the weights, their gradients included"
)
MEMORY = {
    "cpu": ", as the system counts the process's memory.",
    "cuda": ", as torch counts tensors. Passes of up to a second are timed as CUDA graphs, without the host's work; exponents "
    "are of times that were taken as the longest text's.",
}
WHY_ROWS = (
    "At every length there {rows}: were it as many tokens instead, an RNN, which takes a step of all rows at once, would seem to "
    "grow faster than its steps do. What a short row leaves idle of a device makes curves flat at their beginnings."
)
HOW_FITTED = "Exponents: slope of the logarithms by least squares, over the longer half of each curve's lengths{which}."


@dataclass(frozen=True)
class LengthReport:
    """A whole benchmark of lengths."""

    size: EncoderSize
    rows: int
    facts: dict[str, Any]  # machine, device, precision, versions, command, date, seed, rounds
    lengths: list[int]
    curves: list[Curve]

    @property
    def title(self) -> str:
        s, rows = self.size, "one row" if self.rows == 1 else f"{self.rows} rows"
        shape = f"width {s.width}, {s.layers} layers, {s.heads} heads with an inner width of {s.feedforward:,}"
        return f"Encoders against length: {shape}; {rows}, {self.facts['precision']}"

    @property
    def measured(self) -> bool:
        return any(curve.seconds for curve in self.curves)

    def cases(self) -> list[tuple[str, str, list[Curve]]]:
        """Each kind of pass, measured in each unit, and its curves."""
        return [(kind, unit, [c for c in self.curves if c.kind == kind]) for unit in MEASURES for kind in PASSES]

    def columns(self) -> dict[str, list[str]]:
        """The table: heading -> a cell for each system in each case."""
        lines = [(f"{kind}, {unit}", unit, curve) for kind, unit, curves in self.cases() for curve in curves]
        columns = {"": [case for case, _, _ in lines], "system": [curve.system for _, _, curve in lines]}
        for length in self.lengths:
            columns[f"{length:,}"] = [_cell(curve, unit, length) for _, unit, curve in lines]
        return {**columns, "exponent": [_slope(curve, unit) for _, unit, curve in lines]}

    def notes(self) -> list[str]:
        """What must be known to read the table."""
        rounds = self.facts["rounds"]
        notes = [f"{self.title}. " + ("One round." if rounds == 1 else f"Median of {rounds} rounds.")]
        notes.append(MEASURED + MEMORY[self.facts["device"]])
        notes.append(WHY_ROWS.format(rows="is one row" if self.rows == 1 else f"are {self.rows} rows"))
        notes.append(HOW_FITTED.format(which=self._fitted()))
        notes += [f"Attention: {settings()}.", self._weights(), *self._ratios()]
        failed = [(c, *c.ended) for c in self.curves if c.ended and c.ended[1] != OUT_OF_MEMORY]
        return [note for note in notes if note] + [f"{c.system}, {c.kind}, {length:,}: {why}" for c, length, why in failed]

    def _fitted(self) -> str:
        """Which lengths those are, of curves that go as far as any."""
        half = long_half(self.lengths)
        return f", {half[0]:,} to {half[-1]:,} where it is whole" if len(half) > 1 else ""

    def _weights(self) -> str:
        found = {c.system: c.weights[max(c.weights)] / 1e6 for c in self.curves if c.weights}
        told = ", ".join(f"{system} {millions:.1f}" for system, millions in found.items())
        return f"Millions of weights in the layers, at the longest text: {told}." if found else ""

    def _ratios(self) -> list[str]:
        """Full attention, fused and open, beside Linformer."""
        found = {slow: [told for kind in PASSES if (told := self._ratio(slow, kind))] for slow in ("full", "full, open")}
        return [f"{slow}, beside Linformer: {'; '.join(told)}." for slow, told in found.items() if told]

    def _ratio(self, slow: str, kind: str) -> str:
        """What it takes of time and memory, at the longest length that both reached."""
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
        with atomic_file(folder / PICTURE) as path:
            facts = self.facts
            where = f"{self.title}. {facts['machine']}, torch {facts['torch']}, {facts['date']}, seed {facts['seed']}"
            growth(where, {f"{kind}, {unit}": self._lines(curves, unit) for kind, unit, curves in self.cases()}, path)

    def _lines(self, curves: list[Curve], unit: str) -> list[Line]:
        return [(c.system, values, _slope(c, unit)) for c in curves if (values := values_of(c, unit))]

    def figures(self) -> dict[str, Any]:
        """Everything, for other programs."""
        curves = [{**asdict(curve), "exponents": {unit: _exponent(curve, unit) for unit in MEASURES}} for curve in self.curves]
        return {"title": self.title, **self.facts, "size": asdict(self.size), "rows": self.rows, "curves": curves}


def values_of(curve: Curve, unit: str) -> dict[int, float]:
    """Times or memory in that unit, by length."""
    found: dict[int, float] = dict(curve.times if unit == "ms" else curve.memory)
    return {length: value * MEASURES[unit] for length, value in sorted(found.items())}


def _exponent(curve: Curve, unit: str) -> float | None:
    """Times of passes with the host's work and of others do not lie on one curve."""
    values = values_of(curve, unit)
    return exponent({length: values[length] for length in curve.comparable} if unit == "ms" and values else values)


def _cell(curve: Curve, unit: str, length: int) -> str:
    value = values_of(curve, unit).get(length)
    if value is not None:
        return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
    if curve.ended and curve.ended[0] == length:
        return OUT_OF_MEMORY if curve.ended[1] == OUT_OF_MEMORY else "failed"
    return ""


def _slope(curve: Curve, unit: str) -> str:
    found = _exponent(curve, unit)
    return "" if found is None else f"{found:.2f}"
