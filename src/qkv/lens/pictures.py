"""Pictures of attention: a heat map with a row for each token that looks and a column for each token looked at."""

import html
import math
import unicodedata
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.errors import DataError
from qkv.base.files import atomic_file
from qkv.base.fonts import available_fonts

INK = "#3b5bdb"
HEADING, TITLE = 15, 11  # size of the title, of an SVG in pixels, of a PNG in points
BOLD = 1.1  # how much wider bold letters are
FONTS = "ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK SC', 'PingFang SC', sans-serif"
LONGEST = 18  # characters of a label that are shown; the tooltip has them all
FAINT = 0.01  # cells below this share of the strongest cannot be seen, and are left out
SLANT = math.sqrt(0.5)  # sine and cosine of the 45 degrees at which wide labels stand


def attention_svg(weights: np.ndarray, rows: list[str], columns: list[str], title: str) -> str:
    """The heat map as SVG that stands alone or inside a page, light or dark; (T, S) weights, T rows, S columns."""
    strength = _checked(weights, rows, columns)
    plan = _plan(rows, columns, title)
    peak = float(strength.max()) or 1.0
    body = [
        f"<title>{_escape(title)}</title>",
        f'<text x="0" y="16" font-size="{HEADING}" font-weight="600">{_escape(_fitting(title, plan.width))}</text>',
        f'<rect x="{plan.left:g}" y="{plan.top:g}" width="{plan.cell * len(columns):g}" '
        f'height="{plan.cell * len(rows):g}" rx="3" fill="currentColor" fill-opacity="0.045"/>',
        *_row_labels(rows, plan),
        *_column_labels(columns, plan),
        *_cells(strength, peak, rows, columns, plan),
        *_scale(peak, plan),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="attention" width="{plan.width:g}" height="{plan.height:g}" '
        f'viewBox="0 0 {plan.width:g} {plan.height:g}" role="img" aria-label="{_escape(title)}" '
        f'font-family="{FONTS}" font-size="{plan.font:g}" fill="currentColor">{"".join(body)}</svg>'
    )


