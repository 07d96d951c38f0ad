"""Recurrent encoder-decoders, with one fixed vector between encoder and decoder or with attention.

Fixed vector: Sutskever et al. 2014 (the encoder's last states are the decoder's initial ones; the source may be reversed) and,
with `context: every`, Cho et al. 2014 (every step also reads the source's vector). Attention: Luong et al. 2015, with input
feeding, and the additive score of Bahdanau et al. 2015.

Departures: the query is the decoder's current state, as in Luong et al., also with the additive score, where Bahdanau et al. use
the previous one. Nor do we follow the rest of the decoders of Bahdanau et al. and Cho et al.: the context reaches the cell by
input feeding, and the readout is a tanh layer, not maxout, over state and context, without the previous token. It has the
embeddings' width, so that output and embedding can share weights. Cells read embeddings times sqrt(E), as a Transformer does
("Attention Is All You Need", section 3.4): unscaled ones hardly move the cells' gates, and learning is slow with any attention.
Dropout is on embeddings, between layers and before the output, never between positions (Zaremba et al. 2014).
B batch, S source length, T target length, D width, E width of embeddings, R hypotheses, V vocabulary.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import Rows, padded_rows
from qkv.models.family import Family
from qkv.parts.decoding_weights import IncrementalDecoder, MadeWeights, compute_dtype
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
    shardable: ClassVar[bool] = False
    cell: Literal["lstm", "gru"] = "lstm"
    width: int = Field(default=512, gt=0)  # of the layers, both directions together
    embedding_width: int = Field(default=512, gt=0)  # of embeddings, and of the output layer's input
    layers: int = Field(default=2, gt=0)  # of the encoder, and of the decoder
    dropout: float = Field(default=0.2, ge=0, lt=1)  # on embeddings, between layers, before the output
    attention: Literal["none", "additive", "dot", "general"] = "general"  # none: the source is one vector
    bidirectional: bool = True  # the encoder, with half of the width in each direction; without attention, false by default
    input_feeding: bool = True  # each step also reads the previous step's output (Luong); without attention, false by default
    reverse: bool = False  # read the source from right to left
    context: Literal["first", "every"] = "first"  # without attention: which of the decoder's steps read the source's vector
    tied: Literal["all", "target", "none"] = "all"  # which embeddings share the output's weights; all needs one vocabulary

    @property
    def one_text_per_row(self) -> bool:
        return True

    @model_validator(mode="before")
    @classmethod
    def _set_defaults(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("attention") == "none":
            return {"bidirectional": False, "input_feeding": False, **values}
        return values

    @model_validator(mode="after")
    def _check_options(self) -> "RnnConfig":
        if self.bidirectional and self.width % 2:
            raise ValueError(f"width {self.width} is odd, and a bidirectional encoder halves it; choose an even one")
        if self.bidirectional and self.reverse:
            raise ValueError("a bidirectional encoder reads from both ends; set bidirectional or reverse to false")
        if self.attention == "none" and self.input_feeding:
            raise ValueError("input_feeding needs attention; set attention, or input_feeding to false")
        if self.attention != "none" and self.context == "every":
            raise ValueError("with attention every step has its own context; set context to first, or attention to none")
        return self


class EncodedSource(NamedTuple):
    """The encoder's output, as the decoder uses it."""

    initial: list[HiddenState]  # the initial state of each decoder layer
    context: Tensor | None  # (B, D) the source's vector, if every step reads it
    memory: Memory | None  # keys and values (B, S, D), with attention
    mask: Tensor | None  # (B, 1, S)


