"""Plots of a benchmark: bars with their spread, curves of losses, and growth with length."""

import math
import textwrap
from pathlib import Path
from typing import Any

OURS, THEIRS, SPREAD, SOFT = "#3b5bdb", "#ced4da", "#1c1e22", "#666b75"
LINES = ("#3b5bdb", "#0c8599", "#e8590c", "#ae3ec9", "#5c940d", "#868e96", "#c92a2a", "#1c1e22")

Bar = tuple[str, tuple[float, float, float], bool]  # name; median, lowest, highest; whether it is a peer
Line = tuple[str, dict[int, float], str]  # name; length -> value; exponent as text


def bars(title: str, cases: dict[str, list[Bar]], path: Path) -> None:
    """Plot horizontal bars, the fastest on top, in a panel for each case."""
    tallest = max(max(map(len, cases.values())), 1)
    across = min(2, len(cases))
    down = -(-len(cases) // across)
    figure = _figure(7.6 if across == 1 else 12, 0.9 + down * (0.75 + 0.34 * tallest))
    panels = figure.subplots(down, across, squeeze=False).flatten()
    for axes, (case, found) in zip(panels, cases.items(), strict=False):
        _bars(axes, sorted(found, key=lambda bar: bar[1][0]), case)
    for axes in panels[len(cases) :]:
        axes.axis("off")
    figure.suptitle(textwrap.fill(title, 40 + 56 * across), x=0.01, ha="left", fontsize=10, color=SOFT)
    figure.savefig(path, format="svg")


def _bars(axes: Any, found: list[Bar], heading: str) -> None:
    names = [name for name, _, _ in found]
    middles = [spread[0] for _, spread, _ in found]
    away = [[m - s[1] for m, (_, s, _) in zip(middles, found, strict=True)], [s[2] - s[0] for _, s, _ in found]]
    axes.barh(names, middles, color=[THEIRS if peer else OURS for _, _, peer in found], height=0.68)
    axes.errorbar(middles, names, xerr=away, fmt="none", ecolor=SPREAD, elinewidth=1.1, capsize=2.5)
    for name, (_, (middle, _, highest), _) in zip(names, found, strict=True):
        axes.annotate(f"{middle:,.0f}", (highest, name), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_xlim(0, max([spread[2] for _, spread, _ in found], default=1) * 1.16)
    axes.set_title(heading, loc="left", fontsize=11, fontweight="bold")
    axes.tick_params(length=0, labelsize=9)
    axes.tick_params(axis="x", colors=SOFT)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right", "left"]].set_visible(False)


def curves(losses: dict[str, list[float]], path: Path, smooth: int = 10) -> None:
    """Plot the running mean of each system's loss."""
    figure = _figure(7.6, 4.2)
    axes = figure.subplots()
    for colour, (name, values) in zip(LINES, losses.items(), strict=False):
        means = [sum(values[max(0, i + 1 - smooth) : i + 1]) / min(smooth, i + 1) for i in range(len(values))]
        style = "-" if name.startswith("qkv") else "--"
        axes.plot(range(1, len(values) + 1), means, style, color=colour, label=name, linewidth=1.6)
    axes.set_title("Training loss on text that can be learned, same batches", loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel("updates", color=SOFT)
    axes.set_ylabel("nats a target token, smoothed labels", color=SOFT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, format="svg")


def growth(title: str, panels: dict[str, list[Line]], path: Path) -> None:
    """Plot values against length on logarithmic axes, where a power is a straight line; each line has its name at its end.

    Zeros, such as memory too small to measure, have no logarithm and are left out.
    """
    figure, panels = _figure(12, 9), dict(panels)
    for heading, lines in list(panels.items()):
        positive = [(name, {length: v for length, v in values.items() if v > 0}, power) for name, values, power in lines]
        panels[heading] = [line for line in positive if line[1]]
    panels = {heading: lines for heading, lines in panels.items() if lines}
    names = list(dict.fromkeys(name for lines in panels.values() for name, _, _ in lines))
    colours = {name: LINES[number % len(LINES)] for number, name in enumerate(names)}
    for axes, (heading, lines) in zip(figure.subplots(2, max(1, -(-len(panels) // 2))).flatten(), panels.items(), strict=False):
        _growth(axes, heading, lines, colours)
    figure.suptitle(textwrap.fill(title, 150), x=0.01, ha="left", fontsize=10, color=SOFT)
    figure.savefig(path, format="svg")


def _growth(axes: Any, heading: str, lines: list[Line], colours: dict[str, str]) -> None:
    from matplotlib.ticker import LogLocator

    lengths = sorted({length for _, values, _ in lines for length in values})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for name, values, _ in lines:
        axes.plot(list(values), list(values.values()), "o-", color=colours[name], linewidth=1.6, markersize=3.5)
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.minorticks_off()
    axes.set_xlim(lengths[0] / 1.1, lengths[-1] * (lengths[-1] / lengths[0]) ** 0.35)  # space for the names
    _name_ends(axes, lines, colours)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_title(heading, loc="left", fontsize=11, fontweight="bold")
    axes.tick_params(labelsize=9, colors=SOFT)
    axes.spines[["top", "right"]].set_visible(False)


def _name_ends(axes: Any, lines: list[Line], colours: dict[str, str]) -> None:
    """Write names and exponents beside the ends of lines, one above the other where ends are close together."""
    last = max(length for _, values, _ in lines for length in values)
    apart = math.log(axes.get_ylim()[1] / axes.get_ylim()[0]) / 22  # the height of a name
    below = -math.inf
    for value, name, length, power in sorted((values[max(values)], name, max(values), power) for name, values, power in lines):
        text, style = f"{name}  $n^{{{power}}}$" if power else name, {"color": colours[name], "fontsize": 9}
        if length < last:  # a line that ends early has space above its end
            axes.annotate(text, (length, value), xytext=(-4, 5), textcoords="offset points", ha="right", **style)
            continue
        below = max(math.log(value), below + apart)
        leader = {"arrowstyle": "-", "color": colours[name], "linewidth": 0.6, "relpos": (0, 0.5), "shrinkA": 0}
        axes.annotate(text, (length, value), xytext=(last * 1.12, math.exp(below)), va="center", arrowprops=leader, **style)


def _figure(width: float, height: float) -> Any:
    import matplotlib.backends.backend_svg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    matplotlib.backends.backend_svg.FigureCanvasSVG(figure)
    return figure
