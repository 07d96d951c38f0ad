"""Heat maps of attention, with a row for each attending token and a column for each attended token, as SVG and PNG."""

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
SVG_TITLE, PNG_TITLE = 15, 11  # size of the title, in pixels and in points
BOLD = 1.1  # width of bold letters relative to normal ones
FONTS = "ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK SC', 'PingFang SC', sans-serif"
MAX_LABEL = 18  # characters of a label; the tooltip has them all
MIN_VISIBLE = 0.01  # cells below this share of the strongest are invisible, and are left out
SLANT = math.sqrt(0.5)  # sine and cosine of 45 degrees, the angle of wide labels


def attention_svg(weights: np.ndarray, rows: list[str], columns: list[str], title: str) -> str:
    """Return the heat map as SVG, for a file or inside a page, light or dark; (T, S) weights, T rows, S columns."""
    values = _check_weights(weights, rows, columns)
    layout = _make_layout(rows, columns, title)
    peak = float(values.max()) or 1.0
    body = [
        f"<title>{_escape(title)}</title>",
        f'<text x="0" y="16" font-size="{SVG_TITLE}" font-weight="600">{_escape(_shorten_title(title, layout.width))}</text>',
        f'<rect x="{layout.left:g}" y="{layout.top:g}" width="{layout.cell * len(columns):g}" '
        f'height="{layout.cell * len(rows):g}" rx="3" fill="currentColor" fill-opacity="0.045"/>',
        *(
            _label(label, layout.left - 7, layout.top + layout.cell * (i + 0.5) + layout.font * 0.35, 'text-anchor="end"')
            for i, label in enumerate(rows)
        ),
        *_column_labels(columns, layout),
        *_cells(values, peak, rows, columns, layout),
        *_scale(peak, layout),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="attention" width="{layout.width:g}" height="{layout.height:g}" '
        f'viewBox="0 0 {layout.width:g} {layout.height:g}" role="img" aria-label="{_escape(title)}" '
        f'font-family="{FONTS}" font-size="{layout.font:g}" fill="currentColor">{"".join(body)}</svg>'
    )


