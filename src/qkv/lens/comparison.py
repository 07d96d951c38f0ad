"""A model before and after changes, side by side: output, probabilities and attention.

Changes act on the model (`changes.py`) or on words of the text (`word_edits.py`). The output after them is decoded anew with the
changes in force; probabilities are those of the tokens of the output before, so that they can be compared one by one.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.lens.changes import Change, FixedWeight, WithoutHead, WithoutLayer, changing, check_names
from qkv.lens.inspectors import AttentionMap, Inspector
from qkv.lens.page import notebook_frame, save_view
from qkv.lens.view import MAX_WEIGHTS, AttentionView, Inspectable, word_alignment
from qkv.lens.word_edits import ReplaceWord, WordEdit, differences, edit_words, split_words

TOP = 5  # predictions of each token
MIN_MOVED = 1e-4  # share of attention below which a head counts as unchanged


class TokenProbability(NamedTuple):
    """The probability of one token of the output before and after the changes, and the likeliest tokens in its place."""

    token: str
    before: float
    after: float
    top_before: list[tuple[str, float]]
    top_after: list[tuple[str, float]]


class MovedAttention(NamedTuple):
    """The share of each head's attention that moved to other keys, by the mean over queries."""

    name: str
    part: str
    layer: int
    heads: list[float] | None  # None if the texts differ, so that weights cannot be compared


@dataclass(frozen=True, repr=False)
class ModelComparison:
    """A model before and after changes; `json()` returns plain values, `save` writes a page, a notebook shows the page.

    >>> changed = qkv.change("runs/mine", "How are you?", [WithoutHead("decoder.1.cross", 2)])
    >>> changed.before.output, changed.after.output
    """

    changes: list[Change | WordEdit]
    texts: tuple[str, str]  # before and after
    before: AttentionView  # without rollout, attribution and pictures
    after: AttentionView
    tokens: list[TokenProbability]
    labels: list[tuple[str, float, float]]  # of a fine-tuned model: label, probability (or the number) before and after
    moved: list[MovedAttention]
    left_out: list[str]  # attentions whose maps would be too large together
    attentions: list[dict[str, Any]]  # all that can be changed: name, part, layer and the number of heads
    layers: list[str]  # that can be left out

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, rounded to four digits."""
        outputs = (self.before.output or "", self.after.output or "")
        return {
            "view": "change",
            "kind": self.before.kind,
            "model": self.before.model,
            "changes": [{"change": NAMES[type(one).__name__], **asdict(one), "says": describe(one)} for one in self.changes],
            "words": {"source": split_words(self.texts[0])},
            "text": {"before": self.texts[0], "after": self.texts[1], "differences": _pairs(self.texts)},
            "output": {"before": self.before.output, "after": self.after.output, "differences": _pairs(outputs)},
            "tokens": [
                {
                    "token": one.token,
                    "before": _four(one.before),
                    "after": _four(one.after),
                    "top_before": [[token, _four(p)] for token, p in one.top_before],
                    "top_after": [[token, _four(p)] for token, p in one.top_after],
                }
                for one in self.tokens
            ],
            "labels": [[label, _four(before), _four(after)] for label, before, after in self.labels],
            "moved": [{**one._asdict(), "heads": one.heads and [_four(share) for share in one.heads]} for one in self.moved],
            "left_out": self.left_out,
            "attentions": self.attentions,
            "layers": self.layers,
            "before": self.before.json(),
            "after": self.after.json(),
        }

    def save(self, path: str | Path) -> Path:
        """Write the page, one HTML file that works offline; or the values alone, if the name ends with .json."""
        return save_view(self.json(), path)

    def __repr__(self) -> str:
        """Return one line."""
        said = "; ".join(describe(one) for one in self.changes) or "nothing changed"
        return f"ModelComparison({said}: {self.before.output!r} -> {self.after.output!r}; .save('page.html'), .json())"

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for notebooks."""
        return notebook_frame(self.json())


