"""Line charts as SVG for a page without scripts; colours come from the page's style, so they follow light and dark."""

import html
import math
from collections.abc import Iterator
from dataclasses import dataclass

Point = tuple[float, float]

WIDTH, HEIGHT = 460, 230
LEFT, RIGHT, TOP, BOTTOM = 46, 18, 10, 26
MOST_POINTS = 400  # more than there are pixels between two of them
MANY = 40  # points of a line beyond which they get no dots, and noise gets a moving average


@dataclass(frozen=True)
class Line:
    """A named series of (step, value), in order of step; a noisy one is drawn faint, with its moving average on top."""

    name: str
    points: list[Point]
    noisy: bool = False


@dataclass(frozen=True)
class _Frame:
    """The part of the plane that is shown."""

    right: float
    low: float
    high: float

    def x(self, step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / self.right

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / (self.high - self.low)


def chart(title: str, lines: list[Line], from_zero: bool = False) -> str:
    """A figure with the title, each line's name and last value, and the plot."""
    frame = _frame(lines, from_zero)
    drawn = "".join(_draw(line, number, frame) for number, line in enumerate(lines, 1))
    legend = "".join(_legend(line, number) for number, line in enumerate(lines, 1))
    return (
        f'<figure class="chart"><figcaption><b>{html.escape(title)}</b><span>{legend}</span></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        f"{_grid(frame)}{_cut_to_frame(drawn)}</svg></figure>"
    )


def _legend(line: Line, number: int) -> str:
    last = smooth(line.points)[-1] if line.noisy else line.points[-1]
    return f'<i class="line{number}">{html.escape(line.name)} <b>{short(last[1])}</b></i>'


def _cut_to_frame(drawn: str) -> str:
    """Hide what lies above the plot, but not the half of a dot on its edge."""
    x, y, width, height = LEFT - 4, TOP - 4, WIDTH - LEFT - RIGHT + 8, HEIGHT - TOP - BOTTOM + 8
    box = f'x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{x} {y} {width} {height}"'
    return f"<svg {box}>{drawn}</svg>"


def _draw(line: Line, number: int, frame: _Frame) -> str:
    points = thin(line.points)
    if len(points) > MANY and line.noisy:
        return _path(points, f"line{number} faint", frame) + _path(smooth(points), f"line{number}", frame)
    if len(points) > MANY:
        return _path(points, f"line{number}", frame)
    dots = "".join(
        f'<circle class="line{number}" cx="{frame.x(step):.1f}" cy="{frame.y(value):.1f}" r="2.6">'
        f"<title>step {step:,.0f}: {short(value)}</title></circle>"
        for step, value in points
    )
    return _path(points, f"line{number}", frame) + dots


def _path(points: list[Point], kind: str, frame: _Frame) -> str:
    positions = " ".join(f"{frame.x(step):.1f},{frame.y(value):.1f}" for step, value in points)
    return f'<polyline class="{kind}" points="{positions}"/>'


def thin(points: list[Point]) -> list[Point]:
    """At most MOST_POINTS of the points, evenly taken, the last always among them."""
    every = math.ceil(len(points) / MOST_POINTS)
    return points[::-1][::every][::-1]


def smooth(points: list[Point]) -> list[Point]:
    """Each point's average with its neighbours, as many before as after while there are, so that no curve lags."""
    result = []
    for i, (step, _) in enumerate(points):
        radius = min(len(points) // 40, i)
        near = points[i - radius : i + radius + 1]
        result.append((step, sum(value for _, value in near) / len(near)))
    return result


def _frame(lines: list[Line], from_zero: bool) -> _Frame:
    """Room for all values, but for the few highest where there is noise: the first losses would flatten the rest."""
    values = sorted(value for line in lines for _, value in line.points)
    high = values[-1 - (len(values) // 50 if any(line.noisy for line in lines) else 0)]
    low = 0.0 if from_zero or 0 <= values[0] < 0.5 * high else values[0]
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    steps = max(step for line in lines for step, _ in line.points)
    return _Frame(max(steps, 1), low if low == 0 else low - margin, high + margin)


def _grid(frame: _Frame) -> str:
    rows = "".join(
        f'<path class="grid" d="M{LEFT} {frame.y(value):.1f}H{WIDTH - RIGHT}"/>'
        f'<text x="{LEFT - 7}" y="{frame.y(value) + 4:.1f}" text-anchor="end">{short(value)}</text>'
        for value in ticks(frame.low, frame.high)
    )
    columns = "".join(
        f'<text x="{frame.x(step):.1f}" y="{HEIGHT - 7}" text-anchor="middle">{short(step)}</text>'
        for step in ticks(0, frame.right)
    )
    return rows + columns


def ticks(low: float, high: float) -> Iterator[float]:
    """Round numbers between two values, about four of them."""
    rough = (high - low) / 4
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.9)
    for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        yield i * step


def short(value: float) -> str:
    """A number in few characters: 1.25M, 12k, 0.53, 3.1e-4."""
    size = abs(value)
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):.3g}{letter}"
    if size >= 1000:
        return f"{value:,.0f}"
    if 0 < size < 1e-3:
        number, _, exponent = f"{value:.1e}".partition("e")
        return f"{number.removesuffix('.0')}e{int(exponent)}"
    return f"{value:.3g}"
