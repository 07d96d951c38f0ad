"""A run's report: one HTML file with curves, scores, samples and pictures that needs neither the network nor scripts."""

import difflib
import html
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from qkv.base.files import atomic_file
from qkv.report.charts import Line, chart, reliability_chart
from qkv.report.style import STYLE

REPORT = "report.html"
LABELS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "token_errors": "Token errors", "exact": "Exactly right"}
PER_CENT = {"token_errors", "exact"}
LOWER_IS_BETTER = {"ter", "token_errors"}
OWN_SCALE = ("_loss", "_gain", "perplexity", "bits_per_byte")  # metrics whose names end so get a chart each
# If a text ever slips through unescaped, the browser still runs and fetches nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_report(
    folder: Path,
    title: str,
    *,
    facts: dict[str, Any],
    metrics: list[dict[str, Any]],
    scores: list[dict[str, Any]],
    samples: list[dict[str, Any]],
    corpus: list[dict[str, Any]],
    attention: list[str],
    figures: Sequence[dict[str, Any]] = (),
    figures_note: str = "",
    confidence: str = "",
    reliability: Sequence[dict[str, Any]] = (),
) -> Path:
    """Write report.html into a run folder, without the sections that would be empty.

    metrics: the lines of metrics.jsonl. scores: name, value, low, high, signature. samples: source, reference (one text
    or several), output. corpus: rows of a table, with its headings as keys. attention: pictures as SVG. figures: rows of a
    table of further scores, under their own heading where there is a note on them. confidence: some sentences on it.
    reliability: its bins, with the keys predicted, observed and texts.
    """
    score_cards = "".join(map(_score_card, scores))
    pictures = "".join(f'<div class="picture">{picture}</div>' for picture in attention)
    warnings = "".join(f"<li>{_escape(warning)}</li>" for warning in facts.get("warnings", ()))
    sections = [
        ("Warnings", f'<ul class="warnings">{warnings}</ul>' if warnings else ""),
        ("Scores", (f'<div class="scores">{score_cards}</div>' if scores else "") + ("" if figures_note else table(figures))),
        ("Held-out sets", f"<p>{_escape(figures_note)}</p>{table(figures)}" if figures_note and figures else ""),
        ("Curves", _curves(metrics)),
        ("Held-out samples", _samples_table(samples) if samples else ""),
        ("Confidence", _confidence(confidence, reliability) if reliability else ""),
        ("Attention", f'<div class="pictures">{pictures}</div>' if pictures else ""),
        ("Corpus", table(corpus)),
    ]
    return write_page(
        folder / REPORT, "qkv training report", title, {k: v for k, v in facts.items() if k != "warnings"}, sections
    )


def write_page(path: Path, kind: str, title: str, facts: dict[str, Any], sections: Sequence[tuple[str, str]]) -> Path:
    """Write a page with a header of facts; sections are pairs of heading and HTML, of which empty ones are left out."""
    body = "".join(f"<section><h2>{name}</h2>{content}</section>" for name, content in sections if content)
    items = "".join(f"<div><dt>{_escape(name)}</dt><dd>{_escape(value)}</dd></div>" for name, value in facts.items())
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{_escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<header><p>{kind}</p><h1>{_escape(title)}</h1>{f'<dl>{items}</dl>' if items else ''}</header>"
        f"<main>{body}</main></body></html>\n"
    )
    with atomic_file(path) as aside:
        aside.write_text(page, encoding="utf-8", errors="replace")
    return path


def _escape(text: Any) -> str:
    return html.escape(str(text))


def _label(name: str) -> str:
    """Return a metric's name as people write it."""
    return LABELS.get(name, name.replace("_", " ").capitalize())


# Scores


def _score_card(score: dict[str, Any]) -> str:
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
    """Draw a score and its confidence interval on a line from 0 to 100."""

    def clamp(number: float) -> float:
        return min(max(number, 0.0), 100.0)

    interval = ""
    if low is not None and high is not None:
        width = max(clamp(high) - clamp(low), 0.6)
        interval = f'<rect class="band" x="{clamp(low):.2f}" y="0" width="{width:.2f}" height="6"/>'
    return (
        '<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" y="2" width="100" height="2"/>'
        f'<rect class="fill" y="2" width="{clamp(value):.2f}" height="2"/>{interval}</svg>'
    )


# Curves