NAMES = {
    "WithoutHead": "head",
    "WithoutLayer": "layer",
    "FixedWeight": "weight",
    "SoftmaxTemperature": "temperature",
    "ReplaceWord": "replace",
    "DeleteWord": "delete",
    "MoveWord": "move",
}


def describe(change: Change | WordEdit) -> str:
    """Return a change in words; layers, heads, tokens and words count from 1."""
    if isinstance(change, ReplaceWord):
        return f"word {change.word + 1} is {change.text!r}"
    if not isinstance(change, Change):
        to = getattr(change, "to", None)
        return f"without word {change.word + 1}" if to is None else f"word {change.word + 1} becomes word {to + 1}"
    if isinstance(change, WithoutLayer):
        return f"without {_named(change.layer)}"
    where = "every attention" if change.attention is None else _named(change.attention)
    where = where if change.head is None else f"head {change.head + 1} of {where}"
    if isinstance(change, WithoutHead):
        return f"without {where}"
    if isinstance(change, FixedWeight):
        return f"in {where}, token {change.query + 1} attends to token {change.key + 1} by {change.value:g}"
    return f"temperature {change.value:g} in {where}"


def _named(name: str) -> str:
    part, layer, *kind = name.split(".")
    attention = f"{part} self-attention" if kind == ["self"] else "cross-attention" if kind else part
    return f"{attention}, layer {int(layer) + 1}"


@torch.no_grad()
def changed(
    loaded: Inspectable,
    text: str,
    changes: Sequence[Change | WordEdit],
    target: str | None = None,
    maps: Sequence[str] | None = None,
) -> ModelComparison:
    """Run a loaded model on a text before and after changes.

    `target` is as for `look`: with one, nothing is decoded. `maps` names the attentions whose weights are wanted; by default all
    that the changes move, as far as they fit.
    """
    of_model = [change for change in changes if isinstance(change, Change)]
    edits = [change for change in changes if not isinstance(change, Change)]
    if edits and loaded.trees:
        raise ConfigError("this model reads texts with trees, whose words cannot be edited; change heads, layers or weights")
    edited = edit_words(text, edits)
    # Without an output yet, so that names are checked before anything is decoded.
    empty = "" if target is None and loaded.loads_as != "encoder" else target
    unwritten = loaded.inspect(edited, empty)
    check_names(unwritten, of_model)
    before = loaded.inspect(text, target)
    before_maps, logits, labels = before.maps(), before.logits(), _labels(before)
    _check_positions(before_maps, of_model)
    with changing(unwritten, of_model):
        after = loaded.inspect(edited, target)
        after_maps, new_labels = after.maps(), _labels(after)
        same: Any = before
        new_logits = after.with_target_of(same).logits()
    moved = [_moved(one, other) for one, other in zip(before_maps, after_maps, strict=True)]
    kept, left_out = _kept(moved, before_maps, maps)
    return ModelComparison(
        list(changes),
        (text, edited),
        _side(before, before_maps, kept),
        _side(after, after_maps, kept),
        _token_probabilities(before, logits, after.with_target_of(same), new_logits),
        [(label, value, new_labels.get(label, 0.0)) for label, value in labels.items()],
        moved,
        left_out,
        [{"name": one.name, "part": one.part, "layer": one.layer, "heads": one.heads} for one in before.attentions()],
        list(dict.fromkeys(name for name, _, _ in before.layers())),
    )


def _labels(inspector: Inspector) -> dict[str, float]:
    labels = getattr(inspector, "labels", None)  # encoders have some
    return {} if labels is None else labels()