def attention_png(weights: np.ndarray, rows: list[str], columns: list[str], title: str, path: Path) -> None:
    """Write the heat map as a PNG file; (T, S) weights, T rows, S columns."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    values = _check_weights(weights, rows, columns)
    upright = all(_width(label) <= 1.6 for label in columns)
    with matplotlib.rc_context({"font.family": available_fonts(), "axes.unicode_minus": False, "text.parse_math": False}):
        cell = min(0.36, max(0.17, 7 / max(values.shape)))
        wide = max(cell * len(columns) + 1, _width(title) * PNG_TITLE * BOLD / 72 + 0.2)
        figure = Figure(figsize=(wide, cell * len(rows) + 1), dpi=160, layout="constrained")
        axes = figure.subplots()
        axes.imshow(values, cmap=LinearSegmentedColormap.from_list("ink", ["#f4f5f7", INK]), vmin=0)
        figure.suptitle(title, x=0.01, ha="left", fontsize=PNG_TITLE, fontweight="bold")
        axes.xaxis.tick_top()
        size = min(11, max(6, cell * 30))
        rotation: dict[str, Any] = {} if upright else {"rotation": 45, "ha": "left", "rotation_mode": "anchor"}
        axes.set_xticks(range(len(columns)), [_shorten_label(label) for label in columns], fontsize=size, **rotation)
        axes.set_yticks(range(len(rows)), [_shorten_label(label) for label in rows], fontsize=size)
        axes.set_xticks(np.arange(len(columns)) + 0.5, minor=True)
        axes.set_yticks(np.arange(len(rows)) + 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
        with atomic_file(path) as aside, warnings.catch_warnings():
            # A character that no font has is drawn as a box; a warning for each would be noise.
            warnings.filterwarnings("ignore", message="Glyph")
            FigureCanvasAgg(figure).print_png(aside)


@dataclass(frozen=True)
class _HeatmapLayout:
    """Sizes and offsets of an SVG, in pixels."""

    cell: float
    font: float
    left: float
    top: float
    width: float
    height: float
    slanted: bool


def _make_layout(rows: list[str], columns: list[str], title: str) -> _HeatmapLayout:
    """Choose cells as large as a screen allows and margins as wide as the labels need."""
    cell = min(34.0, max(16.0, 680 / max(len(rows), len(columns))))
    font = min(13.0, max(10.0, cell * 0.5))
    widths = [_width(_shorten_label(label)) * font for label in columns]
    slanted = max(widths) > cell * 0.95
    left = max(_width(_shorten_label(label)) for label in rows) * font + 10
    top = 34 + (max(widths) * SLANT if slanted else 0) + font * 1.4
    overhang = max(width * SLANT - cell * (len(columns) - i - 0.5) for i, width in enumerate(widths)) if slanted else 0
    heading = min(_width(title) * SVG_TITLE * BOLD + 4, 600)
    width = max(left + cell * len(columns) + max(overhang, 0) + 4, left + 130, heading)
    return _HeatmapLayout(cell, font, left, top, math.ceil(width), math.ceil(top + cell * len(rows) + 34), slanted)


def _column_labels(columns: list[str], layout: _HeatmapLayout) -> list[str]:
    """Return the labels above the columns, at 45 degrees if they are wide."""
    labels = []
    for i, label in enumerate(columns):
        x, y = layout.left + layout.cell * (i + 0.5), layout.top - layout.font * 0.55
        rotation = f'transform="rotate(-45 {x:g} {y:g})"' if layout.slanted else 'text-anchor="middle"'
        labels.append(_label(label, x, y, rotation))
    return labels


def _label(text: str, x: float, y: float, attributes: str) -> str:
    tooltip = f"<title>{_escape(text)}</title>" if len(text) > MAX_LABEL else ""
    return f'<text x="{x:.5g}" y="{y:.5g}" {attributes}>{_escape(_shorten_label(text))}{tooltip}</text>'


def _cells(values: np.ndarray, peak: float, rows: list[str], columns: list[str], layout: _HeatmapLayout) -> list[str]:
    side = f"{layout.cell - 1.5:.4g}"
    cells = []
    for t, s in np.argwhere(values >= MIN_VISIBLE * peak):
        x, y = layout.left + layout.cell * s + 0.75, layout.top + layout.cell * t + 0.75
        tip = f"{_escape(rows[t])} ← {_escape(columns[s])}: {values[t, s]:.3f}"
        cells.append(
            f'<rect class="heat" x="{x:.5g}" y="{y:.5g}" width="{side}" height="{side}" rx="2.5" fill="{INK}" '
            f'fill-opacity="{values[t, s] / peak:.3f}"><title>{tip}</title></rect>'
        )
    return cells


def _scale(peak: float, layout: _HeatmapLayout) -> list[str]:
    """Return the legend of the colours, from 0 to the strongest weight."""
    y, steps, side = layout.height - 20, 6, 12
    squares = [
        f'<rect class="heat" x="{layout.left + 16 + i * side:g}" y="{y:g}" width="{side}" height="{side}" fill="{INK}" '
        f'fill-opacity="{(i + 0.5) / steps:.2f}"/>'
        for i in range(steps)
    ]
    text = '<text font-size="11" fill-opacity="0.65" x="{x:g}" y="{y:g}">{number}</text>'
    ends = [(layout.left + 2, "0"), (layout.left + 22 + steps * side, f"{peak:.2f}")]
    return [*squares, *(text.format(x=x, y=y + 10, number=number) for x, number in ends)]


def _check_weights(weights: np.ndarray, rows: list[str], columns: list[str]) -> np.ndarray:
    """Return the weights as float64 without nan; refuse another shape than that of the labels."""
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (len(rows), len(columns)) or not array.size:
        raise DataError(
            f"weights of shape {array.shape} do not fit {len(rows)} rows and {len(columns)} columns; give a weight for each pair"
        )
    return np.nan_to_num(array, nan=0.0).clip(min=0.0)


def _shorten_label(label: str) -> str:
    """Shorten a label, and replace whitespace and unprintable characters by visible signs."""
    visible = "".join(char if char.isprintable() else "\ufffd" for char in " ".join(label.split()) or "␣")
    return visible if len(visible) <= MAX_LABEL else visible[: MAX_LABEL - 1] + "…"


def _shorten_title(title: str, width: float) -> str:
    """Cut a title to a width in pixels."""
    room = width / SVG_TITLE / BOLD
    if _width(title) <= room:
        return title
    kept = title
    while _width(kept) > room - 1:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def _escape(text: str) -> str:
    return html.escape("".join(char if char.isprintable() else " " for char in text))


def _width(text: str) -> float:
    """Estimate the width of a text in units of its font size; no font is available to measure it."""
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> float:
    if unicodedata.combining(char):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    return 0.72 if char.isupper() or char in "mw@%" else 0.34 if char in "ilj.,:;'|!()[] " else 0.57
