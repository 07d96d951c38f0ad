"""Line charts and reliability diagrams as SVG for a page without scripts; colours come from the page's style, as in dark mode."""

import html
import math
from collections.abc import Iterator
from dataclasses import dataclass

Point = tuple[float, float]

WIDTH, HEIGHT = 460, 230
LEFT, RIGHT, TOP, BOTTOM = 46, 18, 10, 26
MAX_POINTS = 400  # more than there are pixels between two of them
LABEL = 40  # pixels that a number below the plot takes
MANY = 40  # a line with more points gets no dots, and a noisy one gets a moving average


@dataclass(frozen=True)
class Line:
    """A named series of (step, value) in order of step; a noisy one is drawn faint, with its moving average on top."""

    name: str
    points: list[Point]
    noisy: bool = False


@dataclass(frozen=True)
class _Axes:
    """The range of the plot, steps up to `right` and values from `low` to `high`, and its mapping to pixels."""

    right: float
    low: float
    high: float
    left: float = 0.0
    log: bool = False  # of the horizontal axis

    def x(self, step: float) -> float:
        first, last, at = (math.log(each) if self.log else each for each in (self.left, self.right, step))
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - first) / (last - first)

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / (self.high - self.low)


def chart(title: str, lines: list[Line], from_zero: bool = False) -> str:
    """Draw a figure with a title, the name and last value of each line, and the plot."""
    axes, legend = _fit_axes(lines, from_zero), ""
    for number, line in enumerate(lines, 1):
        last = smooth(line.points)[-1] if line.noisy else line.points[-1]
        legend += f'<i class="line{number}">{html.escape(line.name)} <b>{short(last[1])}</b></i>'
    return _figure(title, legend, lines, axes, [*ticks(0, axes.right)])


def chart_over_key(title: str, lines: list[Line]) -> str:
    """Draw values over those of a key of a recipe, on a log scale where the ends differ by a factor of ten or more."""
    tried = sorted({at for line in lines for at, _ in line.points})
    left, right = tried[0], tried[-1]
    fitted = _fit_axes(lines, from_zero=False)
    axes = _Axes(right, fitted.low, fitted.high, left, log=left > 0 and right >= 10 * left)
    labelled: list[float] = []
    for at in tried:
        if not labelled or axes.x(at) - axes.x(labelled[-1]) > LABEL:
            labelled.append(at)
    legend = "".join(f'<i class="line{number}">{html.escape(line.name)}</i>' for number, line in enumerate(lines, 1))
    return _figure(title, legend, lines, axes, labelled)


def _figure(title: str, legend: str, lines: list[Line], axes: _Axes, columns: list[float]) -> str:
    plot = "".join(_draw(line, number, axes) for number, line in enumerate(lines, 1))
    # An inner SVG clips what lies above the plot, but not the half of a dot on its edge.
    x, y, width, height = LEFT - 4, TOP - 4, WIDTH - LEFT - RIGHT + 8, HEIGHT - TOP - BOTTOM + 8
    box = f'x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{x} {y} {width} {height}"'
    return (
        f'<figure class="chart"><figcaption><b>{html.escape(title)}</b><span>{legend}</span></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        f"{_grid(axes, columns)}<svg {box}>{plot}</svg></svg></figure>"
    )


def reliability_chart(title: str, bins: list[tuple[float, float, int]]) -> str:
    """Draw what was observed over what was predicted, both from 0 to 1; a dot's area shows its count, the diagonal is perfect."""
    axes, most = _Axes(1.0, 0.0, 1.0), max(count for _, _, count in bins)
    dots = ""
    for predicted, observed, count in bins:
        radius = 2 + 7 * math.sqrt(count / most)
        dots += (
            f'<circle class="line1" cx="{axes.x(predicted):.1f}" cy="{axes.y(observed):.1f}" r="{radius:.1f}">'
            f"<title>predicted {predicted:.2f}, observed {observed:.2f}: {count:,} texts</title></circle>"
        )
    diagonal = f'<path class="grid" d="M{axes.x(0):.1f} {axes.y(0):.1f}L{axes.x(1):.1f} {axes.y(1):.1f}"/>'
    line = _polyline([(predicted, observed) for predicted, observed, _ in bins], "line1 faint", axes)
    return (
        f'<figure class="chart"><figcaption><b>{html.escape(title)}</b><span><i class="line1">observed over predicted</i></span>'
        f'</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        f"{_grid(axes, [*ticks(0, 1)])}{diagonal}{line}{dots}</svg></figure>"
    )


