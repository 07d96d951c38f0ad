"""A map of words: vectors in two dimensions by PCA, each word beside its point, no two words one over the other."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.files import atomic_file
from qkv.base.fonts import available_fonts
from qkv.vectors.word_vectors import WordVectors

COLOURS = ("#3b5bdb", "#e8590c", "#0c8599", "#ae3ec9", "#5c940d", "#868e96", "#c92a2a")
SOFT, DOT = "#868e96", 6.5  # of lines from words to points; half a point's width in pixels, with some air
RINGS = (0.0, 14.0, 30.0, 50.0)  # how far from its point a word may move to find room, in pixels
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))

Box = tuple[float, float, float, float]  # left, bottom, right, top


def pca_2d(vectors: np.ndarray) -> np.ndarray:
    """Points in the plane in which vectors, made 1 long, differ the most: (N, D) -> (N, 2)."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    unit = unit - unit.mean(axis=0)
    _, _, directions = np.linalg.svd(unit, full_matrices=False)
    axes = np.zeros((2, vectors.shape[1]), vectors.dtype)
    axes[: len(directions[:2])] = directions[:2]
    # A direction may come out either way round; this makes a picture the same each time.
    turn = np.sign(axes[[0, 1], np.abs(axes).argmax(axis=1)])
    return unit @ (axes * turn[:, None]).T


def plot_words(vectors: WordVectors, groups: list[list[str]], title: str, path: Path) -> int:
    """Draw words as a PNG, a colour for each group; gives the number of words for whose label there was no room."""
    words = [word for group in groups for word in group]
    return plot_points(pca_2d(vectors[words]), groups, title, path)


def plot_points(points: np.ndarray, groups: list[list[str]], title: str, path: Path) -> int:
    """The same of points (N, 2) of the words of all groups."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    words = [word for group in groups for word in group]
    colours = [COLOURS[i % len(COLOURS)] for i, group in enumerate(groups) for _ in group]
    with matplotlib.rc_context({"font.family": available_fonts(), "axes.unicode_minus": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a character without a font becomes a box, which says as much
        figure = Figure(figsize=(9, 7), dpi=160)
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_axes((0.03, 0.03, 0.94, 0.9))
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
        axes.scatter(points[:, 0], points[:, 1], s=14, c=colours, linewidths=0)
        axes.margins(0.08)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_color("#e5e5e0")
        left_out = _label(axes, canvas.get_renderer(), words, points, colours)
        with atomic_file(path) as aside:
            canvas.print_png(aside)
    return left_out


def _label(axes: Any, renderer: Any, words: list[str], points: np.ndarray, colours: list[str]) -> int:
    """Write each word where it covers neither a point nor another word; earlier words choose first."""
    size = 8.5 if len(words) <= 120 else 7
    axes.apply_aspect()
    axes.autoscale_view()
    places = axes.transData.transform(points)
    frame = axes.get_window_extent(renderer).extents
    taken = [(x - DOT, y - DOT, x + DOT, y + DOT) for x, y in places]
    left_out = 0
    for word, place, colour in zip(words, places, colours, strict=True):
        text = axes.text(0, 0, word.replace("$", r"\$"), transform=None, fontsize=size, color=colour, ha="left", va="bottom")
        extent = text.get_window_extent(renderer)
        box = _room(place, extent.width, extent.height, taken, frame)
        if box is None:
            text.remove()
            left_out += 1
            continue
        text.set_position((box[0], box[1]))
        taken.append(box)
        _lead(axes, place, box)
    return left_out


def _room(place: np.ndarray, width: float, height: float, taken: list[Box], frame: Box) -> Box | None:
    """The nearest free box of this size beside a place."""
    others = np.array(taken)
    for ring in RINGS:
        for across, up in SIDES:
            x = place[0] + across * (width / 2 + DOT + ring)
            y = place[1] + up * (height / 2 + DOT + ring)
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            inside = frame[0] <= box[0] and frame[1] <= box[1] and box[2] <= frame[2] and box[3] <= frame[3]
            if inside and not _overlaps(box, others):
                return box
    return None


def _overlaps(box: Box, others: np.ndarray) -> bool:
    apart = (others[:, 0] >= box[2]) | (others[:, 2] <= box[0]) | (others[:, 1] >= box[3]) | (others[:, 3] <= box[1])
    return not bool(apart.all())


def _lead(axes: Any, place: np.ndarray, box: Box) -> None:
    """A thin line from a point to its word, where the word had to move away."""
    x, y = min(max(place[0], box[0]), box[2]), min(max(place[1], box[1]), box[3])
    if np.hypot(x - place[0], y - place[1]) > 2 * DOT:
        axes.plot([place[0], x], [place[1], y], transform=None, color=SOFT, linewidth=0.5, zorder=0)
