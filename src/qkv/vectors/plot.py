"""A scatter plot of words: vectors in two dimensions by PCA, with labels that do not overlap."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.files import atomic_file
from qkv.base.fonts import available_fonts
from qkv.vectors.word_vectors import WordVectors

COLOURS = ("#3b5bdb", "#e8590c", "#0c8599", "#ae3ec9", "#5c940d", "#868e96", "#c92a2a")
LINE_COLOUR = "#868e96"
DOT = 6.5  # half of a point's width in pixels, with a margin
LINE = 3.0  # half of an arrow's width in pixels, with a margin
LABEL_DISTANCES = (0.0, 14.0, 30.0, 50.0)  # tried distances of a label from its point, in pixels
DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))

Arrow = tuple[tuple[float, float], tuple[float, float]]  # from where to where
Box = tuple[float, float, float, float]  # left, bottom, right, top


def pca_2d(vectors: np.ndarray) -> np.ndarray:
    """Project vectors, scaled to norm 1, on their first two principal components: (N, D) -> (N, 2)."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(norms > 0, norms, 1)
    unit = unit - unit.mean(axis=0)
    _, _, components = np.linalg.svd(unit, full_matrices=False)
    axes = np.zeros((2, vectors.shape[1]), vectors.dtype)
    axes[: len(components[:2])] = components[:2]
    # The sign of a component is arbitrary; fixing it makes plots reproducible.
    signs = np.sign(axes[[0, 1], np.abs(axes).argmax(axis=1)])
    return unit @ (axes * signs[:, None]).T


def plot_words(vectors: WordVectors, groups: list[list[str]], title: str, path: Path) -> int:
    """Plot words as a PNG with a colour for each group; return the number of words left without a label for lack of room."""
    words = [word for group in groups for word in group]
    return plot_points(pca_2d(vectors[words]), groups, title, path)


def plot_points(points: np.ndarray, groups: list[list[str]], title: str, path: Path, arrows: Sequence[Arrow] = ()) -> int:
    """Plot the points (N, 2) of the words of all groups, and arrows; return the number of words left without a label."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    words = [word for group in groups for word in group]
    colours = [COLOURS[i % len(COLOURS)] for i, group in enumerate(groups) for _ in group]
    with matplotlib.rc_context({"font.family": available_fonts(), "axes.unicode_minus": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a character that no font has is drawn as a box
        figure = Figure(figsize=(9, 7), dpi=160)
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_axes((0.03, 0.03, 0.94, 0.9))
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
        axes.scatter(points[:, 0], points[:, 1], s=14, c=colours, linewidths=0)
        axes.margins(0.08)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_color("#e5e5e0")
        for number, (start, end) in enumerate(arrows):
            look = {
                "arrowstyle": "-|>",
                "color": COLOURS[number % len(COLOURS)],
                "linewidth": 1.6,
                "mutation_scale": 14,
                "alpha": 0.7,
            }
            axes.annotate("", xy=end, xytext=start, arrowprops=look)
            axes.update_datalim([start, end])
        unlabelled = _draw_labels(axes, canvas.get_renderer(), words, points, colours, arrows)
        with atomic_file(path) as aside:
            canvas.print_png(aside)
    return unlabelled


def _draw_labels(
    axes: Any, renderer: Any, words: list[str], points: np.ndarray, colours: list[str], arrows: Sequence[Arrow]
) -> int:
    """Write each word where it covers neither a point nor an arrow nor another word; earlier words choose first."""
    size = 8.5 if len(words) <= 120 else 7
    axes.apply_aspect()
    axes.autoscale_view()
    pixels = axes.transData.transform(points)
    frame = axes.get_window_extent(renderer).extents
    taken = [(x - DOT, y - DOT, x + DOT, y + DOT) for x, y in pixels]
    for start, end in arrows:
        along = np.linspace(start, end, 100)[2:-2]  # the ends are at points
        taken += [(x - LINE, y - LINE, x + LINE, y + LINE) for x, y in axes.transData.transform(along)]
    unlabelled = 0
    for word, point, colour in zip(words, pixels, colours, strict=True):
        text = axes.text(0, 0, word.replace("$", r"\$"), transform=None, fontsize=size, color=colour, ha="left", va="bottom")
        extent = text.get_window_extent(renderer)
        box = _free_box(point, extent.width, extent.height, taken, frame)
        if box is None:
            text.remove()
            unlabelled += 1
            continue
        text.set_position((box[0], box[1]))
        taken.append(box)
        # A thin line connects a label with its point where it had to move away.
        x, y = min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3])
        if np.hypot(x - point[0], y - point[1]) > 2 * DOT:
            axes.plot([point[0], x], [point[1], y], transform=None, color=LINE_COLOUR, linewidth=0.5, zorder=0)
    return unlabelled


def _free_box(point: np.ndarray, width: float, height: float, taken: list[Box], frame: Box) -> Box | None:
    """Return the nearest free box of this size beside a point."""
    others = np.array(taken)
    for distance in LABEL_DISTANCES:
        for across, up in DIRECTIONS:
            x = point[0] + across * (width / 2 + DOT + distance)
            y = point[1] + up * (height / 2 + DOT + distance)
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            inside = frame[0] <= box[0] and frame[1] <= box[1] and box[2] <= frame[2] and box[3] <= frame[3]
            if inside and not _overlaps(box, others):
                return box
    return None


def _overlaps(box: Box, others: np.ndarray) -> bool:
    apart = (others[:, 0] >= box[2]) | (others[:, 2] <= box[0]) | (others[:, 1] >= box[3]) | (others[:, 3] <= box[1])
    return not bool(apart.all())
