"""Inspectors: a model together with the texts it reads, one class for each way of running a model.

An inspector runs its model and says which texts the rows and columns of each attention are: `source`, `target` (the decoder's
outputs) or `read` (the decoder's inputs: bos and the target without its last token). The weights come from the attention engine
that materialises them, with the inputs that the fused engines get. B batch, H heads, T query positions, S key positions.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qkv.base.rows import Rows, map_tensors, padded_rows
from qkv.lens.attribution import gradient_times_input
from qkv.lens.capture import capture_calls
from qkv.lens.rollout import attention_rollout, decoder_rollout
from qkv.lens.tokenized_text import TokenizedText
from qkv.parts.linformer import LinformerAttention

GRADIENT_TOKENS = 2048  # tokens in a batch whose gradients are computed
ENCODER, DECODER, CROSS = "encoder", "decoder", "cross"


class AttentionMap(NamedTuple):
    """The weights of one attention layer."""

    name: str  # such as encoder.0.self
    part: str  # encoder, decoder or cross
    layer: int
    rows: str  # the text that attends
    columns: str  # the text that is attended to
    weights: Tensor  # (H, T, S)


class Rollout(NamedTuple):
    """The shares of one text's tokens in the positions of another."""

    rows: str
    columns: str
    weights: Tensor  # (T, S)


class Attribution(NamedTuple):
    """The contribution of the source's tokens to an output, by gradient x input."""

    of: str  # the output
    values: Tensor  # (S,)
    each: Tensor | None = None  # (T, S): for each token of the target; `values` is their sum