def _check_positions(maps: Sequence[AttentionMap], changes: Sequence[Change]) -> None:
    """Refuse weights of tokens that there are not, that a query cannot see, or that sum to more than 1."""
    sizes = {one.name: one for one in maps}
    sums: dict[tuple[Any, ...], float] = {}
    for change in changes:
        if not isinstance(change, FixedWeight):
            continue
        one = sizes[change.attention]
        queries, keys = one.weights.shape[1:]
        for what, number, count in (("query", change.query, queries), ("key", change.key, keys)):
            if not 0 <= number < count:
                raise ConfigError(f"{change.attention} has no {what} {number + 1}; its {what} tokens are 1 to {count}")
        if not bool(one.weights[:, change.query, change.key].any()):
            raise ConfigError(f"in {change.attention} token {change.query + 1} cannot see token {change.key + 1}: it is masked")
        place = (change.attention, change.head, change.query)
        sums[place] = sums.get(place, 0.0) + change.value
        if sums[place] > 1 + 1e-6:
            where = f"token {change.query + 1} in {change.attention}"
            raise ConfigError(f"the weights that are set for {where} sum to {sums[place]:g}; give at most 1 in all")


def _moved(before: AttentionMap, after: AttentionMap) -> MovedAttention:
    """Return the total variation distance between a head's weights before and after, averaged over queries."""
    shares = None
    if before.weights.shape == after.weights.shape:
        away = (before.weights - after.weights).sum(-1).abs()  # a head that is off attends to nothing
        shares = (((before.weights - after.weights).abs().sum(-1) + away) / 2).mean(-1).tolist()
    return MovedAttention(before.name, before.part, before.layer, shares)


def _kept(
    moved: Sequence[MovedAttention], maps: Sequence[AttentionMap], wanted: Sequence[str] | None
) -> tuple[set[str], list[str]]:
    """Choose the maps that are wanted, or those that moved most, as far as they fit; return them and those left out."""
    known = [one.name for one in maps]
    for name in wanted or ():
        if name not in known:
            raise ConfigError(f"this model has no attention {name!r}; it has {', '.join(known)}")
    by_share = sorted(moved, key=lambda one: -max(one.heads or [1.0]))
    names = [one.name for one in by_share if max(one.heads or [1.0]) > MIN_MOVED] if wanted is None else wanted
    sizes = {one.name: 2 * one.weights.numel() for one in maps}
    kept: set[str] = set()
    for name in names:
        if sum(sizes[other] for other in kept) + sizes[name] <= MAX_WEIGHTS:
            kept.add(name)
    return kept, [name for name in names if name not in kept]


def _side(inspector: Inspector, maps: list[AttentionMap], kept: set[str]) -> AttentionView:
    """Return the view of one side, with some maps and the alignment by all."""
    alignment = word_alignment(maps, inspector.texts)
    shown = [one for one in maps if one.name in kept]
    kind, model, output, texts = inspector.kind, inspector.model, inspector.output, inspector.texts
    return AttentionView(kind, model, output, texts, shown, [], None, None, alignment, None, {})


def _token_probabilities(
    before: Inspector, logits: Tensor | None, after: Inspector, new_logits: Tensor | None
) -> list[TokenProbability]:
    """Compare the probabilities of the tokens of the output, or for each [MASK] that of the token predicted before."""
    if logits is None or new_logits is None:
        return []
    found = []
    name = before.tokenizer.pieces
    for (row, token), (new_row, _) in zip(before.scored(), after.scored(), strict=False):
        old, new = logits[row].softmax(-1), new_logits[new_row].softmax(-1)
        best = int(old.argmax()) if token is None else token
        tops = []
        for probabilities in (old, new):
            values, ids = probabilities.topk(min(TOP, len(probabilities)))
            tops.append([*zip(name(ids.tolist()), values.tolist(), strict=True)])
        found.append(TokenProbability(name([best])[0], float(old[best]), float(new[best]), *tops))
    return found


def _pairs(texts: tuple[str, str]) -> list[list[str]]:
    return [list(pair) for pair in differences(*texts)]


def _four(value: float) -> float:
    return round(value, 4)
