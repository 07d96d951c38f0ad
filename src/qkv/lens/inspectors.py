"""Inspectors: a model together with the texts it reads, one class for each way of running a model.

An inspector runs its model and says which texts the rows and columns of each attention are: `source`, `target` (the decoder's
outputs) or `read` (the decoder's inputs: bos and the target without its last token). The weights come from the attention engine
that materialises them, with the inputs that the fused engines get. B batch, H heads, T query positions, S key positions.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows, map_tensors, padded_rows, unpadded_rows
from qkv.lens.attribution import Attribution, attribute
from qkv.lens.capture import capture_calls
from qkv.lens.explained import MAX_TOKENS, Explained, OutputQuestion, ask, source_rows
from qkv.lens.rollout import attention_rollout, decoder_rollout
from qkv.lens.tokenized_text import TokenizedText, tokenized_text
from qkv.parts.dot_product import RecordedAttention
from qkv.parts.linformer import LinformerAttention
from qkv.text.tokenizer import Tokenizer

ENCODER, DECODER, CROSS = "encoder", "decoder", "cross"


class AttentionMap(NamedTuple):
    """The weights of one attention layer."""

    name: str  # such as encoder.0.self
    part: str  # encoder, decoder or cross
    layer: int
    rows: str  # the text that attends
    columns: str  # the text that is attended to
    weights: Tensor  # (H, T, S)


class AttentionLayer(NamedTuple):
    """One attention of a pass; a module that several layers share has one for each of its calls."""

    name: str  # as in AttentionMap
    part: str
    layer: int
    heads: int
    module: nn.Module


class Rollout(NamedTuple):
    """The shares of one text's tokens in the positions of another."""

    rows: str
    columns: str
    weights: Tensor  # (T, S)


