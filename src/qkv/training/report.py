"""The report of a run: one HTML file with curves, scores, samples and pictures that needs no network and no script."""

import difflib
import html
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from qkv.base.files import atomic_file
from qkv.training.charts import Line, chart
from qkv.training.style import STYLE

REPORT = "report.html"
LABELS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "token_errors": "Token errors", "exact": "Exactly right"}
PER_CENT = {"token_errors", "exact"}
LOWER_IS_BETTER = {"ter", "token_errors"}
OWN_SCALE = ("_loss", "perplexity", "bits_per_byte")  # how names of figures end that have a chart to themselves
# Should a text ever slip through unescaped, the browser still runs and fetches nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_report(
    folder: Path,
    title: str,
    *,
    facts: dict[str, str],
    metrics: list[dict[str, Any]],
    scores: list[dict[str, Any]],
    samples: list[dict[str, Any]],
    corpus: list[dict[str, Any]],
    attention: list[str],
    figures: Sequence[dict[str, Any]] = (),
) -> Path:
    """Write report.html into a run folder; a part for which there is nothing is left out.

    metrics: the lines of metrics.jsonl. scores: name, value, low, high, signature. samples: source, reference (a text
    or several), output. corpus: rows of a table, the keys being its headings. attention: pictures as SVG. figures: rows of a
    table, of scores that are not out of 100.
    """
    parts = [
        ("Scores", _scores(scores) + _table(figures)),
        ("Curves", _curves(metrics)),
        ("Held-out samples", _samples(samples)),
        ("Attention", _attention(attention)),
        ("Corpus", _table(corpus)),
    ]
    sections = "".join(f"<section><h2>{name}</h2>{body}</section>" for name, body in parts if body)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{_escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<header><p>qkv training report</p><h1>{_escape(title)}</h1>{_facts(facts)}</header>"
        f"<main>{sections}</main></body></html>\n"
    )
    path = folder / REPORT
    with atomic_file(path) as aside:
        aside.write_text(page, encoding="utf-8", errors="replace")
    return path


def _escape(text: Any) -> str:
    return html.escape(str(text))


def _facts(facts: dict[str, str]) -> str:
    items = "".join(f"<div><dt>{_escape(name)}</dt><dd>{_escape(value)}</dd></div>" for name, value in facts.items())
    return f"<dl>{items}</dl>" if items else ""


def _label(name: str) -> str:
    """The name of a metric as people write it."""
    return LABELS.get(name, name.replace("_", " ").capitalize())


# Scores


def _scores(scores: list[dict[str, Any]]) -> str:
    return f'<div class="scores">{"".join(map(_score, scores))}</div>' if scores else ""


def _score(score: dict[str, Any]) -> str:
    name, value, low, high = score["name"], score["value"], score.get("low"), score.get("high")
    note = "<small>lower is better</small>" if name in LOWER_IS_BETTER else ""
    unit = "<small> %</small>" if name in PER_CENT else ""
    bounds = f'<p class="bounds">95 %: {low:.1f} – {high:.1f}</p>' if low is not None and high is not None else ""
    signature = _escape(score.get("signature", "")).replace("|", "|<wbr>")
    return (
        f'<div class="score"><h3>{_escape(_label(name))}{note}</h3><p class="value">{value:.1f}{unit}</p>'
        f"{_bar(value, low, high)}{bounds}<code>{signature}</code></div>"
    )


def _bar(value: float, low: float | None, high: float | None) -> str:
    """The score on a line from 0 to 100, with its bounds."""

    def inside(number: float) -> float:
        return min(max(number, 0.0), 100.0)

    band = ""
    if low is not None and high is not None:
        width = max(inside(high) - inside(low), 0.6)
        band = f'<rect class="band" x="{inside(low):.2f}" y="0" width="{width:.2f}" height="6"/>'
    return (
        '<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" y="2" width="100" height="2"/>'
        f'<rect class="fill" y="2" width="{inside(value):.2f}" height="2"/>{band}</svg>'
    )


# Curves