@dataclass(frozen=True)
class EncoderDecoderInspector:
    """An encoder-decoder (transformer, t5, rnn or convolution) with a source and its target."""

    model: str
    network: Any
    source: Rows  # one text
    read: Rows  # bos and the target
    texts: dict[str, TokenizedText]  # source, target and read
    output: str | None
    kind: str = "translator"

    @property
    def embeddings(self) -> dict[str, nn.Embedding]:
        """The token embedding of each text."""
        return {"source": self.network.source_embedding, "target": self.network.target_embedding}

    def position_encodings(self) -> Tensor | None:
        """Return the encodings that are added to the source's embeddings, (S, D); None without such encodings."""
        positions = getattr(self.network, "source_positions", None)  # an rnn has none
        return None if positions is None else positions.of_rows(self.source)[0]

    @torch.no_grad()
    def maps(self) -> list[AttentionMap]:
        """Return the weights of every attention layer, in the order of computation."""
        with capture_calls(self.network) as calls:
            self.network(self.source, self.read)
        texts = {ENCODER: ("source", "source"), DECODER: ("read", "read"), CROSS: ("target", "source")}
        maps = []
        for name, weights in calls:
            if isinstance(self.network.get_submodule(name), LinformerAttention):
                continue  # it attends to projections of positions, not to tokens
            number = re.search(r"\d+", name)
            layer = int(number[0]) if number else 0
            part = CROSS if name.endswith("cross") else name.split(".")[0]
            maps.append(AttentionMap(_map_name(part, layer), part, layer, *texts[part], weights[0].float().cpu()))
        return maps

    def rollout(self, maps: Sequence[AttentionMap]) -> Rollout | None:
        """Return the shares of source tokens in the target's positions; None if other layers than attention mix positions."""
        encoder, decoder, cross = ([m.weights.mean(0) for m in maps if m.part == part] for part in (ENCODER, DECODER, CROSS))
        if not encoder or not decoder:
            return None
        return Rollout("target", "source", decoder_rollout(encoder, decoder, cross)[0])

    def attribution(self) -> Attribution:
        """Attribute each token of the target to the source's tokens; a batch has a row for each token of the target."""
        length = len(self.texts["target"].ids)
        rows = max(1, GRADIENT_TOKENS // (self.source.ids.size(1) + length))
        batches = torch.arange(length).split(rows)
        each = torch.cat([self._attribute(positions) for positions in batches])
        return Attribution("the translation", each.sum(0), each)

    def _attribute(self, positions: Tensor) -> Tensor:
        """Return gradient x input of the source's tokens for the target's tokens at some positions, (N,) -> (N, S)."""
        device = self.source.ids.device
        words = torch.tensor(self.texts["target"].ids)[positions].to(device)
        row, positions = torch.arange(len(positions), device=device), positions.to(device)

        def score() -> Tensor:
            source, read = (map_tensors(rows, lambda x: x.expand(len(positions), -1)) for rows in (self.source, self.read))
            hidden = self.network(source, read)[row, positions]  # (N, D)
            return self.network.logits(hidden).float().log_softmax(-1)[row, words].sum()

        return gradient_times_input(self.network.source_embedding, score)


@dataclass(frozen=True)
class SelfAttentionInspector:
    """An encoder or a GPT with one text."""

    kind: str
    model: str
    network: Any
    rows: Rows
    segment: Tensor | None
    texts: dict[str, TokenizedText]  # source, in the order in which the model reads it
    output: str | None
    attributed: str | None = None  # the output that `score` is of, for people
    score: Callable[[], Tensor] | None = None  # runs the model and returns the score of the output

    @property
    def embeddings(self) -> dict[str, nn.Embedding]:
        """The token embedding of each text."""
        return {"source": self.network.embedding.token_embedding}

    def position_encodings(self) -> Tensor | None:
        """Return the encodings that are added to the embeddings, (S, D); None without such encodings."""
        return self.network.embedding.positions.of_rows(self.rows)[0]

    @torch.no_grad()
    def maps(self) -> list[AttentionMap]:
        """Return the weights of every attention layer, in the order of computation."""
        with capture_calls(self.network) as calls:
            self.network(self.rows, self.segment)
        part = DECODER if self.network.causal else ENCODER
        layers = [weights[0].float().cpu() for _, weights in calls]
        return [AttentionMap(_map_name(part, n), part, n, "source", "source", weights) for n, weights in enumerate(layers)]

    def rollout(self, maps: Sequence[AttentionMap]) -> Rollout | None:
        """Return the shares of tokens in each other's positions."""
        return Rollout("source", "source", attention_rollout([one.weights.mean(0) for one in maps]))

    def attribution(self) -> Attribution | None:
        """Attribute the output to the tokens; None without an output that has a score."""
        if self.score is None or self.attributed is None:
            return None
        return Attribution(self.attributed, gradient_times_input(self.network.embedding.token_embedding, self.score)[0])


@dataclass(frozen=True)
class UnilmInspector:
    """A UniLM that translates: source and target are one text, and a [MASK] after the tokens so far predicts the next token."""

    model: str
    network: Any
    source: Rows
    texts: dict[str, TokenizedText]  # source and target
    output: str | None
    kind: str = "translator"

    @property
    def embeddings(self) -> dict[str, nn.Embedding]:
        """The token embedding of each text."""
        return {"source": self.network.source_embedding, "target": self.network.target_embedding}

    def position_encodings(self) -> Tensor | None:
        """Return the encodings that are added to the source's embeddings, (S, D); None without such encodings."""
        return self.network.encoder.embedding.positions.of_rows(self.source)[0]

    def maps(self) -> list[AttentionMap]:
        """Return the weights of every layer, split into encoder, decoder and cross-attention."""
        size, length = self.source.ids.size(1), len(self.texts["target"].ids)
        steps = [self._step_weights(position) for position in range(length)]  # all layers for each target token, (H, L, L)
        maps = []
        for layer, first in enumerate(steps[0]):
            rows = [torch.nn.functional.pad(step[layer][:, -1], (0, length - 1 - n)) for n, step in enumerate(steps)]
            target = torch.stack(rows, 1)  # (H, T, S + T)
            maps.append(AttentionMap(_map_name(ENCODER, layer), ENCODER, layer, "source", "source", first[:, :size, :size]))
            maps.append(AttentionMap(_map_name(DECODER, layer), DECODER, layer, "target", "target", target[..., size:]))
            maps.append(AttentionMap(_map_name(CROSS, layer), CROSS, layer, "target", "source", target[..., :size]))
        return maps

    def rollout(self, maps: Sequence[AttentionMap]) -> Rollout:
        """Return the shares of source tokens in the target's positions."""
        size, length = self.source.ids.size(1), len(self.texts["target"].ids)
        shares = [attention_rollout([w.mean(0) for w in self._step_weights(n)])[-1, :size] for n in range(length)]
        return Rollout("target", "source", torch.stack(shares))

    def attribution(self) -> Attribution:
        """Attribute each token of the target to the source's tokens."""
        size = self.source.ids.size(1)
        embedding = self.network.encoder.embedding.token_embedding
        found = [gradient_times_input(embedding, partial(self._score, n)) for n in range(len(self.texts["target"].ids))]
        each = torch.cat([values[:, :size] for values in found])
        return Attribution("the translation", each.sum(0), each)

    @torch.no_grad()
    def _step_weights(self, position: int) -> list[Tensor]:
        """Return all layers' weights while the target's token at a position is predicted, (H, L, L) each; its [MASK] is last."""
        with capture_calls(self.network) as calls:
            self.network(self.source, self._masked_target(position))
        return [weights[0].float().cpu() for _, weights in calls]

    def _score(self, position: int) -> Tensor:
        """Return the log-probability of the target's token at a position."""
        hidden = self.network(self.source, self._masked_target(position))[0, -1]
        return self.network.heads["masked"](hidden[None]).float().log_softmax(-1)[0, self.texts["target"].ids[position]]

    def _masked_target(self, position: int) -> Rows:
        """Return the target before a position, followed by [MASK]."""
        ids = torch.tensor([[*self.texts["target"].ids[:position], self.network.mask]], device=self.source.ids.device)
        return padded_rows(ids, torch.ones_like(ids, dtype=torch.bool))


Inspector = EncoderDecoderInspector | SelfAttentionInspector | UnilmInspector


def _map_name(part: str, layer: int) -> str:
    return f"decoder.{layer}.cross" if part == CROSS else f"{part}.{layer}.self"
