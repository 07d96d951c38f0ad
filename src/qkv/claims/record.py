"""The record of a claim that was run, claim.json: what it says, its figures and verdict; table, picture and page beside it."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qkv.base.errors import DataError
from qkv.claims.claim import LIBRARY, SIZES, Claim
from qkv.claims.experiment import Result
from qkv.claims.verdict import FAILS, HOLDS, interval_of_mean
from qkv.report.charts import short
from qkv.training.progress import duration

RECORD, TABLE, PICTURE, PAGE = "claim.json", "table.md", "picture.svg", "page.html"
TEXTS = ("topic", "statement", "source", "measured", "prediction", "explanation", "formula", "changes", "revised")
Record = dict[str, Any]


def make_record(result: Result, options: Sequence[str] = ()) -> Record:
    """Return everything about a run as plain values; `options` are those of the command beside the size."""
    claim: Claim = result.named.claim
    size = {"quick": ["--quick"], "gpu": ["--size", "gpu"]}.get(result.size, [])
    own = result.named.file.parent != LIBRARY
    return {
        "name": result.named.name,
        **{name: getattr(claim, name) for name in TEXTS},
        **result.verdict.json(),
        "preliminary": result.preliminary,
        "size": result.size,
        "seeds": result.seeds,
        "settings": {**claim.sizes["cpu"], **claim.sizes.get(result.size, {})},
        "variants": {name: dict(settings) for name, settings in claim.variants.items()},
        "units": dict(claim.units),
        "figures": result.figures,
        "facts": dict(result.facts),
        "command": shlex.join(["qkv", "claims", "run", str(result.named.file) if own else result.named.name, *size, *options]),
    }


def read_record(folder: Path) -> tuple[Record, str] | None:
    """Return the record in a folder with its picture; None where there is none."""
    path = folder / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        picture = (folder / PICTURE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise DataError(f"{path}: damaged; delete it and run the claim again: its cells are kept") from None
    if "further" not in record:
        raise DataError(f"{path}: written by an older version of qkv; delete it and run the claim again: its cells are kept")
    return record, picture


def read_records(out: Path) -> dict[str, dict[str, tuple[Record, str]]]:
    """Return the records below a folder of claims with their pictures: name -> size -> (record, picture)."""
    found: dict[str, dict[str, tuple[Record, str]]] = {}
    for path in sorted(out.glob(f"*/*/{RECORD}")):
        one = read_record(path.parent)
        if one is not None:
            found.setdefault(one[0]["name"], {})[one[0]["size"]] = one
    return found


def best_record(sizes: dict[str, tuple[Record, str]]) -> tuple[Record, str]:
    """Return the record of the largest size with all seeds; where none has all, that of the largest size."""
    return max(sizes.values(), key=lambda one: (not one[0]["preliminary"], SIZES.index(one[0]["size"])))


def scalar_figures(record: Record) -> list[str]:
    """Return the figures that are one number for each seed."""
    first = next(iter(record["figures"].values()))
    return [name for name in record["units"] if not isinstance(first[name][0], list)]


def mean_and_spread(values: Sequence[float]) -> str:
    """Format the mean of seeds and the half width of its 95 % interval."""
    found = interval_of_mean(values)
    spread = f" ± {short(found.high - found.mean)}" if len(values) > 2 else ""
    return short(found.mean) + spread


def figures_table(record: Record) -> str:
    """Return the figures as a Markdown table, with the findings below."""
    names = scalar_figures(record)
    lines = [f"| variant | {' | '.join(record['units'][name] for name in names)} |", f"|---|{'---:|' * len(names)}"]
    for variant, figures in record["figures"].items():
        lines.append(f"| {variant} | {' | '.join(mean_and_spread(figures[name]) for name in names)} |")
    lines += ["", f"Mean of {len(record['seeds'])} seeds ± half of its 95 % interval.", ""]
    lines += [f"- {label}{one['says']}: **{one['outcome']}** ({explain(one)})" for label, one in findings(record)]
    return "\n".join([*lines, ""])


def findings(record: Record) -> list[tuple[str, Record]]:
    """Return all findings in the order in which they are shown, each with a label: "" for a part of the claim."""
    groups = (("", "parts"), ("further, ", "further"), ("control, ", "controls"))
    return [(label, one) for label, group in groups for one in record[group]]


def explain(finding: Record) -> str:
    """Say what a finding rests on, with its numbers."""
    if finding["mean"] is None:
        return finding["reason"]
    interval = f"interval {short(finding['low'])} to {short(finding['high'])}"
    if finding["p"] is None:
        predicted = f"{finding['bound']} {short(finding['wanted'])} was predicted"
        return f"{finding['reason']}: mean {short(finding['mean'])}, {interval}; {predicted}"
    sign = "factor" if finding["ratio"] else "difference"
    p = "p < 0.001" if finding["p"] < 0.001 else f"p = {finding['p']:.3f}"
    return f"{finding['reason']}: {sign} {short(finding['mean'])}, {interval}, {p}; what matters is {short(finding['wanted'])}"


def shown_verdict(record: Record) -> str:
    """Return the verdict, and what it hides: how many parts hold or do not, a failed control, that it is preliminary."""
    holding, failing = (sum(part["outcome"] == outcome for part in record["parts"]) for outcome in (HOLDS, FAILS))
    notes = []
    if any(control["outcome"] != HOLDS for control in record["controls"]):
        notes.append("a control failed")
    elif 0 < holding < len(record["parts"]):
        notes.append(f"{holding} of {len(record['parts'])} parts hold")
    elif 0 < failing < len(record["parts"]):
        notes.append(f"{failing} of {len(record['parts'])} parts {'does' if failing == 1 else 'do'} not hold")
    notes += [record["preliminary"]] if record["preliminary"] else []
    return f"{record['verdict']} ({'; '.join(notes)})" if notes else record["verdict"]


def cost(record: Record) -> str:
    """Return the time that all cells took together: of one core, whatever else the machine does; on a GPU by the clock."""
    return duration(record["facts"]["seconds" if record["size"] == "gpu" else "cpu_seconds"])
