"""Pictures of grids with a row for each layer: what patching restores, and what each layer predicts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qkv.base.errors import DataError
from qkv.lens.figures import colour_map, png_figure, token_labels
from qkv.lens.layer_predictions import LayerPredictions
from qkv.lens.patching import GridRow, PatchView

CELL, TALL = 0.62, 0.3  # inches of a cell
LONGEST = 10  # characters of a token in a cell
WIDEST = 300  # columns
DARK = 0.8  # share of the full colour from which white letters are readable


class Grid(NamedTuple):
    """One grid of a picture."""

    title: str
    rows: list[str]
    columns: list[str]
    values: np.ndarray  # (rows, columns), nan where there is no cell
    texts: list[list[str]]  # one for each cell
    signed: bool  # whether values may be negative


def draw_patching(view: PatchView, path: Path) -> None:
    """Write the grids of patching as a PNG file."""
    pieces = view.contrast.clean.tokenizer.pieces([view.answer, view.instead])
    answer, instead = (piece.removeprefix("▁") or "␣" for piece in pieces)
    most = max(len(row.values) for row in view.heads)
    grids = [_restored(f"{answer}, not {instead}: share that each head restores", view.heads, [f"{n + 1}" for n in range(most)])]
    for text in dict.fromkeys(row.site.text for row in view.states):
        rows = [row for row in view.states if row.site.text == text]
        what = "the decoder's input" if text == "read" else "the text"
        grids.append(_restored(f"share that states of {what} restore", rows, token_labels(view.contrast.clean.texts[text])))
    _draw(grids, path)


def draw_layers(view: LayerPredictions, path: Path) -> None:
    """Write the most probable token after each layer, coloured by its probability, as a PNG file."""
    tokens = token_labels(view.texts[view.predicts_in])
    best = [[position[0] for position in layer] for layer in view.top]  # token and probability
    values = np.array([[value for _, value in layer] for layer in best])
    texts = [[_short(token.removeprefix("▁") or "␣") for token, _ in layer] for layer in best]
    names = [f"{site.part} {site.layer + 1}" for site in view.layers]
    columns = [tokens[position] for position in view.positions]
    _draw([Grid("most probable token after each layer", names, columns, values, texts, signed=False)], path)


def _restored(title: str, rows: Sequence[GridRow], columns: list[str]) -> Grid:
    values = np.full((len(rows), len(columns)), np.nan)
    for number, row in enumerate(rows):
        values[number, : len(row.values)] = row.values.numpy()
    texts = [["" if np.isnan(value) else f"{value:z.2f}" for value in row] for row in values]
    return Grid(title, [f"{row.site.part} {row.site.layer + 1}" for row in rows], columns, values, texts, signed=True)


def _short(token: str) -> str:
    return token if len(token) <= LONGEST else f"{token[: LONGEST - 1]}…"


def _draw(grids: Sequence[Grid], path: Path) -> None:
    """Write grids below each other, with cells of one width."""
    widest = max(len(grid.columns) for grid in grids)
    if widest > WIDEST:
        raise DataError(f"a picture of {widest} columns is too wide, and {WIDEST} can be drawn; give --out a name with .json")
    heights = [TALL * len(grid.rows) + 1.1 for grid in grids]
    width = max(4.5, CELL * widest + 1.4)
    with png_figure(path, (width, sum(heights))) as figure:
        axes = figure.subplots(len(grids), 1, height_ratios=heights, squeeze=False)[:, 0]
        for one, grid in zip(axes, grids, strict=True):
            _draw_grid(one, grid)
            one.set_xlim(-0.5, widest - 0.5)


def _draw_grid(axes: Any, grid: Grid) -> None:
    limits = {"vmin": -1.0 if grid.signed else 0.0, "vmax": 1.0}
    axes.imshow(grid.values, cmap=colour_map(both=grid.signed), aspect="auto", **limits)
    axes.set_title(grid.title, loc="left", fontsize=9, fontweight="bold")
    axes.set_xticks(range(len(grid.columns)), [_short(name) for name in grid.columns], fontsize=7)
    axes.set_yticks(range(len(grid.rows)), grid.rows, fontsize=7)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for y, row in enumerate(grid.texts):
        for x, text in enumerate(row):
            dark = abs(grid.values[y, x]) > DARK
            axes.text(x, y, text, ha="center", va="center", fontsize=7, color="white" if dark else "#20242c")
