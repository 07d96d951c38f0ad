"""One text through training: attention, output and probabilities of a model at each snapshot of its weights, beside the loss.

All snapshots read the same source and the same target, so that their attention can be compared; what each of them would write by
itself is its output.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qkv.base.errors import ConfigError, DataError
from qkv.lens.inspectors import CROSS, AttentionMap, Inspector
from qkv.lens.page import notebook_frame, save_view
from qkv.lens.view import AttentionView, map_json

MAX_WEIGHTS = 1_000_000  # of all snapshots together; a page with more would open slowly
MAX_POINTS = 300  # of the curve of losses
TOP = 5  # predictions for a [MASK]


class Snapshot(NamedTuple):
    """A model after some steps of its training, on a text."""

    step: int
    loss: float | None  # of training, around this step
    output: str | None  # by these weights alone
    probabilities: Tensor | None  # of each token of the target, or of a GPT's text, given those before; nan for a GPT's first
    predictions: list[list[tuple[str, float]]] | None  # the most probable words for each [MASK]
    maps: list[AttentionMap]


@dataclass(frozen=True, repr=False)
class TrainingView:
    """A text through training; `json()` returns plain values, `save` writes a page or them."""

    final: AttentionView  # with the last weights
    snapshots: list[Snapshot]
    losses: list[tuple[int, float]]  # step and loss, at most MAX_POINTS
    scores: list[dict[str, float]]  # of the dev set, with their step

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, rounded to four digits; texts are those of the attention view."""
        view = self.final.json()
        texts = ("kind", "model", "source", "target", "read", "source_words", "target_words", "read_words", "words")
        return {
            "view": "training",
            **{key: view[key] for key in texts},
            "output": view["output"],
            "steps": [one.step for one in self.snapshots],
            "losses": [[step, round(loss, 4)] for step, loss in self.losses],
            "scores": [{name: round(value, 4) for name, value in line.items()} for line in self.scores],
            "snapshots": [_snapshot_json(one) for one in self.snapshots],
        }

    def save(self, path: str | Path) -> Path:
        """Write the page, one HTML file that works offline; or the values alone, if the name ends with .json."""
        return save_view(self.json(), path)

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for notebooks."""
        return notebook_frame(self.json())

    def __repr__(self) -> str:
        """Return one line."""
        text = " ".join(self.final.texts["source"].words)
        steps = ", ".join(str(one.step) for one in self.snapshots)
        return f"TrainingView({self.final.model}: {text!r} at steps {steps}; .save('page.html'), .json())"


def _snapshot_json(one: Snapshot) -> dict[str, Any]:
    predictions = one.predictions
    return {
        "step": one.step,
        "loss": None if one.loss is None else round(one.loss, 4),
        "output": one.output,
        "probabilities": None
        if one.probabilities is None
        else [None if number != number else round(number, 4) for number in one.probabilities.tolist()],
        "predictions": predictions
        and [[{"word": word, "probability": round(p, 4)} for word, p in words] for words in predictions],
        "maps": [map_json(found) for found in one.maps],
    }


def choose_maps(maps: Sequence[AttentionMap], count: int, part: str | None = None, layer: int | None = None) -> list[str]:
    """Return the names of the maps that are shown for `count` snapshots: those asked for, else as many as the limit allows.

    Where all are too many, they are those of a part (cross-attention, or the first), then the last layer of it.
    """
    for key, wanted in (("part", part), ("layer", layer)):
        known = sorted({getattr(one, key) for one in maps if key == "part" or part in (None, one.part)})
        if wanted is not None and wanted not in known:
            raise ConfigError(f"no {key} {wanted!r} in this model; it has {', '.join(map(str, known))}")
    asked = [one for one in maps if part in (None, one.part) and layer in (None, one.layer)]
    first = part or (CROSS if any(one.part == CROSS for one in asked) else asked[0].part)
    of_part = [one for one in asked if one.part == first]
    for chosen in (asked, of_part, of_part[-1:]):
        if count * sum(one.weights.numel() for one in chosen) <= MAX_WEIGHTS:
            return [one.name for one in chosen]
    weights = count * of_part[-1].weights.numel()
    raise DataError(
        f"one layer of these texts has {weights:,} weights in {count} snapshots, and {MAX_WEIGHTS:,} can be shown; shorten them"
    )


@torch.no_grad()
def look_at_snapshot(inspector: Inspector, step: int, loss: float | None, output: str | None, names: Sequence[str]) -> Snapshot:
    """Run a snapshot's model on its texts, and keep the maps of these names."""
    logits, predictions = inspector.logits(), None
    probabilities = None
    if logits is not None and inspector.kind != "encoder":
        if "target" in inspector.texts:
            ids = torch.tensor(inspector.texts["target"].ids)
            probabilities = logits.cpu().softmax(-1)[torch.arange(len(ids)), ids]
        else:
            ids = torch.tensor(inspector.texts["source"].ids)
            likely = logits.cpu().softmax(-1)[torch.arange(len(ids) - 1), ids[1:]]
            probabilities = torch.cat([torch.full((1,), torch.nan), likely])
    elif logits is not None and inspector.tokenizer.has_mask:
        masked = torch.tensor(inspector.texts["source"].ids) == inspector.tokenizer.mask
        predictions = [_top_words(inspector, one) for one in logits.cpu()[masked].softmax(-1)] or None
    maps = [one for one in inspector.maps() if one.name in names]
    return Snapshot(step, loss, output, probabilities, predictions, maps)


def _top_words(inspector: Inspector, probabilities: Tensor) -> list[tuple[str, float]]:
    best = probabilities.topk(min(TOP, len(probabilities)))
    tokenizer = inspector.tokenizer
    words = [tokenizer.decode([token]).strip() or tokenizer.pieces([token])[0] for token in best.indices.tolist()]
    return list(zip(words, best.values.tolist(), strict=True))


def training_curve(lines: Iterable[dict[str, Any]]) -> tuple[list[tuple[int, float]], list[dict[str, float]]]:
    """Return step and loss of the lines of a run's log, at most MAX_POINTS evenly chosen, and the scores of its dev set."""
    lines = list(lines)
    losses = [(line["step"], line["loss"]) for line in lines if line.get("loss") is not None]
    step = -(-len(losses) // MAX_POINTS) or 1
    kept = losses[::step]
    if losses and kept[-1] != losses[-1]:
        kept.append(losses[-1])
    scores = [
        {name: value for name, value in line.items() if name == "step" or (name.startswith("dev_") and isinstance(value, float))}
        for line in lines
    ]
    return kept, [line for line in scores if len(line) > 1]


def loss_around(losses: Sequence[tuple[int, float]], step: int) -> float | None:
    """Return the loss of the report that a step falls into: the first one at this step or later, else the last."""
    return next((loss for at, loss in losses if at >= step), losses[-1][1] if losses else None)
