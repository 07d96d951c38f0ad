"""What is looked at: a model and texts that it reads, each kind of model in its own way.

A subject knows how its model is run on its texts and what each attention's rows and columns are: `source`, `target` (what a
decoder was writing) or `read` (what it had read by then: the beginning, and all it wrote but the last). Weights are those that
the open engine computes, with the same inputs as the fast ones. B batch, H heads, T and S places.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qkv.base.rows import Rows, on_each, padded_rows
from qkv.lens.attribution import gradient_times_input
from qkv.lens.capture import capture_calls
from qkv.lens.rollout import rolled, rolled_across
from qkv.lens.sides import Side
from qkv.parts.linformer import LinformerAttention
from qkv.parts.positions import placed

TOGETHER = 2048  # tokens in a batch of which gradients are computed
ENCODER, DECODER, CROSS = "encoder", "decoder", "cross"


class Map(NamedTuple):
    """The weights of one attention."""

    name: str  # such as encoder.0.self
    part: str  # encoder, decoder or cross
    layer: int
    rows: str  # the side that looks
    columns: str  # the side that is looked at
    weights: Tensor  # (H, T, S)


class Spread(NamedTuple):
    """One matrix of shares: of the tokens of a side in those of another."""

    rows: str
    columns: str
    weights: Tensor  # (T, S)


class Attribution(NamedTuple):
    """What tokens of the source had to do with what was said."""

    of: str  # what was said
    values: Tensor  # (S,)
    each: Tensor | None = None  # (T, S) for each token of the target; the values are their sum


@dataclass(frozen=True)
class Pair:
    """An encoder-decoder and a source with its target: transformer, t5, rnn or convolution."""

    model: str
    network: Any
    source: Rows  # one text
    read: Rows  # the beginning and the target
    sides: dict[str, Side]  # source, target and read
    output: str | None
    kind: str = "translator"

    @property
    def embeddings(self) -> dict[str, nn.Embedding]:
        """Where the tokens of sides are looked up."""
        return {"source": self.network.source_embedding, "target": self.network.target_embedding}

    def places(self) -> Tensor | None:
        """What is added to the source's embeddings to tell its places, (S, D); None where nothing is."""
        positions = getattr(self.network, "source_positions", None)  # which an rnn has not
        return None if positions is None else placed(positions, self.source)[0]

    @torch.no_grad()
    def maps(self) -> list[Map]:
        """The weights of every attention, in the order in which they are computed."""
        with capture_calls(self.network) as calls:
            self.network(self.source, self.read)
        return [self._map(name, weights[0].float().cpu()) for name, weights in calls if self._of_tokens(name)]

    def _of_tokens(self, name: str) -> bool:
        """Whether it is tokens that were looked at; a Linformer's encoder looks at mixtures of them."""
        return not isinstance(self.network.get_submodule(name), LinformerAttention)

    def _map(self, name: str, weights: Tensor) -> Map:
        part, layer = _placed(name)
        sides = {ENCODER: ("source", "source"), DECODER: ("read", "read"), CROSS: ("target", "source")}[part]
        return Map(_name(part, layer), part, layer, *sides, weights)

    def rollout(self, maps: Sequence[Map]) -> Spread | None:
        """Shares of tokens through all layers; None where not attention alone mixes places."""
        encoder, own, cross = ([m.weights.mean(0) for m in maps if m.part == part] for part in (ENCODER, DECODER, CROSS))
        if not encoder or not own:
            return None
        return Spread("target", "source", rolled_across(encoder, own, cross)[0])

    def attribution(self) -> Attribution:
        """Of each token of the target by itself: a row of a batch for each, so that one backward pass tells many."""
        written = len(self.sides["target"].ids)
        rows = max(1, TOGETHER // (self.source.ids.size(1) + written))
        each = torch.cat([self._explained(torch.arange(written)[first : first + rows]) for first in range(0, written, rows)])
        return Attribution("the translation", each.sum(0), each)

    def _explained(self, places: Tensor) -> Tensor:
        """Values of the source's tokens for what was written at some places, (N,) -> (N, S)."""
        device = self.source.ids.device
        words = torch.tensor(self.sides["target"].ids)[places].to(device)
        number, places = torch.arange(len(places), device=device), places.to(device)

        def score() -> Tensor:
            source, read = (on_each(rows, lambda x: x.expand(len(places), -1)) for rows in (self.source, self.read))
            hidden = self.network(source, read)[number, places]  # (N, D): of each row the place that it is for
            return self.network.words(hidden).float().log_softmax(-1)[number, words].sum()

        return gradient_times_input(self.network.source_embedding, score)


@dataclass(frozen=True)
class Single:
    """An encoder, or a GPT, and one text."""

    kind: str
    model: str
    network: Any
    rows: Rows
    segment: Tensor | None
    sides: dict[str, Side]  # source, in the order in which the model reads it
    output: str | None
    said: str | None = None  # what the score is of
    score: Callable[[], Tensor] | None = None  # of what was said, by a pass over the text

    @property
    def embeddings(self) -> dict[str, nn.Embedding]:
        return {"source": self.network.embedding.words}

    def places(self) -> Tensor | None:
        return placed(self.network.embedding.positions, self.rows)[0]

    @torch.no_grad()
    def maps(self) -> list[Map]:
        with capture_calls(self.network) as calls:
            self.network(self.rows, self.segment)
        part = DECODER if self.network.causal else ENCODER
        found = [weights[0].float().cpu() for _, weights in calls]
        return [Map(_name(part, layer), part, layer, "source", "source", weights) for layer, weights in enumerate(found)]

    def rollout(self, maps: Sequence[Map]) -> Spread | None:
        return Spread("source", "source", rolled([one.weights.mean(0) for one in maps]))

    def attribution(self) -> Attribution | None:
        if self.score is None or self.said is None:
            return None
        return Attribution(self.said, gradient_times_input(self.network.embedding.words, self.score)[0])


@dataclass(frozen=True)
class Joined:
    """A UniLM that turns a source into a target: one text, in which each word is written at a [MASK] after those before it."""

    model: str
    network: Any
    source: Rows
    sides: dict[str, Side]  # source and target
    output: str | None
    kind: str = "translator"

    @property
    def embeddings(self) -> dict[str, nn.Embedding]:
        return {"source": self.network.source_embedding, "target": self.network.target_embedding}

    def places(self) -> Tensor | None:
        return placed(self.network.encoder.embedding.positions, self.source)[0]

    def maps(self) -> list[Map]:
        size, written = self.source.ids.size(1), len(self.sides["target"].ids)
        passes = [self._looked(position) for position in range(written)]  # of each place of the target all layers, (H, L, L)
        found = []
        for layer, whole in enumerate(passes[0]):
            rows = [torch.nn.functional.pad(of[layer][:, -1], (0, written - 1 - n)) for n, of in enumerate(passes)]
            looked = torch.stack(rows, 1)  # (H, T, S + T)
            found.append(Map(_name(ENCODER, layer), ENCODER, layer, "source", "source", whole[:, :size, :size]))
            found.append(Map(_name(DECODER, layer), DECODER, layer, "target", "target", looked[..., size:]))
            found.append(Map(_name(CROSS, layer), CROSS, layer, "target", "source", looked[..., :size]))
        return found

    def rollout(self, maps: Sequence[Map]) -> Spread:
        size = self.source.ids.size(1)
        shares = [rolled([w.mean(0) for w in self._looked(n)])[-1, :size] for n in range(len(self.sides["target"].ids))]
        return Spread("target", "source", torch.stack(shares))

    def attribution(self) -> Attribution:
        size = self.source.ids.size(1)
        words = self.network.encoder.embedding.words
        found = [gradient_times_input(words, partial(self._score, n)) for n in range(len(self.sides["target"].ids))]
        each = torch.cat([values[:, :size] for values in found])
        return Attribution("the translation", each.sum(0), each)

    @torch.no_grad()
    def _looked(self, position: int) -> list[Tensor]:
        """All layers' weights while the word at a place of the target was written, (H, L, L) each; its [MASK] comes last."""
        with capture_calls(self.network) as calls:
            self.network(self.source, self._until(position))
        return [weights[0].float().cpu() for _, weights in calls]

    def _score(self, position: int) -> Tensor:
        hidden = self.network(self.source, self._until(position))[0, -1]
        return self.network.heads["masked"](hidden[None]).float().log_softmax(-1)[0, self.sides["target"].ids[position]]

    def _until(self, position: int) -> Rows:
        ids = torch.tensor([[*self.sides["target"].ids[:position], self.network.mask]], device=self.source.ids.device)
        return padded_rows(ids, torch.ones_like(ids, dtype=torch.bool))


Subject = Pair | Single | Joined


def _placed(name: str) -> tuple[str, int]:
    """The part and the layer of an encoder-decoder's attention, by the name of its module."""
    layer = re.search(r"\d+", name)
    part = CROSS if name.endswith("cross") else name.split(".")[0]
    return part, int(layer[0]) if layer else 0


def _name(part: str, layer: int) -> str:
    return f"decoder.{layer}.cross" if part == CROSS else f"{part}.{layer}.self"
