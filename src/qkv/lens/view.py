"""The view of a model's attention on a text, in plain values for a page, a picture or a program."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from qkv.base.errors import ConfigError, DataError
from qkv.lens.attribution import Attribution
from qkv.lens.head_effects import HeadEffects
from qkv.lens.head_patterns import HeadPattern, find_head_patterns
from qkv.lens.inspectors import CROSS, AttentionMap, Inspector, Rollout
from qkv.lens.page import notebook_frame, write_page
from qkv.lens.tokenized_text import TokenizedText
from qkv.vectors.plot import pca_2d

MAX_WEIGHTS = 3_000_000  # 12 layers of 12 heads on 144 tokens: a page of 8 MB
MIN_LINK = 0.05  # share of a word's attention below which two words are not linked
MAX_COLUMNS = 128  # columns of the position encodings; evenly chosen where there are more
MAX_FILES = 3  # of the training data that are named
NO_ATTENTION = (
    "this model has no attention to words that could be shown; a transformer has, an encoder other than an ELMo, a GPT, a "
    "convolution, and an rnn with model.attention"
)
LINFORMER = (
    "this model's attention is Linformer's, to projections of positions and not to words, so it cannot be shown word by word; "
    "look at a run with model.attention full, window or bigbird"
)


class Inspectable(Protocol):
    """A loaded run, as `qkv.load` returns it."""

    @property
    def loads_as(self) -> str:
        """What it is used as: translator, encoder or generator."""
        ...

    @property
    def trees(self) -> bool:
        """Whether it reads only texts with trees."""
        ...

    def inspect(self, text: str, target: str | None = None) -> Inspector:
        """Return the model together with the encoded texts."""
        ...


@dataclass(frozen=True, repr=False)
class AttentionView:
    """A model's attention on a text; `json()` returns plain values, `save` writes a page, a notebook shows the page.

    >>> view = qkv.look("runs/mine", "How are you?")
    >>> view.save("page.html")
    """

    kind: str
    model: str
    output: str | None
    texts: dict[str, TokenizedText]  # source; for translators also target, and read where the decoder reads something else
    maps: list[AttentionMap]
    patterns: list[HeadPattern]
    rollout: Rollout | None
    attribution: Attribution | None
    alignment: list[tuple[int, int, float]] | None  # source word, target word, share of the target word's attention
    positions: Tensor | None  # (S, at most MAX_COLUMNS): the position encodings that are added to the embeddings
    points: dict[str, Tensor]  # for each text, (T, 2): its tokens' embeddings by PCA
    effects: HeadEffects | None = None  # what the model loses without each head, where it was measured
    about: dict[str, str] | None = None  # run: its name; data: names of the files that it was trained on

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, rounded to four digits."""
        source, target, read = (self.texts.get(name) for name in ("source", "target", "read"))
        assert source is not None
        rollout, attribution = self.rollout, self.attribution
        return {
            "kind": self.kind,
            "model": self.model,
            "source": source.tokens,
            "target": target and target.tokens,
            "read": read and read.tokens,
            "output": self.output,
            "source_words": source.word_ids,
            "target_words": target and target.word_ids,
            "read_words": read and read.word_ids,
            "words": {name: text.words for name, text in self.texts.items()},
            "maps": [map_json(one) for one in self.maps],
            "patterns": [
                {
                    "map": p.map,
                    "head": p.head,
                    "pattern": p.pattern,
                    "score": round(p.score, 4),
                    "says": p.description,
                    "drop": self.drop(p),
                }
                for p in self.patterns
            ],
            "rollout": rollout and {**rollout._asdict(), "weights": _rounded(rollout.weights)},
            "attribution": attribution and attribution_json(attribution),
            "alignment": self.alignment and [[s, t, round(weight, 4)] for s, t, weight in self.alignment],
            "positions": None if self.positions is None else _rounded(self.positions),
            "points": {name: _rounded(points) for name, points in self.points.items()},
            "effects": self.effects and self.effects.json(),
            "about": self.about,
        }

    def drop(self, pattern: HeadPattern) -> float | None:
        """Return the drop of the model's score without the head of a pattern; None if it was not measured."""
        drop = None if self.effects is None else self.effects.drop(pattern.map, pattern.head)
        return None if drop is None else round(drop, 4)

    def save(self, path: str | Path) -> Path:
        """Write the page, one HTML file that works offline; or the values alone, if the name ends with .json."""
        if not isinstance(path, str | Path):
            raise ConfigError(f"save takes the path of a file, got {type(path).__name__}; give one that ends with .html or .json")
        if Path(path).suffix not in (".html", ".json"):
            raise ConfigError(f"save {path}: the name must end with .html or .json, which chooses the format")
        return write_page(self.json(), Path(path))

    def __repr__(self) -> str:
        """Return one line; the weights would fill screens."""
        text = " ".join(self.texts["source"].words)
        output = "" if self.output is None else f" -> {self.output!r}"
        return f"AttentionView({self.kind}, {self.model}: {text!r}{output}; .save('page.html'), .json())"

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for notebooks."""
        return notebook_frame(self.json())


def look(loaded: Inspectable, text: str, target: str | None = None) -> AttentionView:
    """Run a loaded model on a text and collect its attention.

    `target` replaces a translator's own translation or a GPT's continuation; for an encoder it is the second text of a pair.
    Texts for a model with structural positions are `qkv.text.treebank.TextWithHeads`, or JSON objects with a text and its heads,
    as `qkv translate` reads them.
    """
    inspector = loaded.inspect(text, target)
    maps = inspector.maps()
    if not maps:
        raise ConfigError(NO_ATTENTION)
    weights = sum(one.weights.numel() for one in maps)
    if weights > MAX_WEIGHTS:
        tokens = " and ".join(f"{len(text.ids)}" for text in inspector.texts.values())
        raise DataError(
            f"texts of {tokens} tokens have {weights:,} weights in this model, and {MAX_WEIGHTS:,} can be shown; shorten them"
        )
    return AttentionView(
        inspector.kind,
        inspector.model,
        inspector.output,
        inspector.texts,
        maps,
        find_head_patterns(maps, inspector.texts),
        inspector.rollout(maps),
        inspector.attribution(),
        word_alignment(maps, inspector.texts),
        _positions(inspector),
        _points(inspector),
        getattr(loaded, "head_effects", None),
        about_run(loaded),
    )


def about_run(loaded: Any) -> dict[str, str] | None:
    """Return the name of a loaded run and what its recipe trained on; None for a model without a recipe."""
    recipe = getattr(loaded, "recipe", None)
    data = getattr(recipe, "data", None)
    if data is None:
        return None
    files = [one if isinstance(one, str) else one.pairs or one.source for one in getattr(data, "train", None) or data.text]
    names = ", ".join(Path(one).name for one in files[:MAX_FILES]) + (", ..." if len(files) > MAX_FILES else "")
    languages = getattr(data, "languages", None)
    folder = loaded.folder if hasattr(loaded, "folder") else None
    known = {"run": folder and Path(folder).name, "data": names + (f" ({' → '.join(languages)})" if languages else "")}
    return {name: value for name, value in known.items() if value}


def word_alignment(maps: Sequence[AttentionMap], texts: dict[str, TokenizedText]) -> list[tuple[int, int, float]] | None:
    """Link each target word with the source words that it attends to, by the mean over layers and heads; strongest first."""
    layers = [one.weights.mean(0) for one in maps if one.part == CROSS]
    if not layers:
        return None
    shares = word_attention(torch.stack(layers).mean(0), texts["target"], texts["source"])
    links = [(int(s), int(t), float(shares[t, s])) for t, s in (shares >= MIN_LINK).nonzero()]
    return sorted(links, key=lambda link: (link[1], -link[2]))


def word_attention(weights: Tensor, rows: TokenizedText, columns: TokenizedText) -> Tensor:
    """Return attention between words, from attention between tokens. (T, S) -> (words, words), rows that sum to 1.

    It is the sum over the attended word's tokens and the mean over the attending word's tokens, without special tokens.
    """
    table = _membership(rows).T @ (weights @ _membership(columns))
    return table / table.sum(-1, keepdim=True).clamp(min=1e-9)


def _membership(text: TokenizedText) -> Tensor:
    """Return 1 where a token belongs to a word, else 0. -> (tokens, words)."""
    table = torch.zeros(len(text.ids), len(text.words))
    for token, word in enumerate(text.word_ids):
        if word is not None:
            table[token, word] = 1
    return table


@torch.no_grad()
def _positions(inspector: Inspector) -> Tensor | None:
    """Return the position encodings of the source. -> (S, columns)."""
    encodings = inspector.position_encodings()
    if encodings is None or not encodings.any():
        return None
    step = max(1, encodings.size(-1) // MAX_COLUMNS)
    return encodings[:, ::step][:, :MAX_COLUMNS].float().cpu()


@torch.no_grad()
def _points(inspector: Inspector) -> dict[str, Tensor]:
    """Project the token embeddings of all texts to one plane."""
    vectors = {
        name: embedding(torch.tensor(inspector.texts[name].ids, device=embedding.weight.device)).float().cpu()
        for name, embedding in inspector.embeddings.items()
    }
    points = torch.from_numpy(pca_2d(torch.cat(list(vectors.values())).numpy()))
    return dict(zip(vectors, points.split([len(found) for found in vectors.values()]), strict=True))


def attribution_json(found: Attribution) -> dict[str, Any]:
    """Return an attribution as plain values."""
    return {
        "of": found.of,
        "method": found.method,
        "tokens": "source",
        "values": _rounded(found.values),
        "each": None if found.each is None else _rounded(found.each),
        "positions": found.positions,
        "completeness": found.completeness
        and {name: value if isinstance(value, int) else round(value, 4) for name, value in found.completeness._asdict().items()},
    }


def map_json(one: AttentionMap) -> dict[str, Any]:
    """Return the weights of an attention layer as plain values."""
    values = one._asdict()
    weights = values.pop("weights")
    return {**values, "heads": _rounded(weights)}


def _rounded(values: Tensor) -> list[Any]:
    """Return nested lists of numbers with four digits; nan and infinities, which JSON cannot hold, become 0."""
    return values.nan_to_num(0.0, 0.0, 0.0).double().mul(1e4).round().div(1e4).tolist()