def attention_figure(weights: np.ndarray, rows: list[str], columns: list[str], title: str, path: Path) -> None:
    """The heat map as a PNG file; (T, S) weights, T rows, S columns."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    strength = _checked(weights, rows, columns)
    upright = all(_width(label) <= 1.6 for label in columns)
    with matplotlib.rc_context({"font.family": available_fonts(), "axes.unicode_minus": False, "text.parse_math": False}):
        cell = min(0.36, max(0.17, 7 / max(strength.shape)))
        wide = max(cell * len(columns) + 1, _width(title) * TITLE * BOLD / 72 + 0.2)
        figure = Figure(figsize=(wide, cell * len(rows) + 1), dpi=160, layout="constrained")
        axes = figure.subplots()
        axes.imshow(strength, cmap=LinearSegmentedColormap.from_list("ink", ["#f4f5f7", INK]), vmin=0)
        figure.suptitle(title, x=0.01, ha="left", fontsize=TITLE, fontweight="bold")
        axes.xaxis.tick_top()
        size = min(11, max(6, cell * 30))
        turn: dict[str, Any] = {} if upright else {"rotation": 45, "ha": "left", "rotation_mode": "anchor"}
        axes.set_xticks(range(len(columns)), [_short(label) for label in columns], fontsize=size, **turn)
        axes.set_yticks(range(len(rows)), [_short(label) for label in rows], fontsize=size)
        axes.set_xticks(np.arange(len(columns)) + 0.5, minor=True)
        axes.set_yticks(np.arange(len(rows)) + 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
        with atomic_file(path) as aside, warnings.catch_warnings():
            # A character that no font here has becomes a box, which says as much as a warning for each.
            warnings.filterwarnings("ignore", message="Glyph")
            FigureCanvasAgg(figure).print_png(aside)


@dataclass(frozen=True)
class _Plan:
    """Where things stand, in pixels."""

    cell: float
    font: float
    left: float
    top: float
    width: float
    height: float
    slanted: bool


def _plan(rows: list[str], columns: list[str], title: str) -> _Plan:
    """Cells as large as a screen allows, margins as wide as the labels need."""
    cell = min(34.0, max(16.0, 680 / max(len(rows), len(columns))))
    font = min(13.0, max(10.0, cell * 0.5))
    widths = [_width(_short(label)) * font for label in columns]
    slanted = max(widths) > cell * 0.95
    left = max(_width(_short(label)) for label in rows) * font + 10
    top = 34 + (max(widths) * SLANT if slanted else 0) + font * 1.4
    beyond = max(width * SLANT - cell * (len(columns) - i - 0.5) for i, width in enumerate(widths)) if slanted else 0
    heading = min(_width(title) * HEADING * BOLD + 4, 600)
    width = max(left + cell * len(columns) + max(beyond, 0) + 4, left + 130, heading)
    return _Plan(cell, font, left, top, math.ceil(width), math.ceil(top + cell * len(rows) + 34), slanted)


def _row_labels(rows: list[str], plan: _Plan) -> list[str]:
    x = plan.left - 7
    positions = [plan.top + plan.cell * (i + 0.5) + plan.font * 0.35 for i in range(len(rows))]
    return [_label(label, x, y, 'text-anchor="end"') for label, y in zip(rows, positions, strict=True)]


def _column_labels(columns: list[str], plan: _Plan) -> list[str]:
    labels = []
    for i, label in enumerate(columns):
        x, y = plan.left + plan.cell * (i + 0.5), plan.top - plan.font * 0.55
        turned = f'transform="rotate(-45 {x:g} {y:g})"' if plan.slanted else 'text-anchor="middle"'
        labels.append(_label(label, x, y, turned))
    return labels


def _label(text: str, x: float, y: float, how: str) -> str:
    whole = f"<title>{_escape(text)}</title>" if len(text) > LONGEST else ""
    return f'<text x="{x:.5g}" y="{y:.5g}" {how}>{_escape(_short(text))}{whole}</text>'


def _cells(strength: np.ndarray, peak: float, rows: list[str], columns: list[str], plan: _Plan) -> list[str]:
    side = f"{plan.cell - 1.5:.4g}"
    cells = []
    for t, s in np.argwhere(strength >= FAINT * peak):
        x, y = plan.left + plan.cell * s + 0.75, plan.top + plan.cell * t + 0.75
        tip = f"{_escape(rows[t])} ← {_escape(columns[s])}: {strength[t, s]:.3f}"
        cells.append(
            f'<rect class="heat" x="{x:.5g}" y="{y:.5g}" width="{side}" height="{side}" rx="2.5" fill="{INK}" '
            f'fill-opacity="{strength[t, s] / peak:.3f}"><title>{tip}</title></rect>'
        )
    return cells


def _scale(peak: float, plan: _Plan) -> list[str]:
    """What the colours mean: from nothing to the strongest weight in the picture."""
    y, steps, side = plan.height - 20, 6, 12
    squares = [
        f'<rect class="heat" x="{plan.left + 16 + i * side:g}" y="{y:g}" width="{side}" height="{side}" fill="{INK}" '
        f'fill-opacity="{(i + 0.5) / steps:.2f}"/>'
        for i in range(steps)
    ]
    text = '<text font-size="11" fill-opacity="0.65" x="{x:g}" y="{y:g}">{number}</text>'
    ends = [(plan.left + 2, "0"), (plan.left + 22 + steps * side, f"{peak:.2f}")]
    return [*squares, *(text.format(x=x, y=y + 10, number=number) for x, number in ends)]


def _checked(weights: np.ndarray, rows: list[str], columns: list[str]) -> np.ndarray:
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (len(rows), len(columns)) or not array.size:
        raise DataError(f"weights of shape {array.shape} do not fit {len(rows)} rows and {len(columns)} columns")
    return np.nan_to_num(array, nan=0.0).clip(min=0.0)


def _short(label: str) -> str:
    """A label that can be seen and is not too long; whitespace gets a sign, and so does what cannot be printed."""
    seen = "".join(char if char.isprintable() else "\ufffd" for char in " ".join(label.split()) or "␣")
    return seen if len(seen) <= LONGEST else seen[: LONGEST - 1] + "…"


def _fitting(title: str, width: float) -> str:
    """As much of a title as a line of this width has room for."""
    room = width / HEADING / BOLD
    if _width(title) <= room:
        return title
    kept = title
    while _width(kept) > room - 1:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def _escape(text: str) -> str:
    return html.escape("".join(char if char.isprintable() else " " for char in text))


def _width(text: str) -> float:
    """About how wide a text is, in units of its font size; no font is at hand to ask."""
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> float:
    if unicodedata.combining(char):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    return 0.72 if char.isupper() or char in "mw@%" else 0.34 if char in "ilj.,:;'|!()[] " else 0.57
