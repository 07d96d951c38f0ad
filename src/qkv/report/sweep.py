"""The report of a sweep: its settings by score, the metric over each key, and the curves of the best."""

import html
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from qkv.report.charts import Line, chart, chart_over_key
from qkv.report.page import REPORT, table, write_page

CURVES = 6  # settings whose curves are drawn; more lines could not be told apart


def write_sweep_report(
    folder: Path,
    *,
    rows: Sequence[Mapping[str, Any]],
    metric: str,
    curves: Mapping[str, list[dict[str, Any]]],
    command: str,
    facts: dict[str, Any],
) -> Path:
    """Write report.html of a sweep.

    rows: settings, the best first, with the keys settings, label, value, deviation, trials, seconds and problem. curves: the
    lines of metrics.jsonl by label. command: trains the best setting again.
    """
    best = ""
    if command:
        found = html.escape(f"{rows[0]['label']}: {metric} {rows[0]['value']:.4g}")
        best = f"<p>{found}</p><p><code>{html.escape(command)}</code></p>"
    keys = list(dict.fromkeys(key for row in rows for key in row["settings"]))
    drawn = "".join(_over_key(key, rows, metric) for key in keys)
    scored = [row["label"] for row in rows if row["value"] is not None]
    points = {
        label: [(line["step"], line[metric]) for line in log if isinstance(line.get(metric), int | float)]
        for label, log in curves.items()
    }
    lines = [Line(label, points[label]) for label in scored if label in points][:CURVES]
    lines = [line for line in lines if line.points]
    columns = {metric: "value", "± over seeds": "deviation", "trials": "trials", "problem": "problem"}
    columns = {name: key for name, key in columns.items() if any(row[key] for row in rows)}
    figures = [{**row["settings"], **{name: row[key] for name, key in columns.items()}} for row in rows]
    for row in figures:  # numbers with four digits, lists and words as text
        for name, value in row.items():
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                row[name] = str(value)
            elif isinstance(value, float):
                row[name] = float(f"{value:.4g}")
    sections = [
        ("Best setting", best),
        ("Settings", table(figures)),
        (f"{html.escape(metric)} by setting", f'<div class="charts">{drawn}</div>' if drawn else ""),
        ("Curves of the best", f'<div class="charts">{chart(metric, lines)}</div>' if lines else ""),
    ]
    return write_page(folder / REPORT, "qkv sweep", folder.resolve().name, facts, sections)


def _over_key(key: str, rows: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Draw the metric over the values of a key: the best of each value, and the mean over the other keys' values."""
    values: dict[float, list[float]] = {}
    for row in rows:
        at = row["settings"].get(key)
        if isinstance(at, int | float) and not isinstance(at, bool) and row["value"] is not None:
            values.setdefault(at, []).append(row["value"])
    if len(values) < 2:
        return ""
    first = next(row["value"] for row in rows if row["value"] is not None)
    better = max if first == max(value for found in values.values() for value in found) else min
    series: dict[str, Callable[[list[float]], float]] = {"best": better, "mean": fmean}
    lines = [Line(name, [(at, reduce(values[at])) for at in sorted(values)]) for name, reduce in series.items()]
    return chart_over_key(f"{metric} over {key}", lines if any(len(found) > 1 for found in values.values()) else lines[:1])
