"""Looking inside: what a model's attention did with a text, in plain values that a page, a picture or a program can use."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from qkv.base.errors import ConfigError, DataError
from qkv.lens.habits import Habit, habits
from qkv.lens.maps import CROSS, Attribution, Map, Spread, Subject
from qkv.lens.page import frame, write_page
from qkv.lens.sides import Side
from qkv.vectors.plot import pca_2d

MOST = 2_000_000  # weights that are told; a page with more would be too large to open
FAINT = 0.05  # share of a word's attention below which no link between words is told
COLUMNS = 128  # of position encodings that are told, evenly chosen where there are more
NOTHING = (
    "this model has no attention to words that could be shown; a transformer has, an encoder other than an ELMo, a GPT, a "
    "convolution, and an rnn with model.attention"
)
MIXTURES = (
    "this model's attention is Linformer's, to mixtures of places and not to words, so it cannot be shown word by word; "
    "look at a run with model.attention full, window or bigbird"
)


class Lookable(Protocol):
    """What `qkv.load` gives."""

    @property
    def trees(self) -> bool:
        """Whether it reads texts with heads alone."""
        ...

    def subject(self, text: str, target: str | None = None) -> Subject:
        """What is to be looked at: the model and the texts, ready to be run."""
        ...


@dataclass(frozen=True, repr=False)
class Looked:
    """What was seen; `json()` as plain values, `save` as a page, `_repr_html_` as one in a notebook."""

    kind: str
    model: str
    output: str | None
    sides: dict[str, Side]  # source; of translators target too, and read where that is something else
    maps: list[Map]
    habits: list[Habit]
    rollout: Spread | None
    attribution: Attribution | None
    alignment: list[tuple[int, int, float]] | None  # source word, target word, share of the target word's attention
    positions: Tensor | None  # (S, at most COLUMNS) what is added to embeddings to tell places
    points: dict[str, Tensor]  # of each side, (T, 2): where its tokens' embeddings lie in the plane in which they differ most

    def json(self) -> dict[str, Any]:
        """Everything as lists, texts and numbers, rounded to four digits."""
        source, target, read = (self.sides.get(name) for name in ("source", "target", "read"))
        assert source is not None
        rollout, attribution = self.rollout, self.attribution
        return {
            "kind": self.kind,
            "model": self.model,
            "source": source.tokens,
            "target": target and target.tokens,
            "read": read and read.tokens,
            "output": self.output,
            "source_words": source.words,
            "target_words": target and target.words,
            "read_words": read and read.words,
            "words": {name: side.spelled for name, side in self.sides.items()},
            "maps": [_map(one) for one in self.maps],
            "patterns": [{**vars(habit), "score": round(habit.score, 4)} for habit in self.habits],
            "rollout": rollout and {**rollout._asdict(), "weights": _rounded(rollout.weights)},
            "attribution": attribution and _attribution(attribution),
            "alignment": self.alignment and [[s, t, round(weight, 4)] for s, t, weight in self.alignment],
            "positions": None if self.positions is None else _rounded(self.positions),
            "points": {name: _rounded(points) for name, points in self.points.items()},
        }

    def save(self, path: str | Path) -> Path:
        """Write the page, one HTML file that needs nothing else; or, as .json, the values alone."""
        return write_page(self.json(), Path(path))

    def __repr__(self) -> str:
        """What it is of, in a line; the weights would fill screens."""
        told = " ".join(self.sides["source"].spelled)
        return f"Looked({self.kind}, {self.model}: {told!r} -> {self.output!r}; .save('page.html'), .json())"

    def _repr_html_(self) -> str:
        """The page in a frame of its own, for notebooks."""
        return frame(self.json())


def look(loaded: Lookable, text: str, target: str | None = None) -> Looked:
    """What a loaded model's attention does with a text.

    `target` is what a translator is taken to write, instead of its own translation; what a GPT is taken to go on with; the second
    text of a pair for an encoder. Texts for a model with structural positions are `qkv.text.treebank.TextWithHeads`, or JSON objects
    with a text and its heads, as `qkv translate` reads them.
    """
    subject = loaded.subject(text, target)
    maps = subject.maps()
    if not maps:
        raise ConfigError(NOTHING)
    many = sum(one.weights.numel() for one in maps)
    if many > MOST:
        tokens = " and ".join(f"{len(side.ids)}" for side in subject.sides.values())
        raise DataError(f"texts of {tokens} tokens have {many:,} weights in this model, and {MOST:,} can be shown; shorten them")
    return Looked(
        subject.kind,
        subject.model,
        subject.output,
        subject.sides,
        maps,
        habits(maps, subject.sides),
        subject.rollout(maps),
        subject.attribution(),
        _alignment(maps, subject.sides),
        _positions(subject),
        _points(subject),
    )


def _alignment(maps: Sequence[Map], sides: dict[str, Side]) -> list[tuple[int, int, float]] | None:
    """Which source words each target word looked at, by the mean over layers and heads; strongest first for each."""
    crossing = [one.weights.mean(0) for one in maps if one.part == CROSS]
    if not crossing:
        return None
    shares = word_shares(torch.stack(crossing).mean(0), sides["target"], sides["source"])
    links = [(int(s), int(t), float(shares[t, s])) for t, s in (shares >= FAINT).nonzero()]
    return sorted(links, key=lambda link: (link[1], -link[2]))


def word_shares(weights: Tensor, rows: Side, columns: Side) -> Tensor:
    """Attention between words, from that between tokens: the sum over a word's tokens that are looked at, the mean over those
    that look; of what goes to words, not to control tokens. (T, S) -> (words, words), rows that sum to 1.
    """
    seen = weights @ _membership(columns)
    looked = _membership(rows).T @ seen
    return looked / looked.sum(-1, keepdim=True).clamp(min=1e-9)


def _membership(side: Side) -> Tensor:
    """Which token belongs to which word. -> (tokens, words)."""
    table = torch.zeros(len(side.ids), len(side.spelled))
    for token, word in enumerate(side.words):
        if word is not None:
            table[token, word] = 1
    return table


@torch.no_grad()
def _positions(subject: Subject) -> Tensor | None:
    """Position encodings of the source's places. -> (S, columns)."""
    found = subject.places()
    if found is None or not found.any():
        return None
    step = max(1, found.size(-1) // COLUMNS)
    return found[:, ::step][:, :COLUMNS].float().cpu()


@torch.no_grad()
def _points(subject: Subject) -> dict[str, Tensor]:
    """Where the embeddings of all sides' tokens lie in one plane."""
    vectors = {
        name: table(torch.tensor(subject.sides[name].ids, device=table.weight.device)).float().cpu()
        for name, table in subject.embeddings.items()
    }
    flat = torch.from_numpy(pca_2d(torch.cat(list(vectors.values())).numpy()))
    return dict(zip(vectors, flat.split([len(found) for found in vectors.values()]), strict=True))


def _map(one: Map) -> dict[str, Any]:
    told = ("name", "part", "layer", "rows", "columns")
    return {**{name: getattr(one, name) for name in told}, "heads": _rounded(one.weights)}


def _attribution(found: Attribution) -> dict[str, Any]:
    return {
        "of": found.of,
        "tokens": "source",
        "values": _rounded(found.values),
        "each": None if found.each is None else _rounded(found.each),
    }


def _rounded(values: Tensor) -> list[Any]:
    """As nested lists of numbers of four digits; what is not a number becomes 0, which JSON can say."""
    return values.nan_to_num(0.0, 0.0, 0.0).double().mul(1e4).round().div(1e4).tolist()
