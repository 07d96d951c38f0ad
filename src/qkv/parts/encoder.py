"""What BERT and those after it have in common: a text's embeddings, then layers that see the whole text.

The encoder of "Attention Is All You Need" (section 3.1) with learned places and a norm over the embeddings (Devlin et al. 2019,
section 3). Other schemes of positions can take the place of the learned one. Those that have a size of their own are added after
the norm, not before: there they would drown the embeddings, which are small, and the norm would take away from a sum what all
dimensions have in common, such as a count. B batch, T length, E width of embeddings, D width.
"""

from collections import deque
from collections.abc import Iterator
from typing import Literal

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
    """The shape of a stack of attention layers over one text; the vocabulary's size comes from the tokenizer. Defaults: BERT base."""

    width: int = Field(default=768, gt=0)  # of the layers: the papers' H
    feedforward: int = Field(default=3072, gt=0)  # of the middle of the feed-forward network
    heads: int = Field(default=12, gt=0)  # attention heads; must divide the width
    layers: int = Field(default=12, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)  # on each sub-layer's output and on embeddings; not inside attention
    activation: Literal["gelu", "gelu-tanh", "relu", "tanh"] = "gelu"
    positions: Scheme = "learned"
    epsilon: float = Field(default=1e-12, gt=0)  # added to the variance in norms


class EncoderConfig(StackConfig):
    """The shape of an encoder, which tells the segments of a text apart."""

    segments: int = Field(default=2, gt=0)  # such as the two sentences of a pair

    def check_texts(self, length: int, key: str, segments: int = 1) -> None:
        super().check_texts(length, key, segments)
        if self.segments < segments:
            raise ValueError(
                f"model.segments {self.segments} is too few to tell {segments} texts apart; say model.segments={segments}"
            )


class PlacedWords(nn.Module):
    """The sum of what a token is and where it stands; segments and tasks are not told apart."""

    def __init__(self, c: StackConfig, vocab: int, width: int):
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.positions = make_positions(c.positions, width, c.max_positions)
        self.dropout = c.dropout

    def forward(self, rows: Rows, segment: Tensor | None, task: Tensor | None) -> Tensor:
        """rows (B, T) -> (B, T, E)."""
        vectors = self.words(rows.ids)
        return dropout((vectors + self.positions(rows.position, rows.text)).to(vectors.dtype), self.dropout, self.training)


class TextEmbedding(PlacedWords):
    """The sum of what a token is, where it stands, in which segment and, in ERNIE 2.0, for which task; then a norm."""

    def __init__(self, c: EncoderConfig, vocab: int, width: int, tasks: int = 0):
        super().__init__(c, vocab, width)
        self.segments = nn.Embedding(c.segments, width)
        self.tasks = nn.Embedding(tasks, width) if tasks else None
        self.norm = nn.LayerNorm(width, eps=c.epsilon)

    def forward(self, rows: Rows, segment: Tensor | None, task: Tensor | None) -> Tensor:
        """rows, segment and task (B, T); segment and task are 0 where they are not given. -> (B, T, E)."""
        if self.tasks is None and task is not None:
            raise ConfigError("this model has no task embeddings; only ERNIE with model.task_types above 0 is told the task")
        if self._by_kernel(rows):
            return self._in_one(rows, segment, task)
        x, where = self.words(rows.ids), self.positions.of_rows(rows)
        x = x + (self.segments.weight[0] if segment is None else self.segments(segment))
        if self.tasks is not None:
            x = x + (self.tasks.weight[0] if task is None else self.tasks(task))
        x = self.norm(x + where) if isinstance(self.positions, LearnedPositions) else self.norm(x) + where
        return dropout(x, self.dropout, self.training)

    def _by_kernel(self, rows: Rows) -> bool:
        # Places are below the row's width; a wider row may hold one that is not in the table, which `positions` looks for.
        fits = isinstance(self.positions, LearnedPositions) and rows.position.size(1) <= self.positions.table.num_embeddings
        return fits and torch.is_grad_enabled() and self.training and kernels.usable(self.words.weight)

    def _in_one(self, rows: Rows, segment: Tensor | None, task: Tensor | None) -> Tensor:
        assert isinstance(self.positions, LearnedPositions)
        first = torch.zeros_like(rows.ids)
        looks = [(self.words.weight, rows.ids), (self.positions.table.weight, rows.position)]
        looks.append((self.segments.weight, first if segment is None else segment))
        if self.tasks is not None:
            looks.append((self.tasks.weight, first if task is None else task))
        return kernels.embedding.embed(looks, self.norm.weight, self.norm.bias, self.dropout, self.norm.eps)


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
        """A `lean` layer, T5's, has no biases, and norms of root mean squares."""
        super().__init__()
        self.attention = attention
        self.feed = FeedForward(width, feedforward, activation, bias=not lean)
        self.around_attention = Residual(width, norm, dropout, epsilon, lean)
        self.around_feed = Residual(width, norm, dropout, epsilon, lean)

    def forward(self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None) -> Tensor:
        x = self.around_attention(x, lambda y: self.attention(y, context, cache))
        return self.around_feed(x, self.feed)


