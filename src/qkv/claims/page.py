"""Pages of claims: one claim, or a gallery of all with filters by topic and verdict. One HTML file that works offline."""

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qkv.base.files import atomic_file
from qkv.claims.claim import TOPICS
from qkv.claims.documents import in_order
from qkv.claims.experiment import Result
from qkv.claims.pictures import render, stack
from qkv.claims.record import (
    PAGE,
    PICTURE,
    RECORD,
    TABLE,
    Record,
    cost,
    explain,
    figures_table,
    findings,
    make_record,
    mean_and_spread,
    scalar_figures,
    shown_verdict,
)
from qkv.claims.verdict import FAILS, HOLDS, PARTLY, UNDECIDED, VERDICTS

Shown = tuple[Record, str]  # with its picture
TEMPLATE = Path(__file__).parent / "template"
CLASSES = {HOLDS: "holds", PARTLY: "partly", FAILS: "fails", UNDECIDED: "undecided"}
INTRODUCTION = (
    "What papers and people say about attention, each as a small experiment that anybody can rerun. Predictions were written "
    "before the runs that are shown, some of them after pilots or earlier runs, as a card then says; verdicts are computed from "
    "the figures. They are about small models on small tasks: “does not hold "
    "here” is no proof for large ones, and “undecided” is a result."
)


def render_page(records: Sequence[Shown], others: Mapping[str, Sequence[Shown]] | None = None) -> str:
    """Return the HTML of some claims with their pictures; `others` are the same claims at other sizes, by name."""
    gallery = others is not None
    style, script = ((TEMPLATE / name).read_text(encoding="utf-8") for name in ("gallery.css", "gallery.js"))
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{allowed}'; style-src 'unsafe-inline'"
    title = "Claims, tested" if gallery else records[0][0]["statement"]
    head = f"<header><h1>{_e(title)}</h1><p>{_e(INTRODUCTION)}</p></header>{_filters(records)}" if gallery else ""
    body = "".join(_article(record, picture, (others or {}).get(record["name"], ())) for record, picture in records)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, '
        f'initial-scale=1"><meta http-equiv="Content-Security-Policy" content="{policy}"><title>{_e(title)} · qkv claims</title>'
        f"<style>{style}</style></head><body>{head}<main>{body}</main><script>{script}</script></body></html>\n"
    )


def write_record(result: Result, folder: Path, options: Sequence[str] = ()) -> Record:
    """Write claim.json, table.md, picture.svg and page.html into a folder; claim.json comes last."""
    record = make_record(result, options)
    picture = render(stack(*(panel.draw(result) for panel in result.named.claim.picture)))
    files = {
        TABLE: figures_table(record),
        PICTURE: picture,
        PAGE: render_page([(record, picture)]),
        RECORD: json.dumps(record, indent=1, ensure_ascii=False) + "\n",
    }
    for name, text in files.items():
        with atomic_file(folder / name) as aside:
            aside.write_text(text, encoding="utf-8")
    return record


def write_gallery(records: dict[str, dict[str, tuple[Record, str]]], out: Path) -> Path:
    """Write index.html with all claims, in the order of topics; other sizes unfold below the best (see `best_record`)."""
    best = in_order(records)
    others = {
        record["name"]: [other for other in records[record["name"]].values() if other[0]["size"] != record["size"]]
        for record, _ in best
    }
    path = out / "index.html"
    with atomic_file(path) as aside:
        aside.write_text(render_page(best, others), encoding="utf-8")
    return path


def _filters(records: Sequence[Shown]) -> str:
    rows = ""
    for key, values in (("topic", TOPICS), ("verdict", VERDICTS)):
        present = [value for value in values if any(record[key] == value for record, _ in records)]
        buttons = "".join(
            f'<button type="button" data-key="{key}" data-value="{_e(value)}">{_e(value or "all")}</button>'
            for value in ("", *present)
        )
        rows += f'<div role="group" aria-label="{key}"><span>{key}</span>{buttons}</div>'
    return f'<nav class="filters">{rows}</nav><p class="count" role="status"></p>'


def _article(record: Record, picture: str, others: Sequence[Shown]) -> str:
    size = f"<span>size {_e(record['size'])}</span>" if others or record["size"] == "gpu" else ""
    # A quick run is no news beside a full one; another full size is shown with everything.
    elsewhere = "".join(f"<span>at size quick: {_e(shown_verdict(one))}</span>" for one, _ in others if one["size"] == "quick")
    folded = "".join(
        f'<details class="other"><summary>At size {_e(one["size"])}: {_verdict(one)}</summary>{_result(one, drawn)}'
        f"<footer>{_footer(one)}</footer></details>"
        for one, drawn in others
        if one["size"] != "quick"
    )
    texts = "".join(
        f'<p><b class="label">{label}</b>{_e(record[key])}</p>'
        for label, key in (
            ("Measured", "measured"),
            ("Predicted before this run", "prediction"),
            ("Changed after earlier figures", "revised"),
            ("What would change this", "changes"),
            ("Source", "source"),
        )
        if record[key]
    )
    return (
        f'<article id="{_e(record["name"])}" data-topic="{_e(record["topic"])}" data-verdict="{_e(record["verdict"])}">'
        f'<header><div class="kind">{_verdict(record)}{size}<span>{_e(record["topic"])}</span></div>'
        f"<h2>{_e(record['statement'])}</h2></header>"
        f'<div><p class="explanation">{_e(record["explanation"])}</p><p class="formula">{_e(record["formula"])}</p></div>'
        f'<div class="result">{_result(record, picture)}{folded}</div><div>{texts}</div>'
        f"<footer>{_footer(record)}{elsewhere}</footer></article>"
    )


def _verdict(record: Record) -> str:
    quick = " quick" if record["preliminary"] else ""
    return f'<span class="verdict {CLASSES[record["verdict"]]}{quick}">{_e(shown_verdict(record))}</span>'


def _result(record: Record, picture: str) -> str:
    return (
        f'<figure class="picture">{picture}</figure>{_findings(record)}'
        f'<details><summary>Figures</summary><div class="wide">{_table(record)}</div></details>'
    )


def _footer(record: Record) -> str:
    facts = record["facts"]
    old = facts["cells from other code"]
    warning = f"<span>{old} of {facts['cells']} cells come from other code of qkv</span>" if old else ""
    return (
        f"<code>{_e(record['command'])}</code><span>{len(record['seeds'])} seeds, {_e(cost(record))} of "
        f"{'time' if record['size'] == 'gpu' else 'one core'} on {_e(facts['device'])}, {_e(facts['date'])}</span>{warning}"
    )


def _findings(record: Record) -> str:
    rows = "".join(
        f'<li>{label}{_e(one["says"])}: <b class="{CLASSES[one["outcome"]]}">{_e(one["outcome"])}</b>'
        f"<small>{_e(explain(one))}</small></li>"
        for label, one in findings(record)
    )
    return f'<ul class="findings">{rows}</ul>'


def _table(record: Record) -> str:
    names = scalar_figures(record)
    head = "".join(f"<th>{_e(record['units'][name])}</th>" for name in names)
    rows = "".join(
        f"<tr><td>{_e(variant)}</td>" + "".join(f"<td>{_e(mean_and_spread(figures[name]))}</td>" for name in names) + "</tr>"
        for variant, figures in record["figures"].items()
    )
    return f"<table><thead><tr><th>variant</th>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _e(text: Any) -> str:
    return html.escape(str(text))
