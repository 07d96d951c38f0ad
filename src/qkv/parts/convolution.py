"""Layers of the convolutional sequence-to-sequence model (Gehring et al. 2017, sections 3.2 to 3.5).

A convolution mixes neighbours, and in packed rows a neighbour may belong to another text. So windows are laid out first, with
zeros for other texts, which is the padding that a text has at its own edges; one matrix product does the rest, and a text gives
the same result packed and alone.
B batch (rows), T length, S source length, K kernel width, D width, E embedding width.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.parts import kernels
from qkv.parts.decoding_weights import decoding_weights
from qkv.parts.dot_product import RecordedAttention, attend
from qkv.parts.dropout import dropout
from qkv.parts.vocabulary_rows import OldRows, mean_rows

SQRT_HALF = math.sqrt(0.5)  # scales a sum of two to the variance of one (section 3.4)

Windows = Callable[[Tensor], Tensor]  # a layer's input (B, T, D) -> the window of each position, (B, T, K D)


class WeightNormLinear(nn.Module):
    """A linear layer with weight normalisation: direction and length of each row are learned apart (Salimans and Kingma 2016)."""

    def __init__(self, inputs: int, outputs: int, std: float, bias: bool = True):
        super().__init__()
        self.direction = nn.Parameter(torch.empty(outputs, inputs).normal_(std=std))
        self.length = nn.Parameter(self.direction.detach().norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.frozen: nn.Module | None = None

    @property
    def weight(self) -> Tensor:
        """The normalised matrix, (outputs, inputs)."""
        if self.frozen is not None:
            return self.frozen.weight  # type: ignore[return-value]
        direction = self.direction.to(
            torch.promote_types(self.direction.dtype, torch.float32)
        )  # in bf16 it would be rounded three times
        return (direction * (self.length / direction.norm(dim=1))[:, None]).to(self.direction.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., inputs) -> (..., outputs)."""
        if self.frozen is not None:
            return self.frozen(x)
        if self.bias is not None and self.training and torch.is_grad_enabled() and kernels.usable(x):
            return kernels.linear.linear(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias)

    def mean_rows(self, rows: OldRows) -> dict[str, Tensor]:
        """Return direction and length of the means of some rows of the normalised matrix."""
        direction, length = mean_rows(self.direction, rows), mean_rows(self.length, rows)
        joined = torch.tensor([len(row) > 1 for row in rows])
        means = mean_rows(self.weight, rows)[joined]
        direction[joined], length[joined] = means, means.norm(dim=1)
        return {"direction": direction, "length": length}

    @torch.no_grad()
    def freeze(self) -> None:
        """Compute the matrix once and lay it out for decoding: for copies whose weights stay as they are."""
        if self.frozen is None:
            outputs, inputs = self.direction.shape
            plain = nn.Linear(inputs, outputs, bias=False, device="meta")
            plain.weight = nn.Parameter(self.weight, requires_grad=False)
            plain.register_parameter("bias", self.bias)
            self.frozen = decoding_weights(plain, self.direction.dtype)


# Windows


class RowWindows:
    """Lays out the window of each position of packed rows: `before` positions to its left, the rest to its right."""

    def __init__(self, text: Tensor, kernel_width: int, before: int, dtype: torch.dtype):
        self.kernel_width, self.before, self.length = kernel_width, before, text.size(1)
        padded = F.pad(text, (before, kernel_width - 1 - before), value=-1)
        self.same = [(padded[:, k : k + self.length] == text)[..., None].to(dtype) for k in range(kernel_width)]  # each (B, T, 1)

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, K D), zeros for other texts."""
        padded = F.pad(x, (0, 0, self.before, self.kernel_width - 1 - self.before))
        # Not unfold: its backward pass takes twice as long as that of these shifts.
        shifts = (x if k == self.before else padded[:, k : k + self.length] * same for k, same in enumerate(self.same))
        return torch.cat(list(shifts), -1)


class StepWindows:
    """Lays out the window of each hypothesis's newest position, from the K - 1 inputs before it, (R, K - 1, D), and
    shifts these.
    """

    def __init__(self, history: Tensor):
        self.history = history

    def __call__(self, x: Tensor) -> Tensor:
        """x (N, W, D), R = N W in all -> (N, W, K D)."""
        window = torch.cat([self.history, x.flatten(0, 1)[:, None]], 1)
        self.history.copy_(window[:, 1:])
        return window.view(*x.shape[:2], -1)


class GatedConvolution(nn.Module):
    """A convolution followed by a gated linear unit (GLU, Dauphin et al. 2016)."""

    def __init__(self, width: int, kernel_width: int, rate: float):
        super().__init__()
        self.rate = rate
        # Section 3.5: the gate leaves about a quarter of the variance, hence 4; dropout before it adds some, hence 1 - rate.
        self.linear = WeightNormLinear(kernel_width * width, 2 * width, std=math.sqrt(4 * (1 - rate) / (kernel_width * width)))

    def forward(self, x: Tensor, windows: Windows) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        return F.glu(self.linear(windows(dropout(x, self.rate, self.training))))


# Attention


class SourceMemory(NamedTuple):
    """The source as every decoder layer attends to it."""

    keys: Tensor  # (B, 1, S, E) the encoder's output
    values: Tensor  # (B, 1, S, E) the output plus the token embeddings
    mask: Tensor  # (B, 1, T or 1, S) boolean, True = attend, or additive
    scale: Tensor  # (B, T or 1, 1) square root of the source length, which makes up for averaging


class SourceAttention(RecordedAttention):
    """Attention from a layer's state plus the embedding of the last token to the source, with a residual (section 3.3)."""

    heads = 1

    def __init__(self, width: int, embedding_width: int):
        super().__init__()
        self.query = WeightNormLinear(width, embedding_width, std=width**-0.5)
        self.context = WeightNormLinear(embedding_width, width, std=embedding_width**-0.5)

    @property
    def out(self) -> nn.Module:
        """The output projection, as other attentions call it."""
        return self.context

    def forward(self, x: Tensor, embeddings: Tensor, source: SourceMemory) -> Tensor:
        """x (B, T, D), embeddings (B, T, E) -> (B, T, D)."""
        # `attend` divides scores by the root of the width, and the paper does not.
        query = (self.query(x) + embeddings) * (SQRT_HALF * math.sqrt(embeddings.size(-1)))
        found = attend(query[:, None], source.keys, source.values, source.mask)[:, 0]
        return (x + self.context(found * source.scale)) * SQRT_HALF


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.scale, None


def scale_gradient(x: Tensor, scale: float) -> Tensor:
    """Return x, with its gradient multiplied by `scale`."""
    return _ScaledGradient.apply(x, scale)
