"""A picture of neighbours through training: the nearest words of each word at each snapshot, with their cosines."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from qkv.base.files import atomic_file
from qkv.base.fonts import available_fonts
from qkv.vectors.plot import COLOURS

if TYPE_CHECKING:
    from qkv.vectors.views import NeighboursThroughTraining

SHOWN = 5  # neighbours at each snapshot


def plot_neighbours(view: "NeighboursThroughTraining", path: Path) -> None:
    """Draw a column for each snapshot: the nearest words, best first, with a colour for those that are nearest at the end."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.family": available_fonts(), "text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a character that no font has is drawn as a box
        columns = len(view.shares)
        figure = Figure(figsize=(1.5 * columns + 0.4, (0.28 * SHOWN + 0.75) * len(view.words)), dpi=160)
        for row, (axes, word) in enumerate(
            zip(figure.subplots(len(view.words), 1, squeeze=False)[:, 0], view.words, strict=True)
        ):
            last = [near for near, _ in view.found[-1][word][:SHOWN]]
            colours = {near: COLOURS[n % len(COLOURS)] for n, near in enumerate(last)}
            for column, found in enumerate(view.found):
                axes.text(
                    column, -0.9, f"{view.shares[column]:.2%}".replace(".00%", "%"), fontsize=8, color="#5b6475", ha="center"
                )
                for place, (near, cosine) in enumerate(found[word][:SHOWN]):
                    colour = colours.get(near, "#6b7280")
                    weight = "bold" if near in colours else "normal"
                    text = near if len(near) <= 14 else near[:13] + "…"
                    axes.text(column, place, f"{text} {cosine:.2f}", fontsize=8, color=colour, fontweight=weight, ha="center")
            axes.set_xlim(-0.55, columns - 0.45)
            axes.set_ylim(SHOWN - 0.3, -1.6)
            axes.axis("off")
            title = f"nearest words of “{word}” through training" if row == 0 else f"“{word}”"
            axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        figure.subplots_adjust(left=0.01, right=0.99, top=1 - 0.3 / figure.get_figheight(), bottom=0.01, hspace=0.25)
        with atomic_file(path) as aside:
            FigureCanvasAgg(figure).print_png(aside)
