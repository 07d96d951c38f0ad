"""Pictures of the concept pages, drawn from qkv's own parts.

python docs/concepts/pictures.py
"""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch

from qkv.data.packing import pack_texts
from qkv.decoding.config import DecodingConfig
from qkv.decoding.search import begin_search
from qkv.decoding.trace import SearchTrace
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


WORDS = ["<s>", "</s>", "the", "a", "dog", "nice", "woman", "car", "runs", "barks", "is", "drives", "asleep"]
FOLLOWING = {  # probabilities of the next word; the most probable first word leads to no probable text
    "<s>": {"a": 0.5, "the": 0.4, "nice": 0.1},
    "a": {"nice": 0.4, "car": 0.3, "woman": 0.3},
    "the": {"dog": 0.9, "car": 0.1},
    "nice": {"woman": 0.4, "car": 0.3, "dog": 0.3},
    "dog": {"runs": 0.5, "barks": 0.4, "is": 0.1},
    "woman": {"drives": 0.6, "runs": 0.4},
    "car": {"drives": 0.6, "is": 0.4},
    "is": {"asleep": 1.0},
}


class WordTable:
    """A model whose next word depends on the last one alone."""

    attention = None

    def __init__(self) -> None:
        self.table = torch.full((len(WORDS), len(WORDS)), -torch.inf)
        for word in WORDS:
            for other, probability in FOLLOWING.get(word, {"</s>": 1.0}).items():
                self.table[WORDS.index(word), WORDS.index(other)] = np.log(probability)

    def start(self, ids: torch.Tensor, keep: torch.Tensor, max_length: int, attention: bool = False) -> "WordTable":
        return self

    def step(self, tokens: torch.Tensor, state: "WordTable") -> torch.Tensor:
        return self.table[tokens]

    def select(self, rows: torch.Tensor) -> None:
        pass


def decoding() -> None:
    """Draw beam search and greedy search over the same table as trees, from the record of the searches themselves."""
    figure, axes = plt.subplots(2, 1, figsize=(9, 4.4), height_ratios=[1, 4])
    for axis, beam in zip(axes, (1, 2), strict=True):
        config = DecodingConfig(beam=beam, max_length=6, length_penalty=0)
        search = begin_search(WordTable(), torch.tensor([[4]]), torch.tensor([[True]]), config, bos=0, eos=1, pad=1)
        trace = search.batch.trace = SearchTrace(3)
        with torch.inference_mode():
            while len(search):
                found = search.step()
        best = [WORDS[token] for token in found[0][1][0].ids]
        texts: list[list[str]] = [[]]
        rows = {(): 0.0}
        for number, step in enumerate(trace.steps):
            candidates = [[*texts[one.parent], WORDS[one.token]] for one in step.candidates]
            shown = sorted(range(len(candidates)), key=lambda n: (rows[tuple(candidates[n][:-1])], -step.candidates[n].score))
            for row, n in enumerate(shown):
                text, one = candidates[n], step.candidates[n]
                y = row - (len(shown) - 1) / 2
                rows[tuple(text)] = y
                on_best = [*best, "</s>"][: len(text)] == text
                colour = OTHER if on_best else INK if one.kept else FADED
                axis.plot(
                    [number + (0.7 if number else 0.45), number + 0.97],
                    [rows[tuple(text[:-1])], y],
                    color=colour,
                    lw=2 if on_best else 1,
                    zorder=0,
                )
                axis.text(number + 1, y, f"{text[-1]} {np.exp(one.logprob):.2f}", color=colour, va="center", fontsize=8.5)
            texts = [candidates[n] for n in step.hypotheses]
        axis.text(0.2, 0, "<s>", va="center", fontsize=8.5)
        probability = np.exp(found[0][1][0].logprob)
        name = "greedy" if beam == 1 else f"beam search, {beam} texts side by side"
        axis.set_title(f"{name}: “{' '.join(best)}”, {probability:.2f}", loc="left")
        axis.set_xlim(0.2, 6)
        axis.margins(y=0.2)
        axis.axis("off")
    save(figure, "decoding")


if __name__ == "__main__":
    for draw in (masks, packing, positions, attention, decoding):
        draw()