def _curves(metrics: list[dict[str, Any]]) -> str:
    """Draw a chart for each loss, one for all other dev scores, and charts of the learning rate and the speed."""

    def line(metric: str, label: str, noisy: bool = False) -> Line:
        values = [(row["step"], row.get(metric)) for row in metrics]
        finite = [(step, value) for step, value in values if isinstance(value, int | float) and math.isfinite(value)]
        return Line(label, finite, noisy)

    names = [*dict.fromkeys(name.removeprefix("dev_") for row in metrics for name in row if name.startswith("dev_"))]
    losses = dict.fromkeys(["loss", *(name for name in names if name.endswith(OWN_SCALE))])
    planned = [
        *((_label(name), [line(name, "train", noisy=True), line(f"dev_{name}", "dev")], False) for name in losses),
        ("Dev scores", [line(f"dev_{name}", _label(name)) for name in names if name not in losses], False),
        ("Similarity of tokens after each layer", [line(name, name.partition("/")[2]) for name in _similarities(metrics)], True),
        ("Gradient norm", [line("gradient_norm", "norm", noisy=True)], True),
        ("Learning rate", [line("learning_rate", "rate")], True),
        ("Tokens per second", [line("tokens_per_second", "tokens/s", noisy=True)], True),
    ]
    charts = ""
    for title, lines, from_zero in planned:
        drawn = [each for each in lines if each.points]
        charts += chart(title, drawn, from_zero) if drawn else ""
    return f'<div class="charts">{charts}</div>' if charts else ""


def _similarities(metrics: list[dict[str, Any]]) -> list[str]:
    """Return the figures of the first, middle and last layer of each stack; more lines could not be told apart."""
    layers: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for row in metrics for name in row if name.startswith("token_similarity/")):
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    return [name for stack in layers.values() for name in dict.fromkeys((stack[0], stack[len(stack) // 2], stack[-1]))]


def _confidence(text: str, bins: Sequence[dict[str, Any]]) -> str:
    """Draw the bins of confidence beside their table."""
    points = [(row["predicted"], row["observed"], row["texts"]) for row in bins]
    return (
        f'<p>{_escape(text)}</p><div class="charts">{reliability_chart("Good translations by confidence", points)}'
        f"{table(bins)}</div>"
    )


# Samples


def _samples_table(samples: list[dict[str, Any]]) -> str:
    """Lay samples out as a table that marks errors in the outputs."""
    rows, exact = "", 0
    for sample in samples:
        references = [sample["reference"]] if isinstance(sample["reference"], str) else list(sample["reference"])
        output = sample["output"]
        right = output in references
        exact += right
        cells = {
            "source": _escape(sample["source"]),
            "reference": "<br>".join(_escape(reference) for reference in references),
            "output": _escape(output) if right else _marked_differences(output, references),
        }
        row = '<td class="sign" title="right">✓</td>' if right else '<td class="sign" title="wrong">✗</td>'
        row += "".join(f'<td dir="auto" data-name="{name}">{text}</td>' for name, text in cells.items())
        rows += f'<tr class="{"right" if right else "wrong"}">{row}</tr>'
    head = "<tr><th></th><th>source</th><th>reference</th><th>output</th></tr>"
    return (
        f"<p>{exact:,} of {len(samples):,} exactly right. In the others, <mark>marked words</mark> are not in the "
        f'reference, and <span class="gap"></span> stands where words of the reference are missing.</p>'
        f'<table class="samples"><thead>{head}</thead><tbody>{rows}</tbody></table>'
    )


def _marked_differences(output: str, references: list[str]) -> str:
    """Mark where an output differs from its nearest reference: by words, or by characters where there are no spaces."""
    spaced = any(" " in text for text in (output, *references))
    split: Callable[[str], list[str]] = str.split if spaced else list
    join = " " if spaced else ""
    units = split(output)
    matches = [(difflib.SequenceMatcher(None, split(text), units, autojunk=False), split(text)) for text in references]
    nearest, expected = max(matches, key=lambda match: match[0].ratio())
    pieces = []
    for kind, a, b, start, end in nearest.get_opcodes():
        text = _escape(join.join(units[start:end]))
        if kind == "delete":
            missing = _escape(join.join(expected[a:b]))
            text = f'<span class="gap" title="missing: {missing}"></span>'
        pieces.append(f"<mark>{text}</mark>" if kind in ("replace", "insert") else text)
    return join.join(pieces) or '<span class="gap" title="empty"></span>'


# Tables


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Lay rows out under the union of their keys; columns of numbers are aligned to the right."""
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row))
    side = {}
    for name in names:
        values = [row[name] for row in rows if row.get(name) is not None]
        side[name] = ' class="number"' if all(isinstance(value, int | float) for value in values) else ""
    head = "".join(f"<th{side[name]}>{_escape(name)}</th>" for name in names)
    body = ""
    for row in rows:
        body += "<tr>"
        for name in names:
            value = row.get(name, "")
            text = f"{value:,}" if isinstance(value, int | float) else _escape("" if value is None else value)
            body += f"<td{side[name]}>{text}</td>"
        body += "</tr>"
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
