"""Recurrent encoder-decoders: with one fixed vector between the two, or with attention.

Fixed: Sutskever et al. 2014 (what the encoder's layers know at the end is where the decoder's begin; the source may be reversed)
and, with `context: every`, Cho et al. 2014 (every step reads the source's vector too). Attention: Luong et al. 2015, with input
feeding, and the additive score of Bahdanau et al. 2015. Whatever the score, the decoder's present state asks, as with Luong; with
Bahdanau the one before does. Nor is the rest of his decoder and of Cho's theirs: the context reaches the cell by feeding, and a
layer with tanh, not maxout, reads out state and context, without the word before; it has the embeddings' width, so that weights
can be shared.
Dropout is plain and never between places (Zaremba et al. 2014): on embeddings, between layers and before the output.
B batch, S source length, T target length, D width, E width of embeddings, R hypotheses, V vocabulary.
"""

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import Rows, padded_rows
from qkv.models.family import Family
from qkv.parts.decoding_weights import IncrementalDecoder, compute_dtype
from qkv.parts.dot_product import is_recording
from qkv.parts.dropout import dropout
from qkv.parts.model_config import ModelConfig
from qkv.parts.recurrent import (
    Direction,
    HiddenState,
    Memory,
    Recurrence,
    RecurrentAttention,
    RecurrentEncoder,
    RecurrentState,
    padded_texts,
    source_mask,
)
from qkv.parts.stepping import token_logits


