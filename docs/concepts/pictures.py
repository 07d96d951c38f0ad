"""Pictures of the concept pages, drawn from qkv's own parts.

python docs/concepts/pictures.py
"""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch

from qkv.data.packing import pack_texts
from qkv.parts.masks import Rule, causal, same_text
from qkv.parts.patterns import global_tokens, window
from qkv.parts.positions import SinusoidalPositions
from qkv.parts.relative import AlibiBias, T5RelativeBias

HERE = Path(__file__).parent
INK, PAPER, OTHER, FADED = "#3451b2", "#eef1fb", "#c2410c", "#6b7280"
SIZE = 12  # positions of a mask
mpl.rcParams.update(
    {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "qkv", "axes.spines.top": False, "axes.spines.right": False}
)


def save(figure: plt.Figure, name: str) -> None:
    """Write a picture with a white background, so that it can be read in dark pages too."""
    figure.savefig(HERE / f"{name}.svg", bbox_inches="tight", facecolor="white", metadata={"Date": None})
    plt.close(figure)


def masks() -> None:
    """Draw which keys each query attends to."""
    text = torch.tensor([[1] * 5 + [2] * 4 + [3] * 3])
    position = torch.arange(SIZE)[None]
    prefix = Rule(lambda b, q, k: k < 5)
    rules = {
        "everything (BERT)": Rule(lambda b, q, k: (q >= 0) & (k >= 0)),
        "the past (GPT)": causal(),
        "a prefix, then the past (UniLM)": causal() | prefix,
        "packed: each its own text": same_text(text, text),
        "packed, the past": same_text(text, text) & causal(),
        "window and global tokens": window(2) | global_tokens(position, 1),
    }
    figure, axes = plt.subplots(1, len(rules), figsize=(13, 2.4))
    colours = mpl.colors.ListedColormap([PAPER, INK])
    for axis, (name, rule) in zip(axes, rules.items(), strict=True):
        axis.imshow(rule.dense(1, SIZE, SIZE)[0, 0].numpy(), cmap=colours, vmin=0, vmax=1)
        axis.set_title(name, fontsize=8.5)
        axis.set_xticks([])
        axis.set_yticks([])
    axes[0].set_ylabel("query")
    axes[0].set_xlabel("key")
    save(figure, "masks")


def packing() -> None:
    """Draw the same texts padded and packed."""
    lengths = np.array([17, 4, 9, 6, 12, 3, 8, 5, 15, 7, 4, 10])
    width = 24
    figure, axes = plt.subplots(1, 2, figsize=(10, 2.8))
    padded, packed = [[n] for n in range(len(lengths))], pack_texts(lengths, len(lengths), width)
    longest = int(lengths.max())
    for axis, rows, room, name in ((axes[0], padded, longest, "padded"), (axes[1], packed, width, "packed")):
        for y, row in enumerate(rows):
            axis.barh(y, room, color=PAPER, height=0.8)
            left = 0
            for number in row:
                axis.barh(
                    y, lengths[number], left=left, color=INK, height=0.8, alpha=0.55 + 0.45 * (number % 2), edgecolor="white"
                )
                left += int(lengths[number])
        empty = 1 - lengths.sum() / (room * len(rows))
        axis.set_title(f"{name}: {len(rows)} rows of {room}, {empty:.0%} empty")
        axis.invert_yaxis()
        axis.set_yticks([])
        axis.set_xlabel("position in the row")
    save(figure, "packing")


def positions() -> None:
    """Draw added encodings, and what is added to scores by distance."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 2.8), width_ratios=[1, 1.2])
    encoding = SinusoidalPositions(64)(torch.arange(50)[None])[0]
    axes[0].imshow(encoding.T.numpy(), aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1)
    axes[0].set_title("sinusoidal: added to the embeddings")
    axes[0].set_xlabel("position")
    axes[0].set_ylabel("dimension")
    distance = torch.arange(-40, 41)
    for head, bias in enumerate(AlibiBias(4).bias(distance)):
        axes[1].plot(distance, bias, color=INK, alpha=1 - 0.2 * head, label="ALiBi, four heads" if head == 0 else None)
    buckets = T5RelativeBias(1, 32, 128, causal=False).bucket(distance)
    other = axes[1].twinx()
    other.step(distance, buckets % 16, color=OTHER, where="mid")
    other.set_ylabel("T5: bucket of the distance", color=OTHER)
    axes[1].set_ylabel("ALiBi: added to scores", color=INK)
    axes[1].set_title("relative: a bias for each distance")
    axes[1].set_xlabel("key position minus query position")
    save(figure, "positions")


def attention() -> None:
    """Draw softmax(q k' / sqrt(d)) for three vectors, with and without the division."""
    generator = torch.Generator().manual_seed(3)
    figure, axes = plt.subplots(1, 2, figsize=(10, 2.4))
    for axis, divided in zip(axes, (False, True), strict=True):
        for width, colour in ((4, "#93a4e6"), (64, INK), (512, OTHER)):
            q, k = torch.randn(400, 1, width, generator=generator), torch.randn(400, 20, width, generator=generator)
            scores = (q @ k.transpose(1, 2))[:, 0] / (width**0.5 if divided else 1)
            weights = scores.softmax(-1).sort(-1, descending=True).values.mean(0)
            axis.plot(range(1, 21), weights, color=colour, label=f"d = {width}")
        axis.set_title("softmax(q·k / √d)" if divided else "softmax(q·k)")
        axis.set_xlabel("keys, the largest weight first")
        axis.set_ylim(0, 1)
    axes[0].set_ylabel("mean weight")
    axes[0].legend(frameon=False)
    save(figure, "attention")


if __name__ == "__main__":
    for draw in (masks, packing, positions, attention):
        draw()
