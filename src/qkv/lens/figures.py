"""PNG pictures of an attention view: heads, rollout, alignment, attribution, position encodings, embeddings."""

import contextlib
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_file
from qkv.base.fonts import available_fonts
from qkv.lens.attribution import Attribution
from qkv.lens.heatmap import INK, attention_png
from qkv.lens.inspectors import CROSS, AttentionMap
from qkv.lens.snapshots import TrainingView
from qkv.lens.tokenized_text import TokenizedText
from qkv.lens.view import AttentionView
from qkv.vectors.plot import plot_points

NEGATIVE = "#d95f02"
PARTS = {"encoder": "reading", "decoder": "looking back", "cross": "from target to source"}
MAP_VIEWS = ("heads", "head", "average")  # views of a part, or of one layer of it
VIEWS = (*MAP_VIEWS, "rollout", "alignment", "attribution", "positions", "embedding")


def draw_view(
    view: AttentionView,
    path: Path,
    name: str | None = None,
    part: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Draw one of VIEWS as a PNG; layers and heads count from 1.

    Without a name, draw the given head, else the alignment if there is one, else all heads of a part.
    """
    if name is None:
        name = "head" if head is not None else "alignment" if view.alignment and part is None else "heads"
    if name not in VIEWS:
        raise ConfigError(f"no view {name!r}; known are {', '.join(VIEWS)}")
    if head is not None and name != "head":
        raise ConfigError(f"the view {name} is not of one head; leave the head out, or choose the view head")
    if name not in MAP_VIEWS and (part, layer) != (None, None):
        raise ConfigError(f"the view {name} is of all parts and layers; leave them out, or choose {' or '.join(MAP_VIEWS)}")
    if name == "heads":
        return _draw_heads(view, path, select_maps(view, part, layer))
    if name in MAP_VIEWS:
        return _draw_matrix(view, path, name, select_maps(view, part, layer), head)
    drawers = {"rollout": _draw_rollout, "alignment": _draw_alignment, "attribution": _draw_attribution,
               "positions": _draw_positions, "embedding": _draw_embedding}  # fmt: skip
    return drawers[name](view, path)


def select_maps(view: AttentionView, part: str | None, layer: int | None) -> list[AttentionMap]:
    """Return the maps of a part, by default cross-attention or the only part, and of one layer if it is given."""
    known = list(dict.fromkeys(one.part for one in view.maps))
    part = part or (CROSS if CROSS in known else known[0])
    if part not in known:
        raise ConfigError(f"no part {part!r} in this model; it has {', '.join(known)}")
    maps = [one for one in view.maps if one.part == part]
    if layer is None:
        return maps
    if not 1 <= layer <= len(maps):
        raise ConfigError(f"no layer {layer} in the part {part}; it has 1 to {len(maps)}")
    return [maps[layer - 1]]


def _draw_matrix(view: AttentionView, path: Path, name: str, maps: list[AttentionMap], head: int | None) -> None:
    """Draw one head, or the average of all."""
    rows, columns = (token_labels(view.texts[text]) for text in (maps[0].rows, maps[0].columns))
    part = PARTS[maps[0].part]
    if name == "average":
        weights = np.concatenate([one.weights.numpy() for one in maps]).mean(0)
        return attention_png(weights, rows, columns, f"mean of all heads, {part}", path)
    one, number = maps[0], 1 if head is None else head
    if not 1 <= number <= len(one.weights):
        raise ConfigError(f"no head {number} in layer {one.layer + 1}; it has 1 to {len(one.weights)}")
    title = f"layer {one.layer + 1}, head {number}, {part}"
    return attention_png(one.weights[number - 1].numpy(), rows, columns, title, path)


def _draw_heads(view: AttentionView, path: Path, maps: list[AttentionMap]) -> None:
    patterns = {(one.map, one.head): one.pattern for one in reversed(view.patterns)}
    wide, high = len(maps[0].weights), len(maps)
    with png_figure(path, (max(4, 1.1 * wide), 1.3 * high + 0.5)) as figure:
        figure.suptitle(f"heads by layer, {PARTS[maps[0].part]}", x=0.01, ha="left", fontsize=11, fontweight="bold")
        grid = figure.subplots(high, wide, squeeze=False)
        for one, row in zip(maps, grid, strict=True):
            for head, axes in enumerate(row):
                axes.imshow(one.weights[head].numpy(), cmap=colour_map(), vmin=0, aspect="auto")
                axes.set_xticks([])
                axes.set_yticks([])
                axes.spines[:].set_color("#d5d9e0")
                axes.set_title(f"{one.layer + 1}.{head + 1}", fontsize=7, pad=2, color="#5b6475")
                axes.set_xlabel(patterns.get((one.name, head), ""), fontsize=7, labelpad=2)


def _draw_rollout(view: AttentionView, path: Path) -> None:
    found = view.rollout
    if found is None:
        raise ConfigError(f"there is no rollout of this model ({view.model}): not only attention mixes its positions")
    rows, columns = (token_labels(view.texts[text]) for text in (found.rows, found.columns))
    attention_png(found.weights.numpy(), rows, columns, "attention through all layers", path)


def _draw_alignment(view: AttentionView, path: Path) -> None:
    if view.alignment is None:
        raise ConfigError(f"there is no alignment of a text with itself; choose another view, such as {' or '.join(MAP_VIEWS)}")
    texts = [view.texts[name].words for name in ("source", "target")]
    if not all(texts):
        raise DataError("an empty text has no alignment, and the model's own output is empty until it has learned; give --target")
    with png_figure(path, (max(4, 0.62 * max(map(len, texts)) + 0.5), 2.4), fitted=False) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        positions = [_word_centers(words) for words in texts]
        along = np.linspace(0, 1, 40)
        widest = max(ends[-1] for ends in positions)
        for words, xs, y in zip(texts, positions, (1.0, 0.0), strict=True):
            for word, x in zip(words, xs, strict=True):
                axes.text(x, y, word, ha="center", va="bottom" if y else "top", fontsize=10)
        for source, target, weight in view.alignment:
            start, end = positions[0][source], positions[1][target]
            across = start + (end - start) * (3 * along**2 - 2 * along**3)  # a curve that is upright at both ends
            thickness, alpha = 0.5 + 4 * weight, min(1.0, 0.15 + weight)
            axes.plot(across, 0.97 - 0.94 * along, color=INK, linewidth=thickness, alpha=alpha, solid_capstyle="round")
        axes.set_xlim(-1, widest + 1)
        axes.set_ylim(-0.3, 1.3)
        axes.axis("off")


def _word_centers(words: Sequence[str]) -> list[float]:
    """Return the center of each word on a line, in units of about a letter."""
    centers, end = [], 0.0
    for word in words:
        wide = sum(2.0 if ord(char) > 0x2E80 else 1.0 for char in word) + 1.5
        centers.append(end + wide / 2)
        end += wide
    return centers


def _draw_attribution(view: AttentionView, path: Path) -> None:
    if view.attribution is None:
        raise ConfigError("this model has no output here to attribute; give a text with [MASK], or a fine-tuned run")
    draw_attribution(view.attribution, view.texts["source"], path)


def draw_attribution(found: Attribution, source: TokenizedText, path: Path) -> None:
    """Draw the contribution of each token of a source as a PNG."""
    labels, values = token_labels(source), found.values.numpy()
    with png_figure(path, (6, 0.26 * len(labels) + 0.9)) as figure:
        axes = figure.subplots()
        axes.barh(range(len(labels)), values, color=[INK if value >= 0 else NEGATIVE for value in values])
        axes.set_yticks(range(len(labels)), labels, fontsize=9)
        axes.invert_yaxis()
        axes.axvline(0, color="#5b6475", linewidth=0.8)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_title(f"what supports (blue) and opposes {found.of}", loc="left", fontsize=10, fontweight="bold")


def draw_training(view: TrainingView, path: Path, head: int | None = None) -> None:
    """Draw the attention of each snapshot of a training: one head, from 1, or the mean over heads and layers of a part."""
    maps = view.snapshots[-1].maps
    part = CROSS if any(one.part == CROSS for one in maps) else maps[0].part
    heads = min(len(one.weights) for one in maps if one.part == part)
    if head is not None and not 1 <= head <= heads:
        raise ConfigError(f"no head {head} in the part {part}; it has 1 to {heads}")
    first = next(one for one in maps if one.part == part)
    rows, columns = (token_labels(view.final.texts[text]) for text in (first.rows, first.columns))
    across = min(5, len(view.snapshots))
    down = -(-len(view.snapshots) // across)
    cell = min(0.16, 2.4 / max(len(rows), len(columns)))
    with png_figure(path, (across * (cell * len(columns) + 1.1), down * (cell * len(rows) + 1.2) + 0.4)) as figure:
        name = "mean of all heads" if head is None else f"head {head}"
        figure.suptitle(f"{name}, {PARTS[part]}, through training", x=0.01, ha="left", fontsize=11, fontweight="bold")
        grid = figure.subplots(down, across, squeeze=False).flatten()
        for axes, one in zip(grid, view.snapshots, strict=False):
            chosen = [
                found.weights if head is None else found.weights[head - 1 : head] for found in one.maps if found.part == part
            ]
            axes.imshow(np.concatenate([weights.numpy() for weights in chosen]).mean(0), cmap=colour_map(), vmin=0, vmax=1)
            loss = "" if one.loss is None else f", loss {one.loss:.2f}"
            axes.set_title(f"step {one.step:,}{loss}", fontsize=8, loc="left")
            axes.set_xlabel(textwrap.fill(textwrap.shorten(one.output or "", 64, placeholder=" …"), 32), fontsize=6)
            axes.set_xticks(range(len(columns)), columns, fontsize=5, rotation=90)
            axes.set_yticks(range(len(rows)), rows, fontsize=5)
            axes.tick_params(length=0, pad=1)
            axes.spines[:].set_color("#d5d9e0")
        for axes in grid[len(view.snapshots) :]:
            axes.axis("off")


def _draw_positions(view: AttentionView, path: Path) -> None:
    if view.positions is None:
        raise ConfigError(f"this {view.model} adds no position encodings to its embeddings; choose another view")
    values = view.positions.numpy()
    most = float(np.quantile(np.abs(values), 0.98)) or 1.0
    with png_figure(path, (8, max(2.0, 0.16 * len(values) + 1))) as figure:
        axes = figure.subplots()
        axes.imshow(values, cmap=colour_map(both=True), vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        axes.set_ylabel("position")
        axes.set_xlabel("dimensions of its encoding, first to last")
        axes.set_xticks([])
        axes.set_title("position encodings: blue above 0, orange below", loc="left", fontsize=11, fontweight="bold")


def _draw_embedding(view: AttentionView, path: Path) -> None:
    groups, points = [], []
    for name, found in view.points.items():
        text = view.texts[name]
        kept = {token: n for n, token in enumerate(text.tokens) if text.word_ids[n] is not None}  # each once, no special tokens
        groups.append([token.removeprefix("▁") or "␣" for token in kept])
        points.append(found.numpy()[list(kept.values())])
    plot_points(np.concatenate(points), groups, "embeddings of tokens: source blue, target orange", path)


def token_labels(text: TokenizedText) -> list[str]:
    """Return the tokens of a text as people read them."""
    return [token.removeprefix("▁") or "␣" for token in text.tokens]


def colour_map(both: bool = False) -> Any:
    """Return the colour map of weights; with `both`, for values of both signs."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ink", [NEGATIVE, "#f4f5f7", INK] if both else ["#f4f5f7", INK])


@contextlib.contextmanager
def png_figure(path: Path, size: tuple[float, float], fitted: bool = True) -> Iterator[Any]:
    """Yield a figure, and write it as a PNG on leaving."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with (
        matplotlib.rc_context({"font.family": available_fonts(), "axes.unicode_minus": False, "text.parse_math": False}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph")  # a character that no font has is drawn as a box
        figure = Figure(figsize=size, dpi=160, layout="constrained" if fitted else None)
        yield figure
        with atomic_file(path) as aside:
            FigureCanvasAgg(figure).print_png(aside)
