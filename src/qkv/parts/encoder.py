"""Stacks of attention layers over one text: BERT and its kin (`Encoder`), and what they share with GPT (`TransformerStack`).

The encoder of "Attention Is All You Need" (section 3.1) with learned positions and a norm over the embeddings (Devlin et al.
2019, section 3). Other position schemes can replace the learned one. Sinusoids and counts are added after the norm, not before:
they are much larger than the embeddings, and the norm would remove what is equal in all dimensions, such as a count.
B batch, T length, E width of embeddings, D width.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows
from qkv.parts import kernels
from qkv.parts.attention import SelfAttention
from qkv.parts.attention_kinds import AttentiveConfig, MaskBuilder
from qkv.parts.cache import LayerCache
from qkv.parts.context import AttentionContext
from qkv.parts.dropout import dropout
from qkv.parts.feedforward import FeedForward
from qkv.parts.linear import Linear
from qkv.parts.masks import AttentionMask
from qkv.parts.positions import LearnedPositions, Scheme, make_positions
from qkv.parts.relative import make_position_scheme
from qkv.parts.residual import Residual


class StackConfig(AttentiveConfig):
    """The shape of a stack of attention layers over one text; the vocabulary's size comes from the tokenizer.

    Defaults: BERT base.
    """

    width: int = Field(default=768, gt=0)  # of the layers: the papers' hidden size H
    feedforward: int = Field(default=3072, gt=0)  # inner width of the feed-forward network
    heads: int = Field(default=12, gt=0)  # attention heads; must divide the width
    layers: int = Field(default=12, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)  # on each sub-layer's output and on embeddings; not inside attention
    activation: Literal["gelu", "gelu-tanh", "relu", "tanh"] = "gelu"
    positions: Scheme = "learned"
    epsilon: float = Field(default=1e-12, gt=0)  # added to the variance in norms


class EncoderConfig(StackConfig):
    """The shape of an encoder, which has an embedding for each segment of a text."""

    segments: int = Field(default=2, gt=0)  # such as the two sentences of a pair

    def check_texts(self, length: int, key: str, segments: int = 1) -> None:
        super().check_texts(length, key, segments)
        if self.segments < segments:
            raise ValueError(
                f"model.segments {self.segments} is too few to tell {segments} texts apart; set model.segments={segments}"
            )


class TokenPositionEmbedding(nn.Module):
    """The sum of token and position embeddings."""

    scale = 1.0  # the factor of token embeddings

    def __init__(self, c: StackConfig, vocab: int, width: int):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, width)
        self.positions = make_positions(c.positions, width, c.max_positions)
        self.dropout = c.dropout

    def forward(self, rows: Rows, segment: Tensor | None, task: Tensor | None) -> Tensor:
        """Embed rows; segment and task are unused. rows (B, T) -> (B, T, E)."""
        vectors = self.token_embedding(rows.ids)
        return dropout((vectors + self.positions(rows.position, rows.text)).to(vectors.dtype), self.dropout, self.training)


class BertEmbedding(TokenPositionEmbedding):
    """The normed sum of token, position, segment and, in ERNIE 2.0, task embeddings."""

    def __init__(self, c: EncoderConfig, vocab: int, width: int, task_types: int = 0):
        super().__init__(c, vocab, width)
        self.segment_embedding = nn.Embedding(c.segments, width)
        self.task_embedding = nn.Embedding(task_types, width) if task_types else None
        self.norm = nn.LayerNorm(width, eps=c.epsilon)

    def forward(self, rows: Rows, segment: Tensor | None, task: Tensor | None) -> Tensor:
        """Embed rows. rows, segment and task (B, T); segment and task are 0 by default. -> (B, T, E)."""
        if self.task_embedding is None and task is not None:
            raise ConfigError("this model has no task embeddings; only ERNIE with model.task_types above 0 has them")
        # The kernel checks no bounds. Positions are below the row's width, but a row wider than the table may exceed it.
        in_table = isinstance(self.positions, LearnedPositions) and rows.position.size(1) <= self.positions.table.num_embeddings
        if in_table and torch.is_grad_enabled() and self.training and kernels.usable(self.token_embedding.weight):
            return self._fused(rows, segment, task)
        x, position = self.token_embedding(rows.ids), self.positions.of_rows(rows)
        x = x + (self.segment_embedding.weight[0] if segment is None else self.segment_embedding(segment))
        if self.task_embedding is not None:
            x = x + (self.task_embedding.weight[0] if task is None else self.task_embedding(task))
        x = self.norm(x + position) if isinstance(self.positions, LearnedPositions) else self.norm(x) + position
        return dropout(x, self.dropout, self.training)

    def _fused(self, rows: Rows, segment: Tensor | None, task: Tensor | None) -> Tensor:
        """Look up, add, norm and drop out in one kernel."""
        assert isinstance(self.positions, LearnedPositions)
        zeros = torch.zeros_like(rows.ids)
        lookups = [(self.token_embedding.weight, rows.ids), (self.positions.table.weight, rows.position)]
        lookups.append((self.segment_embedding.weight, zeros if segment is None else segment))
        if self.task_embedding is not None:
            lookups.append((self.task_embedding.weight, zeros if task is None else task))
        return kernels.embedding.embed(lookups, self.norm.weight, self.norm.bias, self.dropout, self.norm.eps)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, a residual around each."""

    def __init__(
        self,
        attention: SelfAttention,
        width: int,
        feedforward: int,
        activation: str,
        norm: str,
        dropout: float,
        epsilon: float = 1e-5,
        lean: bool = False,
    ):
        """`lean` is for T5: no biases, and RMS norms."""
        super().__init__()
        self.attention = attention
        self.feedforward = FeedForward(width, feedforward, activation, bias=not lean)
        self.around_attention = Residual(width, norm, dropout, epsilon, lean)
        self.around_feedforward = Residual(width, norm, dropout, epsilon, lean)

    def forward(self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None) -> Tensor:
        x = self.around_attention(x, lambda y: self.attention(y, context, cache))
        return self.around_feedforward(x, self.feedforward)