@dataclass(frozen=True)
class EncoderDecoderInspector:
    """An encoder-decoder (transformer, t5, rnn or convolution) with a source and its target."""

    model: str
    network: Any
    source: Rows  # one text
    read: Rows  # bos and the target
    texts: dict[str, TokenizedText]  # source, target and read
    tokenizer: Tokenizer  # of the target
    output: str | None
    unknown: int = Tokenizer.unk  # id of the source's unknown token
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
            part, layer = _part_and_layer(name)
            maps.append(AttentionMap(_map_name(part, layer), part, layer, *texts[part], weights[0].float().cpu()))
        return maps

    def logits(self) -> Tensor:
        """Return the logits of each token of the target, given the tokens before it. -> (T, V), float32."""
        return self.network.logits(self.network(self.source, self.read))[0, :, : len(self.tokenizer)].float()

    def scored(self) -> list[tuple[int, int | None]]:
        """Return the row of `logits` and the id of each token of the output."""
        return list(enumerate(self.texts["target"].ids))

    def with_target_of(self, other: "EncoderDecoderInspector") -> "EncoderDecoderInspector":
        """Return the same source with the target of another."""
        texts = {**other.texts, "source": self.texts["source"]}
        return replace(self, read=other.read, texts=texts, output=other.output)

    def attentions(self) -> list[AttentionLayer]:
        """Return the attention layers in the order of computation."""
        found = []
        for name, module in self.network.named_modules():
            if isinstance(module, RecordedAttention) and not isinstance(module, LinformerAttention):
                part, layer = _part_and_layer(name)
                found.append(AttentionLayer(_map_name(part, layer), part, layer, getattr(module, "heads", 1), module))
        return sorted(found, key=lambda one: (one.part != ENCODER, one.layer, one.part == CROSS))

    def layers(self) -> list[tuple[str, str, nn.Module]]:
        """Return name, part and module of every residual layer, in the order of computation; an rnn has none."""
        if not isinstance(self.network.encoder, nn.ModuleList):
            return []
        return [
            (f"{part}.{n}", part, module) for part in (ENCODER, DECODER) for n, module in enumerate(getattr(self.network, part))
        ]

    def rollout(self, maps: Sequence[AttentionMap]) -> Rollout | None:
        """Return the shares of source tokens in the target's positions; None if other layers than attention mix positions."""
        encoder, decoder, cross = ([m.weights.mean(0) for m in maps if m.part == part] for part in (ENCODER, DECODER, CROSS))
        if not encoder or not decoder:
            return None
        return Rollout("target", "source", decoder_rollout(encoder, decoder, cross)[0])

    def attribution(self, method: str = "gradient") -> Attribution:
        """Attribute each token of the target to the source's tokens."""
        return attribute(self.explain(), method)

    def explain(self, word: int | None = None, instead: str | None = None) -> Explained:
        """Return what explains the tokens of the target, those of one of its words, or a word instead of another one."""
        question = _target_question(self.texts["target"], self.tokenizer, word, instead)
        positions = torch.tensor(question.positions)

        def scores(sources: Sequence[Sequence[int]], outputs: Tensor) -> Tensor:
            read = map_tensors(self.read, lambda x: x.expand(len(sources), -1))
            hidden = self.network(source_rows(sources, self.source), read)
            chosen = hidden[torch.arange(len(sources))[:, None], positions[outputs]]  # (B, M, D)
            return question.score(self.network.logits(chosen), outputs)

        together = max(1, MAX_TOKENS // (self.source.ids.size(1) + self.read.ids.size(1)))
        return _explained_target(self, question, self.network.source_embedding, scores, together)


@dataclass(frozen=True)
class SelfAttentionInspector:
    """An encoder or a GPT with one text."""

    kind: str
    model: str
    network: Any
    rows: Rows
    segment: Tensor | None
    texts: dict[str, TokenizedText]  # source, in the order in which the model reads it
    tokenizer: Tokenizer
    output: str | None
    attributed: str | None = None  # the output that `score` is of, for people
    score: Callable[[], Tensor] | None = None  # runs the model and returns the score of the output
    head: Callable[[Tensor], Tensor] | None = None  # predicts tokens from hidden states (N, D) -> (N, V)
    explainer: Callable[[int | None, str | None], Explained] | None = None  # of the output, a word, or a word instead of another
    prompt: int | None = None  # tokens before those that a GPT has written
    labels: Callable[[], dict[str, float]] | None = None  # runs a fine-tuned model: the probability of each label, or its number

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

    def logits(self) -> Tensor | None:
        """Return the logits of the token after each (GPT) or at each position; None without a head. -> (T, V), float32."""
        if self.head is None:
            return None
        return self.head(self.network(self.rows, self.segment)[0])[:, : len(self.tokenizer)].float()

    def scored(self) -> list[tuple[int, int | None]]:
        """Return the row of `logits` and the id of each token that follows the prompt, or the row alone of each [MASK]."""
        ids = self.texts["source"].ids
        if self.prompt is not None:
            return [(position - 1, ids[position]) for position in range(self.prompt, len(ids))]
        mask = self.tokenizer.mask if self.tokenizer.has_mask else None
        return [(position, None) for position, token in enumerate(ids) if token == mask]

    def with_target_of(self, other: "SelfAttentionInspector") -> "SelfAttentionInspector":
        """Return the same prompt with the continuation of another, as far as the model can read it; an encoder as it is."""
        if self.prompt is None:
            return self
        ids = [*self.texts["source"].ids[: self.prompt], *other.texts["source"].ids[other.prompt :]][: self.network.longest]
        rows = padded_rows(*(torch.tensor([row], device=self.rows.ids.device) for row in (ids, [True] * len(ids))))
        return replace(self, rows=rows, texts={"source": tokenized_text(self.tokenizer, ids)}, output=other.output)

    def attentions(self) -> list[AttentionLayer]:
        """Return the attention layers in the order of computation."""
        found: list[AttentionLayer] = []
        for name, part, module in self.layers():
            attention: Any = next((m for m in module.modules() if isinstance(m, RecordedAttention)), None)
            if attention is not None:
                found.append(AttentionLayer(f"{name}.self", part, len(found), attention.heads, attention))
        return found

    def layers(self) -> list[tuple[str, str, nn.Module]]:
        """Return name, part and module of every residual layer, in the order of computation.

        An ALBERT's layers have two modules each, which several layers may share: the n-th entry of a module is its n-th call.
        """
        part, network = DECODER if self.network.causal else ENCODER, self.network
        return [(f"{part}.{n}", part, m) for n in range(network.config.layers) for m in network.layer_modules(n)]

    def rollout(self, maps: Sequence[AttentionMap]) -> Rollout | None:
        """Return the shares of tokens in each other's positions."""
        return Rollout("source", "source", attention_rollout([one.weights.mean(0) for one in maps]))

    def attribution(self, method: str = "gradient") -> Attribution | None:
        """Attribute the output to the tokens; None without an output that has a score."""
        return None if self.explainer is None else attribute(self.explain(), method)._replace(each=None)

    def explain(self, word: int | None = None, instead: str | None = None) -> Explained:
        """Return what explains the output: the prediction for a [MASK], a class, a number, or a word of a GPT's text."""
        if self.explainer is None:
            raise ConfigError("this model has no output here to attribute; give a text with [MASK], or a fine-tuned run")
        return self.explainer(word, instead)


@dataclass(frozen=True)
class UnilmInspector:
    """A UniLM that translates: source and target are one text, and a [MASK] after the tokens so far predicts the next token."""

    model: str
    network: Any
    source: Rows
    texts: dict[str, TokenizedText]  # source and target
    tokenizer: Tokenizer
    output: str | None
    unknown: int = Tokenizer.unk  # id of the source's unknown token
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

    def logits(self) -> Tensor:
        """Return the logits of each token of the target, given the tokens before it. -> (T, V), float32."""
        return torch.stack([self._logits(position) for position in range(len(self.texts["target"].ids))])

    def scored(self) -> list[tuple[int, int | None]]:
        """Return the row of `logits` and the id of each token of the output."""
        return list(enumerate(self.texts["target"].ids))

    def with_target_of(self, other: "UnilmInspector") -> "UnilmInspector":
        """Return the same source with the target of another."""
        return replace(self, texts={**other.texts, "source": self.texts["source"]}, output=other.output)

    def attentions(self) -> list[AttentionLayer]:
        """Return the attention layers in the order of computation; three parts share a module."""
        return [
            AttentionLayer(_map_name(part, n), part, n, layer.attention.heads, layer.attention)  # type: ignore[union-attr, arg-type]
            for n, (_, _, layer) in enumerate(self.layers())
            for part in (ENCODER, DECODER, CROSS)
        ]

    def layers(self) -> list[tuple[str, str, nn.Module]]:
        """Return name, part and module of every residual layer, in the order of computation."""
        return [(f"{ENCODER}.{n}", ENCODER, layer) for n, layer in enumerate(self.network.encoder.layers)]

    def rollout(self, maps: Sequence[AttentionMap]) -> Rollout:
        """Return the shares of source tokens in the target's positions."""
        size, length = self.source.ids.size(1), len(self.texts["target"].ids)
        shares = [attention_rollout([w.mean(0) for w in self._step_weights(n)])[-1, :size] for n in range(length)]
        return Rollout("target", "source", torch.stack(shares))

    def attribution(self, method: str = "gradient") -> Attribution:
        """Attribute each token of the target to the source's tokens."""
        return attribute(self.explain(), method)

    def explain(self, word: int | None = None, instead: str | None = None) -> Explained:
        """Return what explains the tokens of the target, those of one of its words, or a word instead of another one."""
        question = _target_question(self.texts["target"], self.tokenizer, word, instead)

        def scores(sources: Sequence[Sequence[int]], outputs: Tensor) -> Tensor:
            masked = self.masked_target(question.positions[int(outputs[0, 0])])  # the same output of all sources
            target = map_tensors(masked, lambda x: x.expand(len(sources), -1))
            hidden = self.network(source_rows(sources, self.source), target)[:, -1]
            return question.score(self.network.heads["masked"](hidden)[:, None, : len(self.tokenizer)], outputs)

        return _explained_target(self, question, self.network.encoder.embedding.token_embedding, scores, 1)

    @torch.no_grad()
    def _step_weights(self, position: int) -> list[Tensor]:
        """Return all layers' weights while the target's token at a position is predicted, (H, L, L) each; its [MASK] is last."""
        with capture_calls(self.network) as calls:
            self.network(self.source, self.masked_target(position))
        return [weights[0].float().cpu() for _, weights in calls]

    def _score(self, position: int) -> Tensor:
        """Return the log-probability of the target's token at a position."""
        return self._logits(position).log_softmax(-1)[self.texts["target"].ids[position]]

    def _logits(self, position: int) -> Tensor:
        """Return the logits (V,) of the target's token at a position."""
        hidden = self.network(self.source, self.masked_target(position))[0, -1:]
        return self.network.heads["masked"](hidden)[0, : len(self.tokenizer)].float()

    def masked_target(self, position: int) -> Rows:
        """Return the target before a position, followed by [MASK]."""
        ids = torch.tensor([[*self.texts["target"].ids[:position], self.network.mask]], device=self.source.ids.device)
        return unpadded_rows(ids)


def _target_question(text: TokenizedText, tokenizer: Tokenizer, word: int | None, instead: str | None) -> OutputQuestion:
    """Return the question why a target has its tokens, one word, or one word instead of another."""
    if word is not None:
        return ask(text, tokenizer, word, instead, "the translation")
    if instead is not None:
        raise ConfigError(
            f"the word in whose place “{instead}” might stand is not given; give its number among: {' '.join(text.words)}"
        )
    return OutputQuestion("the translation", [*range(len(text.ids))], text.ids)


def _explained_target(inspector: Any, question: OutputQuestion, embedding: nn.Module, scores: Any, together: int) -> Explained:
    """Return what explains tokens of a target; a source with a tree keeps the positions of its words, others lose a word."""
    source, unknown = inspector.texts["source"], inspector.unknown
    replacement = None if inspector.source.head is None else unknown
    return Explained(question.of, source, len(source.ids), question.positions, embedding, scores, together, unknown, replacement)


Inspector = EncoderDecoderInspector | SelfAttentionInspector | UnilmInspector


def _part_and_layer(name: str) -> tuple[str, int]:
    """Return part and layer of an encoder-decoder's attention from its module's name."""
    number = re.search(r"\d+", name)
    return CROSS if name.endswith("cross") else name.split(".")[0], int(number[0]) if number else 0


def _map_name(part: str, layer: int) -> str:
    return f"decoder.{layer}.cross" if part == CROSS else f"{part}.{layer}.self"
