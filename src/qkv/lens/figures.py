"""What was seen as PNG files: all heads, one matrix, words and their partners, what mattered, places, meanings."""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.base.fonts import available_fonts
from qkv.lens.looking import Looked
from qkv.lens.maps import CROSS, Map
from qkv.lens.pictures import INK, attention_figure
from qkv.lens.sides import Side
from qkv.vectors.plot import plot_points

AGAINST = "#d95f02"
PARTS = {"encoder": "reading", "decoder": "looking back", "cross": "from target to source"}
OF_MAPS = ("heads", "head", "average")  # views of a part, or of one layer of it
VIEWS = (*OF_MAPS, "rollout", "alignment", "attribution", "positions", "embedding")


def draw(
    looked: Looked,
    path: Path,
    view: str | None = None,
    part: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Write one of VIEWS; layers and heads count from 1.

    Unless told, it is the head that is named, else words with their partners, where there are some, else all heads of a part.
    """
    if view is None:
        view = "head" if head is not None else "alignment" if looked.alignment and part is None else "heads"
    if view not in VIEWS:
        raise ConfigError(f"no view {view!r}; known are {', '.join(VIEWS)}")
    _check_choice(view, part, layer, head)
    if view in OF_MAPS:
        return _draw_attention(looked, path, view, maps_of(looked, part, layer), head)
    drawers = {"rollout": _draw_rollout, "alignment": _draw_alignment, "attribution": _draw_attribution,
               "positions": _draw_positions, "embedding": _draw_embedding}  # fmt: skip
    return drawers[view](looked, path)


def _check_choice(view: str, part: str | None, layer: int | None, head: int | None) -> None:
    """Refuse to draw something else than the part, the layer or the head that was named."""
    if head is not None and view != "head":
        raise ConfigError(f"the view {view} is not of one head; leave the head out, or choose the view head")
    if view not in OF_MAPS and (part, layer) != (None, None):
        raise ConfigError(f"the view {view} is of all parts and layers; leave them out, or choose {' or '.join(OF_MAPS)}")


def maps_of(looked: Looked, part: str | None, layer: int | None) -> list[Map]:
    """The maps of a part, by default the one from target to source or the only one, and of one layer where it is named."""
    known = list(dict.fromkeys(one.part for one in looked.maps))
    part = part or (CROSS if CROSS in known else known[0])
    if part not in known:
        raise ConfigError(f"no part {part!r} in this model; it has {', '.join(known)}")
    maps = [one for one in looked.maps if one.part == part]
    if layer is None:
        return maps
    if not 1 <= layer <= len(maps):
        raise ConfigError(f"no layer {layer} in the part {part}; it has 1 to {len(maps)}")
    return [maps[layer - 1]]


def _draw_attention(looked: Looked, path: Path, view: str, maps: list[Map], head: int | None) -> None:
    if view == "heads":
        return _draw_heads(looked, path, maps)
    rows, columns = (_labels(looked.sides[side]) for side in (maps[0].rows, maps[0].columns))
    name = PARTS[maps[0].part]
    if view == "average":
        weights = np.concatenate([one.weights.numpy() for one in maps]).mean(0)
        return attention_figure(weights, rows, columns, f"mean of all heads, {name}", path)
    one, number = maps[0], 1 if head is None else head
    if not 1 <= number <= len(one.weights):
        raise ConfigError(f"no head {number} in layer {one.layer + 1}; it has 1 to {len(one.weights)}")
    title = f"layer {one.layer + 1}, head {number}, {name}"
    return attention_figure(one.weights[number - 1].numpy(), rows, columns, title, path)


def _draw_heads(looked: Looked, path: Path, maps: list[Map]) -> None:
    habits = {(habit.map, habit.head): habit.pattern for habit in reversed(looked.habits)}
    wide, high = len(maps[0].weights), len(maps)
    with _figure(path, (max(4, 1.1 * wide), 1.3 * high + 0.5)) as figure:
        figure.suptitle(f"heads by layer, {PARTS[maps[0].part]}", x=0.01, ha="left", fontsize=11, fontweight="bold")
        grid = figure.subplots(high, wide, squeeze=False)
        for one, row in zip(maps, grid, strict=True):
            for head, axes in enumerate(row):
                axes.imshow(one.weights[head].numpy(), cmap=_ink(), vmin=0, aspect="auto")
                axes.set_xticks([])
                axes.set_yticks([])
                axes.spines[:].set_color("#d5d9e0")
                axes.set_title(f"{one.layer + 1}.{head + 1}", fontsize=7, pad=2, color="#5b6475")
                axes.set_xlabel(habits.get((one.name, head), ""), fontsize=7, labelpad=2)


def _draw_rollout(looked: Looked, path: Path) -> None:
    found = looked.rollout
    if found is None:
        raise ConfigError(f"there is no rollout of this model ({looked.model}): attention is not all that mixes its places")
    rows, columns = (_labels(looked.sides[side]) for side in (found.rows, found.columns))
    attention_figure(found.weights.numpy(), rows, columns, "attention through all layers", path)


def _draw_alignment(looked: Looked, path: Path) -> None:
    if looked.alignment is None:
        raise ConfigError(f"there is no alignment of a text with itself; choose another view, such as {' or '.join(OF_MAPS)}")
    sides = [looked.sides[name].spelled for name in ("source", "target")]
    with _figure(path, (max(4, 0.62 * max(map(len, sides)) + 0.5), 2.4), fitted=False) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        positions = [_spread(words) for words in sides]
        widest = max(ends[-1] for ends in positions)
        for words, xs, y in zip(sides, positions, (1.0, 0.0), strict=True):
            for word, x in zip(words, xs, strict=True):
                axes.text(x, y, word, ha="center", va="bottom" if y else "top", fontsize=10)
        for source, target, weight in looked.alignment:
            across, down = _curve(positions[0][source], positions[1][target])
            axes.plot(across, down, color=INK, linewidth=0.5 + 4 * weight, alpha=min(1.0, 0.15 + weight), solid_capstyle="round")
        axes.set_xlim(-1, widest + 1)
        axes.set_ylim(-0.3, 1.3)
        axes.axis("off")


def _spread(words: Sequence[str]) -> list[float]:
    """The middle of each word on a line, in about as many units as letters."""
    middles, end = [], 0.0
    for word in words:
        wide = sum(2.0 if ord(char) > 0x2E80 else 1.0 for char in word) + 1.5
        middles.append(end + wide / 2)
        end += wide
    return middles or [0.0]


def _curve(start: float, end: float) -> tuple[np.ndarray, np.ndarray]:
    """A line from a word above to one below, upright at both ends."""
    along = np.linspace(0, 1, 40)
    return start + (end - start) * (3 * along**2 - 2 * along**3), 0.97 - 0.94 * along


def _draw_attribution(looked: Looked, path: Path) -> None:
    found = looked.attribution
    if found is None:
        raise ConfigError("nothing was said that could be explained; give a text with [MASK], or a fine-tuned run")
    labels, values = _labels(looked.sides["source"]), found.values.numpy()
    with _figure(path, (6, 0.26 * len(labels) + 0.9)) as figure:
        axes = figure.subplots()
        axes.barh(range(len(labels)), values, color=[INK if value >= 0 else AGAINST for value in values])
        axes.set_yticks(range(len(labels)), labels, fontsize=9)
        axes.invert_yaxis()
        axes.axvline(0, color="#5b6475", linewidth=0.8)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_title(f"what spoke for (blue) and against {found.of}", loc="left", fontsize=10, fontweight="bold")


def _draw_positions(looked: Looked, path: Path) -> None:
    if looked.positions is None:
        raise ConfigError(
            f"nothing is added to embeddings to tell places in this {looked.model}; its attention tells them, if any"
        )
    values = looked.positions.numpy()
    most = float(np.quantile(np.abs(values), 0.98)) or 1.0
    with _figure(path, (8, max(2.0, 0.16 * len(values) + 1))) as figure:
        axes = figure.subplots()
        axes.imshow(values, cmap=_ink(both=True), vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        axes.set_ylabel("position")
        axes.set_xlabel("numbers of its vector, first to last")
        axes.set_xticks([])
        axes.set_title("what tells places: blue above 0, orange below", loc="left", fontsize=11, fontweight="bold")


def _draw_embedding(looked: Looked, path: Path) -> None:
    groups, points = [], []
    for name, found in looked.points.items():
        side = looked.sides[name]
        kept = {token: n for n, token in enumerate(side.tokens) if side.words[n] is not None}  # each once, and no marks
        groups.append([token.removeprefix("▁") or "␣" for token in kept])
        points.append(found.numpy()[list(kept.values())])
    plot_points(np.concatenate(points), groups, "embeddings of tokens: source blue, target orange", path)


def _labels(side: Side) -> list[str]:
    return [token.removeprefix("▁") or "␣" for token in side.tokens]


def _ink(both: bool = False) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ink", [AGAINST, "#f4f5f7", INK] if both else ["#f4f5f7", INK])


@contextlib.contextmanager
def _figure(path: Path, size: tuple[float, float], fitted: bool = True) -> Iterator[Any]:
    """A figure that is written as a PNG on leaving."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with (
        matplotlib.rc_context({"font.family": available_fonts(), "axes.unicode_minus": False, "text.parse_math": False}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph")  # a character without a font becomes a box, which says as much
        figure = Figure(figsize=size, dpi=160, layout="constrained" if fitted else None)
        yield figure
        with atomic_file(path) as aside:
            FigureCanvasAgg(figure).print_png(aside)
