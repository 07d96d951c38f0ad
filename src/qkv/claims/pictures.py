"""Pictures of a claim's figures as SVG that follows light and dark mode: dots of seeds with their mean, and curves.

A picture is 460 units wide, readable on a phone. `strip` and `curves` make the panels of a claim, which draw themselves once
there is a result: one number for each variant, or a curve for each. `stack` puts pictures under each other.
"""

import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qkv.base.errors import ConfigError
from qkv.claims.claim import Panel
from qkv.claims.experiment import Result
from qkv.claims.verdict import interval_of_mean
from qkv.report.charts import short, ticks

WIDTH, LEFT, RIGHT = 460, 46, 78  # RIGHT holds a mean of up to eight characters
TITLE, HALF = 50, 20  # characters that a line of a title, and half of a legend's line, can hold
COLOURS = 6
STYLE = """
.claim-picture{--paper:#fff;--ink:#1c1e22;--soft:#666b75;--rule:#dcdcd6;--c1:#3b5bdb;--c2:#e8590c;--c3:#0c8599;--c4:#ae3ec9;--c5:#5c940d;--c6:#868e96;
font:15px ui-sans-serif,system-ui,"Segoe UI",Roboto,"Noto Sans",sans-serif}
@media(prefers-color-scheme:dark){.claim-picture{--paper:#1b1d22;--ink:#e7e8ea;--soft:#a2a8b3;--rule:#363a43;--c1:#8ea6ff;--c2:#ff9f5a;--c3:#4fc3d6;
--c4:#d98bee;--c5:#a3cf5c;--c6:#9aa1ab}}
.claim-picture text{fill:var(--ink);stroke:var(--paper);stroke-width:3px;paint-order:stroke}
.claim-picture .soft{fill:var(--soft);font-size:13.5px}
.claim-picture .title{font-weight:600}.claim-picture .rule{stroke:var(--rule);stroke-width:1}
.claim-picture .mark{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:4 3}
""" + "".join(
    f".claim-picture .f{i}{{fill:var(--c{i})}}.claim-picture .s{i}{{stroke:var(--c{i});fill:none}}" for i in range(1, COLOURS + 1)
)


class Picture(NamedTuple):
    """The inside of an SVG of width 460, and its height."""

    height: float
    body: str
    label: str  # what it shows, for those who cannot see it