class TransformerStack(nn.Module):
    """Embeddings, projected to the layers' width where they are narrower, and layers.

    A model overrides `layer`, which runs one.
    """

    pooler_activation = "tanh"  # of the pooler head (parts/heads.py)
    causal = False  # whether a position attends only to itself and earlier positions
    # Which hidden state represents a text: that of its first token, of its last one, or the mean of all.
    summary: Literal["first", "last", "mean"] = "first"

    def __init__(self, c: StackConfig, embedding: TokenPositionEmbedding, always_project: bool = False):
        super().__init__()
        if c.width % c.heads:
            raise ConfigError(f"model.width {c.width} does not split into {c.heads} heads; choose heads that divide it")
        self.config = c
        self.embedding = embedding
        self.position_scheme = make_position_scheme(c.positions, c.width, c.heads, c.max_distance)
        self.mask_builder = MaskBuilder(c)
        width = embedding.token_embedding.embedding_dim
        self.projection = Linear(width, c.width) if always_project or width != c.width else nn.Identity()

    def forward(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Tensor:
        """Return the hidden states of the last layer. rows, segment and task (B, T) -> (B, T, D)."""
        return deque(self.each_layer(rows, segment, task), maxlen=1).pop()  # holds one layer's states at a time

    def each_layer(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Iterator[Tensor]:
        """Yield the hidden states after the embeddings and after each layer. -> (B, T, D) each."""
        x = self.projection(self.embedding(rows, segment, task))
        yield x
        yield from self.layers_over(x, rows, self.attention_mask(rows, segment, like=x))

    def layers_over(self, x: Tensor, rows: Rows, mask: AttentionMask) -> Iterator[Tensor]:
        """Yield the hidden states after each layer. (B, T, D) -> (B, T, D) each."""
        context = self.position_scheme.context_of_rows(mask, rows, like=x)
        for number in range(self.config.layers):
            x = self.layer(number, x, context)
            yield x

    def attention_mask(self, rows: Rows, segment: Tensor | None, like: Tensor) -> AttentionMask:
        """Build the mask of all layers; dtype and device follow `like`."""
        return self.mask_builder(rows.text, like=like, causal=self.causal)

    def layer(self, number: int, x: Tensor, context: AttentionContext) -> Tensor:
        """Run layer `number`, counted from 0. (B, T, D) -> (B, T, D)."""
        raise NotImplementedError

    def layer_modules(self, number: int) -> list[nn.Module]:
        """Return the modules that layer `number` runs one after the other, (B, T, D) -> (B, T, D) each."""
        layers: Any = self.layers
        return [layers[number]]

    @property
    def multiply_adds_per_token(self) -> int:
        """Approximate multiply-adds per token: the number of parameters, each of which is used once."""
        return sum(p.numel() for p in self.parameters())

    @property
    def longest(self) -> int | None:
        """The longest text in tokens; None without a limit."""
        return self.config.longest


class Encoder(TransformerStack):
    """A bidirectional stack, which predicts masked tokens."""

    head_activation: str | None = None  # of the masked language model head; the layers' activation by default
    summary_last = False  # whether the network moves a text's first token to its end (XLNet)
    fill_head = "masked"  # the head that predicts masked tokens
    sees_masked = True  # whether the network reads [MASK] at a masked position; XLNet reads no token there

    def states_at_masked(self, rows: Rows, masked: Tensor) -> Tensor:
        """Return the hidden states at masked positions (B, T). -> (masked positions, D)."""
        return self(rows)[masked]


def initialise(module: nn.Module, deviation: float = 0.02) -> None:
    """Draw weights and embeddings from a normal distribution truncated at two deviations; set biases to 0, as in BERT's code."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