def _curves(metrics: list[dict[str, Any]]) -> str:
    def line(name: str, label: str, noisy: bool = False) -> Line:
        values = [(row["step"], row.get(name)) for row in metrics]
        finite = [(step, value) for step, value in values if isinstance(value, int | float) and math.isfinite(value)]
        return Line(label, finite, noisy)

    names = [*dict.fromkeys(name.removeprefix("dev_") for row in metrics for name in row if name.startswith("dev_"))]
    losses = dict.fromkeys(["loss", *(name for name in names if name.endswith(OWN_SCALE))])  # each on a scale of its own
    charts = [
        *(_chart(_label(name), [line(name, "train", noisy=True), line(f"dev_{name}", "dev")]) for name in losses),
        _chart("Dev scores", [line(f"dev_{name}", _label(name)) for name in names if name not in losses]),
        _chart("Learning rate", [line("learning_rate", "rate")], from_zero=True),
        _chart("Tokens per second", [line("tokens_per_second", "tokens/s", noisy=True)], from_zero=True),
    ]
    return f'<div class="charts">{"".join(charts)}</div>' if any(charts) else ""


def _chart(title: str, lines: list[Line], from_zero: bool = False) -> str:
    drawn = [line for line in lines if line.points]
    return chart(title, drawn, from_zero) if drawn else ""


# Samples


def _samples(samples: list[dict[str, Any]]) -> str:
    if not samples:
        return ""
    rows = [_sample(sample["source"], _several(sample["reference"]), sample["output"]) for sample in samples]
    right = sum(sample["output"] in _several(sample["reference"]) for sample in samples)
    head = "<tr><th></th><th>source</th><th>reference</th><th>output</th></tr>"
    return (
        f"<p>{right:,} of {len(samples):,} exactly right. In the others, <mark>marked words</mark> are not in the "
        f'reference, and <span class="gap"></span> stands where words of the reference are missing.</p>'
        f'<table class="samples"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'
    )


def _several(reference: str | list[str]) -> list[str]:
    return [reference] if isinstance(reference, str) else list(reference)


def _sample(source: str, references: list[str], output: str) -> str:
    right = output in references
    sign = '<td class="sign" title="right">✓</td>' if right else '<td class="sign" title="wrong">✗</td>'
    texts = {
        "source": _escape(source),
        "reference": "<br>".join(_escape(reference) for reference in references),
        "output": _escape(output) if right else _differences(output, references),
    }
    cells = "".join(f'<td dir="auto" data-name="{name}">{text}</td>' for name, text in texts.items())
    return f'<tr class="{"right" if right else "wrong"}">{sign}{cells}</tr>'


def _differences(output: str, references: list[str]) -> str:
    """The output with what differs from the nearest reference marked: words, or characters where no spaces are."""
    spaced = any(" " in text for text in (output, *references))
    cut: Callable[[str], list[str]] = str.split if spaced else list
    join = " " if spaced else ""
    given = cut(output)
    matches = [(difflib.SequenceMatcher(None, cut(text), given, autojunk=False), cut(text)) for text in references]
    nearest, wanted = max(matches, key=lambda match: match[0].ratio())
    pieces = []
    for kind, a, b, start, end in nearest.get_opcodes():
        text = _escape(join.join(given[start:end]))
        if kind == "delete":
            missing = _escape(join.join(wanted[a:b]))
            text = f'<span class="gap" title="missing: {missing}"></span>'
        pieces.append(f"<mark>{text}</mark>" if kind in ("replace", "insert") else text)
    return join.join(pieces) or '<span class="gap" title="empty"></span>'


# Pictures and tables


def _attention(pictures: Iterable[str]) -> str:
    figures = "".join(f'<div class="picture">{picture}</div>' for picture in pictures)
    return f'<div class="pictures">{figures}</div>' if figures else ""


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows under the headings that any of them has; numbers to the right."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th{_side(name, rows)}>{_escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td{_side(name, rows)}>{_cell(row.get(name))}</td>" for name in names) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>' if rows else ""


def _side(name: str, rows: Sequence[dict[str, Any]]) -> str:
    values = [row[name] for row in rows if row.get(name) is not None]
    return ' class="number"' if all(isinstance(value, int | float) for value in values) else ""


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int | float) else _escape(value)