class Rnn(IncrementalDecoder):
    """A recurrent encoder-decoder; `start` and the state's `step` decode token by token."""

    joins_source_and_target = False  # whether the network reads both as one text
    longest = None  # no limit on the length of texts

    def __init__(self, c: RnnConfig, source_vocab: int, target_vocab: int):
        super().__init__()
        if c.tied == "all" and source_vocab != target_vocab:
            raise ConfigError("model.tied=all needs one vocabulary for both sides; set model.tied=target for two")
        self.config = c
        self.target_embedding = nn.Embedding(target_vocab, c.embedding_width)
        self.source_embedding = self.target_embedding if c.tied == "all" else nn.Embedding(source_vocab, c.embedding_width)
        self.output = nn.Linear(c.embedding_width, target_vocab, bias=False)
        direction: Direction = "both" if c.bidirectional else "right_to_left" if c.reverse else "left_to_right"
        self.encoder = RecurrentEncoder(c.cell, c.embedding_width, c.width, c.layers, direction, c.dropout)
        self.cross = None if c.attention == "none" else RecurrentAttention(c.attention, c.width)
        extra = c.embedding_width if c.input_feeding else c.width if c.context == "every" else 0
        widths = [c.embedding_width + extra] + [c.width] * (c.layers - 1)
        self.decoder = nn.ModuleList(Recurrence(c.cell, inputs, c.width) for inputs in widths)
        self.readout: nn.Module = nn.Identity()
        if c.attention != "none" or c.context == "every":
            self.readout = nn.Linear(2 * c.width, c.embedding_width, bias=False)
        elif c.width != c.embedding_width:
            self.readout = nn.Linear(c.width, c.embedding_width, bias=False)
        self._initialise()
        self._rows_checked = False

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
            if module in (self.source_embedding, self.target_embedding, self.output):
                nn.init.normal_(module.weight, std=self.config.embedding_width**-0.5)
        if self.config.tied != "none":
            self.output.weight = self.target_embedding.weight

    def forward(self, source: Rows, target: Rows) -> Tensor:
        """Return the decoder's readouts under teacher forcing. source (B, S), target (B, T) -> (B, T, E)."""
        self._check(source, target)
        encoded = self._encode_for_decoder(source)
        x = self.embed(self.target_embedding, target.ids)
        return self._dropout(
            self._decode_stepwise(x, encoded) if self.config.input_feeding else self._decode_parallel(x, encoded)
        )

    def encode(self, source: Rows) -> tuple[Tensor, list[HiddenState]]:
        """Return the encoder's hidden states, (B, S, D), and each layer's state at the end of each text. source (B, S)."""
        return self.encoder(self.embed(self.source_embedding, source.ids), padded_texts(source.text > 0))

    @property
    def embedding_scale(self) -> float:
        """The factor of token embeddings."""
        return self.config.embedding_width**0.5

    def embed(self, embedding: nn.Embedding, ids: Tensor) -> Tensor:
        """Embed tokens for the cells, with deviation 1 at first; the output layer uses the same weights unscaled. -> (..., E)."""
        return self._dropout(embedding(ids) * self.embedding_scale)

    def _encode_for_decoder(self, source: Rows) -> EncodedSource:
        states, ends = self.encode(source)
        if self.cross is None:
            return EncodedSource(ends, ends[-1][0] if self.config.context == "every" else None, None, None)
        states = states.to(compute_dtype(self.output.weight))  # cast once, not in every step
        return EncodedSource(ends, None, self.cross.project_memory(states), source_mask(source.text > 0, states))

    def _decode_parallel(self, x: Tensor, encoded: EncodedSource) -> Tensor:
        """Run each layer over all positions in one call. (B, T, E) -> (B, T, E)."""
        context = None if encoded.context is None else encoded.context[:, None].expand(-1, x.size(1), -1)
        x = x if context is None else torch.cat([x, context], -1)
        for number, (layer, initial) in enumerate(zip(self.decoder, encoded.initial, strict=True)):
            x = layer(self._dropout(x) if number else x, initial)
        if self.cross is not None:
            context = self.cross(x, encoded.memory, encoded.mask)
        return self._read_out(x, context)

    def _decode_stepwise(self, x: Tensor, encoded: EncodedSource) -> Tensor:
        """Run position after position, as input feeding requires. (B, T, E) -> (B, T, E)."""
        assert self.cross is not None and encoded.memory is not None and encoded.mask is not None
        dtype = compute_dtype(self.output.weight)
        x, layers = x.to(dtype), _cast(encoded.initial, dtype)  # cast once, not in every step
        readout = x.new_zeros(len(x), self.config.embedding_width)
        queries, readouts = [], []
        for position, embedded in enumerate(x.unbind(1)):
            layers = self._advance(torch.cat([embedded, readout], -1), layers)
            top = layers[-1][0]
            context, _ = self.cross.attend(top[:, None], encoded.memory, encoded.mask, position)
            readout = self._read_out(top, context[:, 0])
            queries.append(top)
            readouts.append(readout)
        if is_recording():  # attend again from all positions, so that the recorder gets one matrix
            self.cross(torch.stack(queries, 1), encoded.memory, encoded.mask)
        return torch.stack(readouts, 1)

    def _advance(self, x: Tensor, layers: list[HiddenState]) -> list[HiddenState]:
        """Advance every layer by one position. x (R, C)."""
        states = []
        for number, (layer, before) in enumerate(zip(self.decoder, layers, strict=True)):
            state = layer.step(self._dropout(x) if number else x, before)  # type: ignore[operator]
            states.append(state)
            x = state[0]
        return states

    def _read_out(self, top: Tensor, context: Tensor | None) -> Tensor:
        """Return the input of the output layer. (..., D) -> (..., E)."""
        if context is None:
            return self.readout(top)
        return torch.tanh(self.readout(torch.cat([top, context], -1)))

    def _dropout(self, x: Tensor) -> Tensor:
        return dropout(x, self.config.dropout, self.training)

    def _check(self, *sides: Rows) -> None:
        """Refuse rows with several texts; on a GPU, where the check has to synchronise, only in the first pass."""
        if self._rows_checked and sides[0].text.is_cuda:
            return
        if any(bool((rows.text > 1).any()) for rows in sides):
            raise DataError("a row holds several texts, which an rnn would mix; make batches with one_text_per_row=True")
        self._rows_checked = True

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of every target token. (..., E) -> (..., V)."""
        return self.output(hidden)

    def prepare_decoding(self, dtype: torch.dtype, made: MadeWeights | None = None) -> "Rnn":
        """Return a copy for decoding. It encodes with this model: torch's recurrent layers need their own weights."""
        model = super().prepare_decoding(dtype, made)
        model.encode = self.encode  # type: ignore[method-assign]
        return model

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False) -> RecurrentState:
        """Encode padded sources (B, S), for at most `max_length` target tokens each."""
        model, dtype = self.in_compute_dtype(), compute_dtype(self.output.weight)
        states, ends = self.encode(padded_rows(ids, keep))
        with torch.autocast(ids.device.type, enabled=False):
            return model._initial_state(states.to(dtype), _cast(ends, dtype), keep, max_length, attention)

    def _initial_state(
        self, states: Tensor, initial: list[HiddenState], keep: Tensor, max_length: int, attention: bool
    ) -> RecurrentState:
        c = self.config
        return RecurrentState(
            run=self._decode_step,
            layers=initial,
            input_feed=states.new_zeros(len(states), c.embedding_width) if c.input_feeding else None,
            context=initial[-1][0] if c.context == "every" else None,
            memory=None if self.cross is None else self.cross.project_memory(states),
            mask=None if self.cross is None else source_mask(keep, states),
            sources=len(states),
            steps_left=max_length,
            want_attention=attention and self.cross is not None,
        )

    def _decode_step(self, tokens: Tensor, state: RecurrentState) -> Tensor:
        """Return the logits (R, V) that follow the newest tokens (R,)."""
        extra = state.input_feed if state.input_feed is not None else state.context
        x = self.embed(self.target_embedding, tokens)
        state.layers = self._advance(x if extra is None else torch.cat([x, extra], -1), state.layers)
        top, context = state.layers[-1][0], state.context
        if self.cross is not None and state.memory is not None and state.mask is not None:
            contexts, weights = self.cross.attend(top.view(state.sources, -1, top.size(-1)), state.memory, state.mask)
            context = contexts.flatten(0, 1)
            state.attention = weights.flatten(0, 1).float() if state.want_attention else None
        hidden = self._read_out(top, context)
        state.input_feed = hidden if self.config.input_feeding else None
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