class Encoder(nn.Module):
    """Embeddings, brought to the layers' width where theirs is another; a model says what its layers are in `layer`."""

    # Activations in the heads (parts/heads.py): of the pooler, and of the masked language model head where it is not the layers'.
    pooler_activation = "tanh"
    head_activation: str | None = None
    summary_last = False  # whether the network reads a text's first token last (XLNet)
    fill_head = "masked"  # the head that predicts masked tokens
    sees_masked = True  # whether a masked position holds [MASK]; otherwise what stands there is not read
    causal = False  # whether a position sees only itself and what came before it
    # Which hidden state stands for a text: that of its first token, of its last one, or the mean of all.
    summary: Literal["first", "last", "mean"] = "first"

    def __init__(self, c: StackConfig, embedding: PlacedWords, always_project: bool = False):
        super().__init__()
        if c.width % c.heads:
            raise ConfigError(f"model.width {c.width} does not split into {c.heads} heads; choose heads that divide it")
        self.config = c
        self.embedding = embedding
        self.position_scheme = make_position_scheme(c.positions, c.width, c.heads, c.max_distance)
        self.mask_builder = MaskBuilder(c)
        narrow = embedding.words.embedding_dim
        self.projection = Linear(narrow, c.width) if always_project or narrow != c.width else nn.Identity()

    def forward(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Tensor:
        """What the model knows at each place. rows, segment and task (B, T) -> (B, T, D)."""
        return deque(self.each_layer(rows, segment, task), maxlen=1).pop()  # the last one, none before it kept

    def each_layer(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Iterator[Tensor]:
        """The same after the embeddings and after each layer: one more than there are layers. -> (B, T, D) each."""
        x = self.projection(self.embedding(rows, segment, task))
        yield x
        yield from self.layers_over(x, rows, self.attention_mask(rows, segment, like=x))

    def layers_over(self, x: Tensor, rows: Rows, mask: AttentionMask) -> Iterator[Tensor]:
        """What each layer makes of x, one after the other. (B, T, D) -> (B, T, D) each."""
        context = self.position_scheme.context_of_rows(mask, rows, like=x)
        for number in range(self.config.layers):
            x = self.layer(number, x, context)
            yield x

    def attention_mask(self, rows: Rows, segment: Tensor | None, like: Tensor) -> AttentionMask:
        """Build the mask of all layers; dtype and device follow `like`."""
        return self.mask_builder(rows.text, like=like, causal=self.causal)

    def layer(self, number: int, x: Tensor, context: AttentionContext) -> Tensor:
        """What layer `number`, from 0, makes of x. (B, T, D) -> (B, T, D)."""
        raise NotImplementedError

    def states_at_masked(self, rows: Rows, masked: Tensor) -> Tensor:
        """Return the hidden states at masked positions (B, T). -> (masked positions, D)."""
        return self(rows)[masked]

    @property
    def work_per_token(self) -> int:
        """Multiply-adds that a token takes, nearly: as many as there are parameters, each of which is used once."""
        return sum(p.numel() for p in self.parameters())

    @property
    def longest(self) -> int | None:
        """Places a text may have; None where there is no limit."""
        return self.config.longest


def initialise(module: nn.Module, deviation: float = 0.02) -> None:
    """Weights and embeddings from a normal distribution cut off at two deviations, biases 0, as all these papers' code does."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
