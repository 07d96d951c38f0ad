"""What a model would predict if it stopped after each layer (the logit lens, nostalgebraist 2020).

The norm after the last layer and the output layer are applied to the state after each layer. The last layer gives the model's own
predictions. L layers, P predicted tokens, V vocabulary.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qkv.base.errors import DataError
from qkv.lens.page import notebook_frame, save_view
from qkv.lens.predictor import Predictor, Site, read_sites
from qkv.lens.tokenized_text import TokenizedText
from qkv.lens.view import _rounded

MAX_LOGITS = 400_000_000  # layers x predicted tokens x vocabulary; more would take gigabytes


@dataclass(frozen=True, repr=False)
class LayerPredictions:
    """The predictions of a model after each of its layers; `json()` returns plain values."""

    kind: str
    model: str
    texts: dict[str, TokenizedText]
    predicts_in: str  # the text at whose positions tokens are predicted: source or read
    layers: list[Site]
    positions: list[int]  # of the predicted tokens
    answers: list[str]  # the token of a translation, or the most probable token after the last layer
    top: list[list[list[tuple[str, float]]]]  # for each layer and position: the most probable tokens and their probabilities
    probability: Tensor  # (L, P) of the answers
    rank: Tensor  # (L, P) of the answers, from 1

    def json(self) -> dict[str, Any]:
        """Return everything as lists, strings and numbers, rounded to four digits."""
        read = self.texts.get("read")
        return {
            "view": "layers",
            "kind": self.kind,
            "model": self.model,
            "source": self.texts["source"].tokens,
            "read": read and read.tokens,
            "predicts_in": self.predicts_in,
            "layers": [{"name": site.name, "part": site.part, "layer": site.layer} for site in self.layers],
            "positions": self.positions,
            "answers": self.answers,
            "probability": _rounded(self.probability),
            "rank": self.rank.tolist(),
            "top": [[[[token, round(p, 4)] for token, p in best] for best in layer] for layer in self.top],
        }

    def save(self, path: str | Path) -> Path:
        """Write the page, one HTML file that works offline; or the values alone, if the name ends with .json."""
        return save_view(self.json(), path)

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for notebooks."""
        return notebook_frame(self.json())

    def __repr__(self) -> str:
        """Return one line."""
        text = " ".join(self.texts["source"].words)
        return f"LayerPredictions({self.kind}, {self.model}: {text!r}; {len(self.layers)} layers, .json())"


@torch.no_grad()
def layer_logits(predictor: Predictor) -> tuple[Tensor, Tensor]:
    """Return the logits after each layer, (L, P, V), and the model's own, (P, V)."""
    sites = predictor.predicting_layers
    states, last = read_sites(predictor, sites)
    # The norm comes first, over all positions, as in the model: then the last layer is equal to the model's own to the bit.
    found = [predictor.logits(predictor.select(predictor.norm(state))[0]) for state in states]
    return torch.stack(found), predictor.logits(last)


def predict_by_layer(predictor: Predictor, top: int = 5) -> LayerPredictions:
    """Compute the predictions of each layer, with the `top` most probable tokens."""
    sites, tokenizer = predictor.predicting_layers, predictor.tokenizer
    size = len(sites) * len(predictor.positions) * len(tokenizer)
    if size > MAX_LOGITS:
        raise DataError(
            f"{len(predictor.positions):,} tokens, {len(sites)} layers and {len(tokenizer):,} words of the vocabulary have "
            f"{size:,} predictions, and {MAX_LOGITS:,} can be computed; shorten the text"
        )
    logits, _ = layer_logits(predictor)
    probabilities = logits.softmax(-1)  # (L, P, V)
    answers = logits[-1].argmax(-1) if predictor.labels is None else torch.tensor(predictor.labels, device=logits.device)
    index = answers.expand(len(sites), -1)[..., None]
    own = logits.gather(-1, index)
    best = probabilities.topk(min(top, len(tokenizer)))
    names = tokenizer.pieces(range(len(tokenizer)))
    found = [
        [[(names[token], value) for token, value in zip(*pair, strict=True)] for pair in zip(*layer, strict=True)]
        for layer in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return LayerPredictions(
        predictor.kind,
        predictor.model,
        predictor.texts,
        predictor.predicts_in,
        sites,
        list(predictor.positions),
        [names[token] for token in answers.tolist()],
        found,
        probabilities.gather(-1, index)[..., 0].cpu(),
        (1 + (logits > own).sum(-1)).cpu(),
    )