class RnnConfig(ModelConfig):
    """The shape of a recurrent encoder-decoder; vocabulary sizes come from the tokenizers."""

    kind: Literal["rnn"] = "rnn"
    cell: Literal["lstm", "gru"] = "lstm"
    width: int = Field(default=512, gt=0)  # of the layers, both directions together
    embedding_width: int = Field(default=512, gt=0)  # of embeddings, and of what stands before the output
    layers: int = Field(default=2, gt=0)  # of the encoder, and of the decoder
    dropout: float = Field(default=0.2, ge=0, lt=1)  # on embeddings, between layers, before the output; never between places
    attention: Literal["none", "additive", "dot", "general"] = "general"  # none: the source in one vector
    bidirectional: bool = True  # encoder, each way with half of the width; without attention, false when not given
    input_feeding: bool = True  # each step also reads what the one before found (Luong); without attention, false when not given
    reverse: bool = False  # read the source from its end
    context: Literal["first", "every"] = "first"  # without attention: which of the decoder's steps read the source's vector
    tied: Literal["all", "target", "none"] = "all"  # which embeddings share the output's weights; all needs one vocabulary

    @property
    def one_text_per_row(self) -> bool:
        return True

    @model_validator(mode="before")
    @classmethod
    def _without_attention(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("attention") == "none":
            return {"bidirectional": False, "input_feeding": False, **values}
        return values

    @model_validator(mode="after")
    def _fits_together(self) -> "RnnConfig":
        if self.bidirectional and self.width % 2:
            raise ValueError(f"width {self.width} is odd, and a bidirectional encoder halves it; choose an even one")
        if self.bidirectional and self.reverse:
            raise ValueError("a bidirectional encoder reads from both ends; set bidirectional or reverse to false")
        if self.attention == "none" and self.input_feeding:
            raise ValueError("feeding is for models with attention; set attention, or feeding to false")
        if self.attention != "none" and self.context == "every":
            raise ValueError("with attention every step has a context of its own; set context to first, or attention to none")
        return self


class Source(NamedTuple):
    """What the decoder is told of the sources."""

    first: list[HiddenState]  # where each of its layers begins
    context: Tensor | None  # (B, D) for every step to read
    memory: Memory | None  # to attend to, keys and values (B, S, D)
    mask: Tensor | None  # (B, 1, S)


class Rnn(IncrementalDecoder):
    """Reads source rows, predicts target rows; `start` and `step` decode word by word."""

    joins_source_and_target = False  # whether both are one text to the network

    def __init__(self, c: RnnConfig, source_vocab: int, target_vocab: int):
        super().__init__()
        if c.tied == "all" and source_vocab != target_vocab:
            raise ConfigError("model.tied=all needs one vocabulary for both sides; say model.tied=target for two")
        self.config = c
        self.target_embedding = nn.Embedding(target_vocab, c.embedding_width)
        self.source_embedding = self.target_embedding if c.tied == "all" else nn.Embedding(source_vocab, c.embedding_width)
        self.output = nn.Linear(c.embedding_width, target_vocab, bias=False)
        direction: Direction = "both" if c.bidirectional else "leftward" if c.reverse else "rightward"
        self.encoder = RecurrentEncoder(c.cell, c.embedding_width, c.width, c.layers, direction, c.dropout)
        self.cross = None if c.attention == "none" else RecurrentAttention(c.attention, c.width)
        beside = c.embedding_width if c.input_feeding else c.width if c.context == "every" else 0
        widths = [c.embedding_width + beside] + [c.width] * (c.layers - 1)
        self.decoder = nn.ModuleList(Recurrence(c.cell, inputs, c.width) for inputs in widths)
        self.readout = self._make_readout()
        self._initialise()
        self._rows_are_known = False

    def _make_readout(self) -> nn.Module:
        c = self.config
        if c.attention != "none" or c.context == "every":
            return nn.Linear(2 * c.width, c.embedding_width, bias=False)
        return nn.Identity() if c.width == c.embedding_width else nn.Linear(c.width, c.embedding_width, bias=False)

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
            if module in (self.source_embedding, self.target_embedding, self.output):
                nn.init.normal_(module.weight, std=self.config.embedding_width**-0.5)
        if self.config.tied != "none":
            self.output.weight = self.target_embedding.weight

    def forward(self, source: Rows, target: Rows) -> Tensor:
        """What the decoder knows at each target place, teacher-forced. -> (B, T, E)."""
        self._check(source, target)
        read = self._read(source)
        x = self._drop(self.target_embedding(target.ids))
        return self._drop(self._fed(x, read) if self.config.input_feeding else self._whole(x, read))

    def encode(self, source: Rows) -> tuple[Tensor, list[HiddenState]]:
        """What the encoder knows at each source place, (B, S, D), and each of its layers at the end of the text."""
        return self.encoder(self._drop(self.source_embedding(source.ids)), padded_texts(source.text > 0))

    def _read(self, source: Rows) -> Source:
        states, ends = self.encode(source)
        if self.cross is None:
            return Source(ends, ends[-1][0] if self.config.context == "every" else None, None, None)
        states = states.to(compute_dtype(self.output.weight))  # once, not whenever one looks at them
        return Source(ends, None, self.cross.project_memory(states), source_mask(source.text > 0, states))

    def _whole(self, x: Tensor, read: Source) -> Tensor:
        """All places of each layer in one call. (B, T, E) -> (B, T, E)."""
        context = None if read.context is None else read.context[:, None].expand(-1, x.size(1), -1)
        x = x if context is None else torch.cat([x, context], -1)
        for number, (layer, first) in enumerate(zip(self.decoder, read.first, strict=True)):
            x = layer(self._drop(x) if number else x, first)
        if self.cross is not None:
            context = self.cross(x, read.memory, read.mask)
        return self._read_out(x, context)

    def _fed(self, x: Tensor, read: Source) -> Tensor:
        """Place after place, as each reads what the one before found. (B, T, E) -> (B, T, E)."""
        assert self.cross is not None and read.memory is not None and read.mask is not None
        dtype = compute_dtype(self.output.weight)
        x, layers = x.to(dtype), _cast(read.first, dtype)  # once, not at each place
        fed = x.new_zeros(len(x), self.config.embedding_width)
        asked, found = [], []
        for word in x.unbind(1):
            layers = self._advance(torch.cat([word, fed], -1), layers)
            top = layers[-1][0]
            context, _ = self.cross.attend(top[:, None], read.memory, read.mask)
            fed = self._read_out(top, context[:, 0])
            asked.append(top)
            found.append(fed)
        if is_recording():  # once more, all at once: whoever records gets one matrix
            self.cross(torch.stack(asked, 1), read.memory, read.mask)
        return torch.stack(found, 1)

    def _advance(self, x: Tensor, layers: list[HiddenState]) -> list[HiddenState]:
        """One place of every layer. x (R, C)."""
        now = []
        for number, (layer, before) in enumerate(zip(self.decoder, layers, strict=True)):
            carried = layer.step(self._drop(x) if number else x, before)  # type: ignore[operator]
            now.append(carried)
            x = carried[0]
        return now

    def _read_out(self, top: Tensor, context: Tensor | None) -> Tensor:
        """What the output is computed from. (..., D) -> (..., E)."""
        if context is None:
            return self.readout(top)
        return torch.tanh(self.readout(torch.cat([top, context], -1)))

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.config.dropout, self.training)

    def _check(self, *sides: Rows) -> None:
        """Refuse rows with several texts; on a GPU, where looking takes a wait, in the first pass only."""
        if self._rows_are_known and sides[0].text.is_cuda:
            return
        if any(bool((rows.text > 1).any()) for rows in sides):
            raise DataError("a row holds several texts, and a recurrent model would mix them; make batches with alone=True")
        self._rows_are_known = True

    longest = None  # places a text may have: there is no limit

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of every target token. (..., E) -> (..., V)."""
        return self.output(hidden)

    def prepare_decoding(self, dtype: torch.dtype) -> "Rnn":
        """Return a copy for decoding. It encodes with this model's weights: torch's recurrent layers know only their own."""
        model = super().prepare_decoding(dtype)
        model.encode = self.encode  # type: ignore[method-assign]
        return model

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False) -> RecurrentState:
        """Encode padded sources (B, S), for at most `max_length` target tokens each."""
        model, dtype = self.in_compute_dtype(), compute_dtype(self.output.weight)
        states, ends = self.encode(padded_rows(ids, keep))
        with torch.autocast(ids.device.type, enabled=False):
            return model._first_state(states.to(dtype), _cast(ends, dtype), keep, max_length, attention)

    def _first_state(
        self, states: Tensor, first: list[HiddenState], keep: Tensor, max_length: int, attention: bool
    ) -> RecurrentState:
        c = self.config
        return RecurrentState(
            run=self._decode_step,
            layers=first,
            fed=states.new_zeros(len(states), c.embedding_width) if c.input_feeding else None,
            context=first[-1][0] if c.context == "every" else None,
            memory=None if self.cross is None else self.cross.project_memory(states),
            mask=None if self.cross is None else source_mask(keep, states),
            sources=len(states),
            steps_left=max_length,
            want_attention=attention and self.cross is not None,
        )

    def _decode_step(self, tokens: Tensor, state: RecurrentState) -> Tensor:
        """Return the logits (R, V) that follow the newest tokens (R,)."""
        beside = state.fed if state.fed is not None else state.context
        x = self.target_embedding(tokens)
        state.layers = self._advance(x if beside is None else torch.cat([x, beside], -1), state.layers)
        top, context = state.layers[-1][0], state.context
        if self.cross is not None and state.memory is not None and state.mask is not None:
            attended, weights = self.cross.attend(top.view(state.sources, -1, top.size(-1)), state.memory, state.mask)
            context = attended.flatten(0, 1)
            state.attention = weights.flatten(0, 1).float() if state.want_attention else None
        hidden = self._read_out(top, context)
        state.fed = hidden if self.config.input_feeding else None
        return token_logits(self.output, hidden)


def _cast(layers: list[HiddenState], dtype: torch.dtype) -> list[HiddenState]:
    """Return the states of layers in this dtype."""
    return [tuple(part.to(dtype) for part in layer) for layer in layers]


FAMILY = Family(
    kind="rnn",
    config=RnnConfig,
    translator=lambda config, source, target, mask: Rnn(config, source, target),
    objectives=("translation",),
    loads_as="translator",
)