def render(picture: Picture) -> str:
    """Return a whole SVG file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="claim-picture" viewBox="0 0 {WIDTH} {picture.height:.0f}" role="img" '
        f'aria-label="{html.escape(picture.label)}"><style>{STYLE}</style>{picture.body}</svg>\n'
    )


def stack(*pictures: Picture) -> Picture:
    """Put pictures under each other."""
    body, top = "", 0.0
    for picture in pictures:
        body += f'<g transform="translate(0 {top:.0f})">{picture.body}</g>'
        top += picture.height + 14
    return Picture(top - 14, body, "; ".join(picture.label for picture in pictures))


def strip(
    *figures: str,
    variants: Sequence[str] = (),
    marks: Mapping[str, float] | None = None,
    log: bool = False,
    span: Sequence[float] = (),
) -> Panel:
    """Return a panel of one number for each variant: a dot for each seed, the mean, and its 95 % interval.

    Several figures are drawn under each other on one scale. `marks` are named values, `span` values that the scale must reach,
    such as (0, 1) for shares.
    """

    def draw(result: Result) -> Picture:
        names = variants or [*result.figures]
        reached = [
            *span,
            *(marks or {}).values(),
            *(value for one in figures for name in names for value in result.values(name, one)),
        ]
        axis = _Axis(reached, LEFT - 30, WIDTH - RIGHT, log)
        return stack(*(_strip(result, figure, names, axis, marks or {}) for figure in figures))

    return Panel(figures, tuple(variants), draw)


def _strip(result: Result, figure: str, names: Sequence[str], axis: "_Axis", marks: Mapping[str, float]) -> Picture:
    values = {name: [float(value) for value in result.values(name, figure)] for name in names}
    row, top = 48, 52 if marks else 32
    height = top + row * len(names) + 22
    body = ""
    for value in axis.ticks():
        body += f'<path class="rule" d="M{axis(value):.1f} {top - 4}V{height - 18}"/>'
        body += f'<text class="soft" x="{axis(value):.1f}" y="{height - 4}" text-anchor="middle">{short(value)}</text>'
    for name, value in marks.items():
        beside = "".join(f"M{axis(value):.1f} {top + row * number + 22}v24" for number in range(len(names)))  # not through labels
        body += f'<path class="mark" d="{beside}"/>'
        anchor = "end" if axis(value) > WIDTH / 2 else "start"
        body += f'<text class="soft" x="{axis(value):.1f}" y="{top - 10}" text-anchor="{anchor}">{html.escape(name)}</text>'
    for number, name in enumerate(names):
        some, colour, y = values[name], number % COLOURS + 1, top + row * number + 34
        body += f'<text x="{LEFT - 30}" y="{y - 14}">{html.escape(name)}</text>'
        found = interval_of_mean([math.log(value) for value in some] if axis.log else some)
        mean, *ends = [math.exp(value) if axis.log else value for value in (found.mean, found.low, found.high)]
        if len(some) > 2:
            low, high = (min(max(axis(end), LEFT - 34), WIDTH - RIGHT + 4) for end in ends)
            body += f'<path class="s{colour}" stroke-width="2.5" d="M{low:.1f} {y}H{high:.1f}"/>'
        body += f'<path class="s{colour}" stroke-width="3" d="M{axis(mean):.1f} {y - 7}V{y + 7}"/>'
        body += "".join(
            f'<circle class="f{colour}" cx="{axis(value):.1f}" cy="{y}" r="3.6" fill-opacity=".55">'
            f"<title>seed {seed}: {value:.4g}</title></circle>"
            for seed, value in zip(result.seeds, some, strict=True)
        )
        body += f'<text x="{WIDTH - 4}" y="{y + 4}" text-anchor="end">{short(mean)}</text>'
    return _titled(result.named.claim.units[figure], height, body, "by variant")


def curves(
    figure: str,
    x: Sequence[float],
    x_label: str,
    variants: Sequence[str] = (),
    log: bool = False,
    span: Sequence[float] = (),
) -> Panel:
    """Return a panel of a curve for each variant: the mean over seeds, in a band from the lowest to the highest seed."""

    def draw(result: Result) -> Picture:
        values = {name: result.values(name, figure) for name in variants or result.figures}
        return _curves(values, result.named.claim.units[figure], x, x_label, log, span)

    return Panel((figure,), tuple(variants), draw)


def _curves(
    values: Mapping[str, Sequence[Sequence[float]]],
    title: str,
    x: Sequence[float],
    x_label: str,
    log: bool,
    span: Sequence[float],
) -> Picture:
    """Draw the curves of some names, each with one curve for each seed."""
    names, top, bottom = [*values], 34, 236
    columns = 1 if max(map(len, names)) > HALF else 2
    legend_rows = math.ceil(len(names) / columns)
    height = bottom + 44 + 20 * legend_rows
    across = _Axis(x, LEFT, WIDTH - 14, log)
    up = _Axis([*span, *(value for some in values.values() for curve in some for value in curve)], bottom, top)
    body = ""
    for value in up.ticks():
        body += f'<path class="rule" d="M{LEFT} {up(value):.1f}H{WIDTH - 14}"/>'
        body += f'<text class="soft" x="{LEFT - 6}" y="{up(value) + 4:.1f}" text-anchor="end">{short(value)}</text>'
    for value in x if len(x) <= 9 else across.ticks():
        body += f'<text class="soft" x="{across(value):.1f}" y="{bottom + 18}" text-anchor="middle">{short(value)}</text>'
    body += (
        f'<text class="soft" x="{(LEFT + WIDTH - 14) / 2}" y="{bottom + 36}" text-anchor="middle">{html.escape(x_label)}</text>'
    )
    for number, name in enumerate(names):
        colour, points = number % COLOURS + 1, list(zip(*values[name], strict=True))  # of each x, the values of all seeds
        means = [(across(at), up(sum(some) / len(some))) for at, some in zip(x, points, strict=True)]
        edge = [(across(at), up(max(some))) for at, some in zip(x, points, strict=True)]
        edge += [(across(at), up(min(some))) for at, some in zip(x, points, strict=True)][::-1]
        body += f'<polygon class="f{colour}" fill-opacity=".16" points="{_points(edge)}"/>'
        body += f'<polyline class="s{colour}" stroke-width="2.2" points="{_points(means)}"/>'
        body += "".join(f'<circle class="f{colour}" cx="{at:.1f}" cy="{y:.1f}" r="2.6"/>' for at, y in means)
        left, y = (LEFT if number % columns == 0 else WIDTH / 2 + 10), bottom + 60 + 20 * (number // columns)
        body += f'<path class="s{colour}" stroke-width="3" d="M{left} {y - 4}h16"/>'
        body += f'<text x="{left + 22}" y="{y}">{html.escape(name)}</text>'
    return _titled(title, height, body, f"over {x_label}")


def _titled(title: str, height: float, body: str, over: str) -> Picture:
    """Put a title above a drawing that has room for one line of it."""
    lines = textwrap.wrap(title, TITLE)
    extra = 19 * (len(lines) - 1)
    text = "".join(
        f'<text class="title" x="16" y="{16 + 19 * number}">{html.escape(line)}</text>' for number, line in enumerate(lines)
    )
    return Picture(height + extra, f'{text}<g transform="translate(0 {extra})">{body}</g>', f"{title} {over}")


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


class _Axis:
    """Maps values to places between two ends, with some room at both; logarithmic if wanted."""

    def __init__(self, values: Sequence[float], start: float, end: float, log: bool = False):
        self.log, self.start, self.end = log, start, end
        if log and min(values) <= 0:
            raise ConfigError(f"a logarithmic picture needs positive values, got {min(values):g}; leave log=True out")
        low, high = (math.log10(min(values)), math.log10(max(values))) if log else (min(values), max(values))
        room = (high - low) * 0.04 or abs(high) * 0.05 or 0.5
        self.low, self.high = low - room, high + room

    def __call__(self, value: float) -> float:
        at = math.log10(value) if self.log else value
        return self.start + (self.end - self.start) * (at - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        if not self.log:
            return [*ticks(self.low, self.high)]
        return [10.0**i for i in range(math.ceil(self.low), math.floor(self.high) + 1)]
