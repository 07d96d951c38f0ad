"""Convolutional sequence to sequence learning (Gehring et al. 2017): gated convolutions, and attention in every decoder layer.

The defaults have the shape of the paper's English-Romanian model (section 5.1). Departures: the output has no bias, as in our
other translators, and all layers have the same width and kernel width. Options beyond the paper: positions other than learned
ones, and embeddings shared with the output.
B batch, S source length, T target length, K kernel width, D width, E embedding width, V vocabulary.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.graphs import FunctionRecorder
from qkv.base.rows import Rows, padded_rows
from qkv.models.family import Family
from qkv.parts.convolution import (
    SQRT_HALF,
    GatedConvolution,
    RowWindows,
    SourceAttention,
    SourceMemory,
    StepWindows,
    WeightNormLinear,
    Windows,
    scale_gradient,
)
from qkv.parts.decoding_weights import IncrementalDecoder, MadeWeights
from qkv.parts.dot_product import additive, is_recording, recording
from qkv.parts.dropout import dropout
from qkv.parts.masks import PackedMask
from qkv.parts.model_config import ModelConfig
from qkv.parts.positions import check_max_positions, make_positions
from qkv.parts.stepping import token_logits

EMBEDDING_STD = 0.1  # standard deviation of initial embeddings and learned positions (section 3.5)


class ConvolutionConfig(ModelConfig):
    """The shape of a convolutional model; vocabulary sizes come from the tokenizers."""

    kind: Literal["convolution"] = "convolution"
    width: int = Field(default=512, gt=0)  # of the layers
    embedding_width: int = Field(default=512, gt=0)  # of the embeddings and of attention
    kernel_width: int = Field(default=3, gt=0)  # tokens in a window: around a source token, up to and with a target token
    encoder_layers: int = Field(default=20, gt=0)
    decoder_layers: int = Field(default=20, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)  # on embeddings, on each layer's input and before the output
    positions: Literal["none", "counting", "normalised", "sinusoidal", "learned"] = "learned"
    max_positions: int = Field(default=1024, gt=0)  # longest text in tokens, if learned; the decoder's divisor, if normalised
    tied: Literal["all", "target", "none"] = "none"  # which embeddings share the output's weights; all needs one vocabulary

    @property
    def longest(self) -> int | None:
        return self.max_positions if self.positions == "learned" else None

    def check_texts(self, length: int, key: str, segments: int = 1) -> None:
        if self.positions == "learned":
            check_max_positions(self.max_positions, length, key)

    @field_validator("kernel_width")
    @classmethod
    def _check_odd(cls, kernel_width: int) -> int:
        if kernel_width % 2 == 0:
            raise ValueError("a window is centred on a source token, so it must be odd")
        return kernel_width


class EncoderBlock(nn.Module):
    """A gated convolution with a residual."""

    def __init__(self, c: ConvolutionConfig):
        super().__init__()
        self.convolution = GatedConvolution(c.width, c.kernel_width, c.dropout)

    def forward(self, x: Tensor, windows: Windows) -> Tensor:
        return (x + self.convolution(x, windows)) * SQRT_HALF


class DecoderBlock(nn.Module):
    """A gated convolution over the past, then attention to the source, with a residual around both."""

    def __init__(self, c: ConvolutionConfig):
        super().__init__()
        self.convolution = GatedConvolution(c.width, c.kernel_width, c.dropout)
        self.cross = SourceAttention(c.width, c.embedding_width)

    def forward(self, x: Tensor, windows: Windows, embedded: Tensor, source: SourceMemory) -> Tensor:
        return (x + self.cross(self.convolution(x, windows), embedded, source)) * SQRT_HALF


class Convolution(IncrementalDecoder):
    """A convolutional encoder-decoder; `start` and the state's `step` decode with the last inputs of each layer."""

    joins_source_and_target = False  # whether the network reads both as one text

    def __init__(self, c: ConvolutionConfig, source_vocab: int, target_vocab: int):
        super().__init__()
        if c.tied == "all" and source_vocab != target_vocab:
            raise ConfigError("model.tied=all needs one vocabulary for both sides; set model.tied=target for two")
        self.config = c
        self.target_embedding = nn.Embedding(target_vocab, c.embedding_width)
        self.source_embedding = self.target_embedding if c.tied == "all" else nn.Embedding(source_vocab, c.embedding_width)
        self.source_positions = make_positions(c.positions, c.embedding_width, c.max_positions)
        self.target_positions = make_positions(c.positions, c.embedding_width, c.max_positions, known_length=False)
        # Sinusoids and counts are scaled down to the size of the embeddings.
        self.position_scale = 1.0 if c.positions == "learned" else EMBEDDING_STD
        kept = 1 - c.dropout  # weights take the variance of dropped-out inputs into account (section 3.5)
        self.encoder_input = WeightNormLinear(c.embedding_width, c.width, std=math.sqrt(kept / c.embedding_width))
        self.decoder_input = WeightNormLinear(c.embedding_width, c.width, std=math.sqrt(kept / c.embedding_width))
        self.encoder = nn.ModuleList(EncoderBlock(c) for _ in range(c.encoder_layers))
        self.decoder = nn.ModuleList(DecoderBlock(c) for _ in range(c.decoder_layers))
        self.encoder_output = WeightNormLinear(c.width, c.embedding_width, std=c.width**-0.5)
        self.decoder_output = WeightNormLinear(c.width, c.embedding_width, std=c.width**-0.5)
        for table in self.modules():
            if isinstance(table, nn.Embedding):
                nn.init.normal_(table.weight, std=EMBEDDING_STD)
        self.output: WeightNormLinear | nn.Linear
        if c.tied == "none":
            self.output = WeightNormLinear(c.embedding_width, target_vocab, std=math.sqrt(kept / c.embedding_width), bias=False)
        else:
            self.output = nn.Linear(c.embedding_width, target_vocab, bias=False)
            self.output.weight = self.target_embedding.weight

    def forward(self, source: Rows, target: Rows) -> Tensor:
        """Return the decoder's hidden states under teacher forcing. source (B, S), target (B, T) -> (B, T, E)."""
        keys, values = self.encode(source)
        mask = PackedMask(target.text, source.text, causal=False).dense()
        memory = SourceMemory(keys[:, None], values[:, None], mask, mask[:, 0].sum(-1, keepdim=True).sqrt().to(keys.dtype))
        embedded = self._embed(self.target_embedding, self.target_positions, target)
        x = self.decoder_input(embedded)
        embedded = embedded.to(x.dtype)
        windows = RowWindows(target.text, self.config.kernel_width, self.config.kernel_width - 1, x.dtype)
        for block in self.decoder:
            x = block(x, windows, embedded, memory)
        return dropout(self.decoder_output(x), self.config.dropout, self.training)

    def encode(self, source: Rows) -> tuple[Tensor, Tensor]:
        """Return keys, the encoder's outputs, and values, outputs plus embeddings. source (B, S) -> (B, S, E) each."""
        embedded = self._embed(self.source_embedding, self.source_positions, source)
        x = self.encoder_input(embedded)
        windows = RowWindows(source.text, self.config.kernel_width, self.config.kernel_width // 2, x.dtype)
        for block in self.encoder:
            x = block(x, windows)
        # Every decoder layer adds to this gradient, so it is scaled; that of the embeddings is not (section 3.4).
        keys = self.encoder_output(x)
        if self.training:
            keys = scale_gradient(keys, 1 / len(self.decoder))
        return keys, (keys + embedded.to(keys.dtype)) * SQRT_HALF

    @property
    def longest(self) -> int | None:
        """The longest text in tokens; None without a limit."""
        return self.config.longest

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of every target token. (..., E) -> (..., V)."""
        return self.output(hidden)

    def _embed(self, embedding: nn.Module, positions: nn.Module, rows: Rows) -> Tensor:
        vectors = embedding(rows.ids)
        x = (vectors + positions(rows.position, rows.text) * self.position_scale).to(vectors.dtype)
        return dropout(x, self.config.dropout, self.training)

    def prepare_decoding(self, dtype: torch.dtype, made: MadeWeights | None = None) -> "Convolution":
        """Return a copy for decoding, whose weight-normalised matrices are computed once."""
        model = super().prepare_decoding(dtype, made)
        for module in list(model.modules()):
            if isinstance(module, WeightNormLinear):
                module.freeze()
        return model

    def start(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool = False) -> "ConvolutionState":
        """Encode padded sources (B, S), for at most `max_length` target tokens each."""
        model = self.in_compute_dtype()
        with torch.autocast(ids.device.type, enabled=False):
            return model._prefill(ids, keep, max_length, attention)

    def _prefill(self, ids: Tensor, keep: Tensor, max_length: int, attention: bool) -> "ConvolutionState":
        keys, values = self.encode(padded_rows(ids, keep))
        scale = keep.sum(-1).sqrt().to(keys.dtype)[:, None, None]
        positions = torch.arange(min(max_length, self.longest or max_length), device=ids.device)
        return ConvolutionState(
            model=self,
            history=keys.new_zeros(len(self.decoder), len(ids), self.config.kernel_width - 1, self.config.width),
            source=SourceMemory(keys[:, None], values[:, None], additive(keep[:, None, None, :], keys.dtype), scale),
            positions=(self.target_positions(positions[None])[0] * self.position_scale).to(keys.dtype),
            position=torch.zeros(1, dtype=torch.long, device=ids.device),
            want_attention=attention,
        )

    def _decode_step(self, tokens: Tensor, state: "ConvolutionState") -> Tensor:
        """Return the logits (R, V) that follow the newest tokens (R,)."""
        embedded = self.target_embedding(tokens.view(len(state.source.keys), -1))
        embedded = embedded + state.positions.index_select(0, state.position)
        state.position += 1
        x = self.decoder_input(embedded)
        for block, history in zip(self.decoder, state.history, strict=True):
            x = block(x, StepWindows(history), embedded, state.source)
        return token_logits(self.output, self.decoder_output(x).flatten(0, 1))


@dataclass
class ConvolutionState:
    """The state of a convolutional decoder; tensors keep their addresses, so that a CUDA graph can replay steps.

    N sources, W hypotheses of each side by side, R = N x W in all.
    """

    model: Convolution  # takes the steps
    history: Tensor  # (layers, R, K - 1, D): the inputs of each layer that its next window will hold
    source: SourceMemory  # the N sources
    positions: Tensor  # (max_length, E) position vectors
    position: Tensor  # (1,) the next position, on the device
    want_attention: bool
    attention: Tensor | None = None  # (R, S): the last step's attention, averaged over the layers
    steps: int = 0  # taken so far
    moves: int = 0  # times that the history moved to other memory
    recorder: FunctionRecorder = field(default_factory=lambda: FunctionRecorder("a decoding step"))

    def step(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next tokens (R, V)."""
        if self.steps == len(self.positions):
            raise ConfigError(
                f"the {self.steps} positions for target tokens are full; start with a larger max_length, "
                "and where positions are learned, train with a larger model.max_positions"
            )
        self.steps += 1
        if not self.want_attention and is_recording():
            return self.model._decode_step(tokens, self)
        if not self.want_attention:
            return self.recorder(lambda history, tokens: self.model._decode_step(tokens, self), self.history, tokens, self.moves)
        with recording() as weights:
            logits = self.model._decode_step(tokens, self)
        self.attention = torch.stack(weights).mean((0, 2)).flatten(0, 1).float()
        return logits

    def select(self, rows: Tensor) -> None:
        """Make row i the old row rows[i]; the number of rows may change. From now on each row has its own source."""
        self.regroup(rows[:, None], rows // (self.history.size(1) // len(self.source.keys)))

    def regroup(self, rows: Tensor, sources: Tensor | None) -> None:
        """Select rows (N, W), the hypotheses of a source side by side; keep only these sources (N,), or all if None."""
        chosen = self.history.index_select(1, rows.flatten())
        if sources is None and chosen.shape == self.history.shape:
            self.history.copy_(chosen)
        else:
            self.history = chosen
            self.moves += 1
        if self.attention is not None:
            self.attention = self.attention.index_select(0, rows.flatten())
        if sources is not None:
            self.source = SourceMemory(*(part.index_select(0, sources) for part in self.source))


FAMILY = Family(
    kind="convolution",
    config=ConvolutionConfig,
    translator=lambda config, source, target, mask: Convolution(config, source, target),
    objectives=("translation",),
    loads_as="translator",
)