def _draw(line: Line, number: int, axes: _Axes) -> str:
    points = thin(line.points)
    if len(points) > MANY and line.noisy:
        return _polyline(points, f"line{number} faint", axes) + _polyline(smooth(points), f"line{number}", axes)
    if len(points) > MANY:
        return _polyline(points, f"line{number}", axes)
    dots = "".join(
        f'<circle class="line{number}" cx="{axes.x(step):.1f}" cy="{axes.y(value):.1f}" r="2.6">'
        f"<title>{f'{step:,.4g}' if axes.left else f'step {step:,.0f}'}: {short(value)}</title></circle>"
        for step, value in points
    )
    return _polyline(points, f"line{number}", axes) + dots


def _polyline(points: list[Point], classes: str, axes: _Axes) -> str:
    pixels = " ".join(f"{axes.x(step):.1f},{axes.y(value):.1f}" for step, value in points)
    return f'<polyline class="{classes}" points="{pixels}"/>'


def thin(points: list[Point]) -> list[Point]:
    """Return at most MAX_POINTS of the points, evenly spaced, always with the last one."""
    every = math.ceil(len(points) / MAX_POINTS)
    return points[::-1][::every][::-1]


def smooth(points: list[Point]) -> list[Point]:
    """Return a moving average over a window centred on each point, so that the curve does not lag."""
    averages = []
    for i, (step, _) in enumerate(points):
        radius = min(len(points) // 40, i)
        near = points[i - radius : i + radius + 1]
        averages.append((step, sum(value for _, value in near) / len(near)))
    return averages


def _fit_axes(lines: list[Line], from_zero: bool) -> _Axes:
    """Fit the axes to all values; where there is noise, the few highest may lie outside, or the first losses flatten the rest."""
    values = sorted(value for line in lines for _, value in line.points)
    high = values[-1 - (len(values) // 50 if any(line.noisy for line in lines) else 0)]
    low = 0.0 if from_zero or 0 <= values[0] < 0.5 * high else values[0]
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    steps = max(step for line in lines for step, _ in line.points)
    return _Axes(max(steps, 1), low if low == 0 else low - margin, high + margin)


def _grid(axes: _Axes, columns: list[float]) -> str:
    """Draw horizontal grid lines, and the numbers of both axes: round ones on the left, `columns` below."""
    rows = "".join(
        f'<path class="grid" d="M{LEFT} {axes.y(value):.1f}H{WIDTH - RIGHT}"/>'
        f'<text x="{LEFT - 7}" y="{axes.y(value) + 4:.1f}" text-anchor="end">{short(value)}</text>'
        for value in ticks(axes.low, axes.high)
    )
    return rows + "".join(
        f'<text x="{axes.x(step):.1f}" y="{HEIGHT - 7}" text-anchor="middle">{short(step)}</text>' for step in columns
    )


def ticks(low: float, high: float) -> Iterator[float]:
    """Yield about four round numbers between two values."""
    rough = (high - low) / 4
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.9)
    for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        yield i * step


def short(value: float) -> str:
    """Format a number in few characters: 1.25M, 12k, 0.53, 3.1e-4."""
    size = abs(value)
    if math.isinf(value):
        return f"{value:.0f}"
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):.3g}{letter}"
    if size >= 1000:
        return f"{value:,.0f}"
    if 0 < size < 1e-3:
        number, _, exponent = f"{value:.1e}".partition("e")
        return f"{number.removesuffix('.0')}e{int(exponent)}"
    return f"{value:.3g}"
