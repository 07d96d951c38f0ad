"""Deep averaging networks (Iyyer et al. 2015, "Deep Unordered Composition Rivals Syntactic Methods for Text Classification").

The family that docs/add-a-model.md adds. Every token reads the mean of its text's embeddings beside its own; feed-forward
layers follow (section 2.2). Departure: hidden states are one per token, so that all heads can stand on them.
B batch, T length, D width.
"""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from qkv.base.rows import Rows
from qkv.models.family import Family
from qkv.parts.dropout import dropout
from qkv.parts.encoder import initialise
from qkv.parts.feedforward import FeedForward
from qkv.parts.model_config import ModelConfig
from qkv.parts.residual import Residual
from qkv.parts.token_scores import masked_each


class AveragingConfig(ModelConfig):
    """The shape of a deep averaging network."""

    kind: Literal["averaging"] = "averaging"
    width: int = Field(default=256, gt=0)  # of embeddings and layers
    feedforward: int = Field(default=1024, gt=0)  # inner width of the feed-forward networks
    layers: int = Field(default=2, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)  # on embeddings and on each layer's output
    activation: Literal["relu", "gelu"] = "relu"
    epsilon: float = Field(default=1e-5, gt=0)  # added to the variance in norms


SIZES: dict[str, dict[str, Any]] = {"tiny": {"width": 32, "feedforward": 64}}


class AveragingEmbedding(nn.Module):
    """Token embeddings, each with the mean over its text."""

    def __init__(self, c: AveragingConfig, vocab: int):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, c.width)
        self.dropout = c.dropout

    def forward(self, rows: Rows) -> Tensor:
        """rows (B, T) -> (B, T, D). A row may hold several texts: the mean is over the tokens of the same text."""
        x = self.token_embedding(rows.ids)
        same_text = (rows.text[:, :, None] == rows.text[:, None, :]).to(x.dtype)  # (B, T, T)
        return dropout(x + same_text @ x / same_text.sum(-1, keepdim=True), self.dropout, self.training)


class AveragingNetwork(nn.Module):
    """Reads rows of texts; every token sees its whole text, as a bag."""

    # What heads and `qkv fill` ask of a network; see parts/encoder.py.
    summary, pooler_activation, head_activation = "first", "tanh", None
    fill_head, sees_masked, summary_last, causal, longest = "masked", True, False, False, None

    def __init__(self, c: AveragingConfig, vocab: int):
        super().__init__()
        self.config = c
        self.embedding = AveragingEmbedding(c, vocab)
        self.layers = nn.ModuleList(FeedForward(c.width, c.feedforward, c.activation) for _ in range(c.layers))
        self.residuals = nn.ModuleList(Residual(c.width, "post", c.dropout, c.epsilon) for _ in range(c.layers))
        initialise(self)

    def forward(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Tensor:
        """Return the hidden states of the last layer. rows (B, T) -> (B, T, D)."""
        *_, x = self.each_layer(rows)
        return x

    def each_layer(self, rows: Rows, segment: Tensor | None = None, task: Tensor | None = None) -> Iterator[Tensor]:
        """Yield the hidden states after the embeddings and after each layer. -> (B, T, D) each."""
        x = self.embedding(rows)
        yield x
        for layer, residual in zip(self.layers, self.residuals, strict=True):
            x = residual(x, layer)
            yield x

    def states_at_masked(self, rows: Rows, masked: Tensor) -> Tensor:
        """Return the hidden states at masked positions (B, T). -> (masked positions, D)."""
        return self(rows)[masked]

    @property
    def multiply_adds_per_token(self) -> int:
        """Multiply-adds per token, nearly: the number of parameters."""
        return sum(p.numel() for p in self.parameters())


FAMILY = Family(
    kind="averaging",
    config=AveragingConfig,
    network=AveragingNetwork,
    sizes=SIZES,
    objectives=("masked",),
    loads_as="encoder",
    token_scores={"each": masked_each},
)
