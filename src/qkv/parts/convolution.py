"""What a convolutional sequence to sequence model is made of (Gehring et al. 2017, sections 3.2 to 3.5).

A convolution mixes neighbours, and in packed rows a neighbour may belong to another text. Windows are therefore laid out first,
with zeros wherever a place belongs to another text, which is the padding that a text has at its own edges; one matrix product
then does the rest, and a text gives the same alone and among others.
B batch (rows), T length, S source length, K window, D width, E embedding width.
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

HALVED = math.sqrt(0.5)  # what a sum of two is multiplied by, so that its variance is that of one (section 3.4)

Look = Callable[[Tensor], Tensor]  # a layer's input (B, T, D) -> the window of each place, (B, T, K D)


class NormedLinear(nn.Module):
    """x weight' + bias, where each row of the weight is a direction and a length, learned apart (Salimans and Kingma 2016)."""

    def __init__(self, inputs: int, outputs: int, std: float, bias: bool = True):
        super().__init__()
        self.direction = nn.Parameter(torch.empty(outputs, inputs).normal_(std=std))
        self.length = nn.Parameter(self.direction.detach().norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.settled: nn.Module | None = None

    @property
    def weight(self) -> Tensor:
        """The matrix, (outputs, inputs)."""
        if self.settled is not None:
            return self.settled.weight  # type: ignore[return-value]
        direction = self.direction.to(torch.promote_types(self.direction.dtype, torch.float32))  # bf16 would round thrice
        return (direction * (self.length / direction.norm(dim=1))[:, None]).to(self.direction.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., inputs) -> (..., outputs)."""
        if self.settled is not None:
            return self.settled(x)
        if self.bias is not None and self.training and torch.is_grad_enabled() and kernels.usable(x):
            return kernels.linear.linear(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias)

    @torch.no_grad()
    def settle(self) -> None:
        """Compute the matrix once and lay it out for decoding: for copies whose weights stay as they are."""
        if self.settled is None:
            outputs, inputs = self.direction.shape
            plain = nn.Linear(inputs, outputs, bias=False, device="meta")
            plain.weight = nn.Parameter(self.weight, requires_grad=False)
            plain.register_parameter("bias", self.bias)
            self.settled = decoding_weights(plain, self.direction.dtype)


# Windows


class Neighbours:
    """Lays out the window of each place of packed rows: `before` places to its left, and the rest of the window to its right."""

    def __init__(self, text: Tensor, window: int, before: int, dtype: torch.dtype):
        self.window, self.before, self.length = window, before, text.size(1)
        beyond = F.pad(text, (before, window - 1 - before), value=-1)
        self.same = [(self._shifted(beyond, k) == text)[..., None].to(dtype) for k in range(window)]  # each (B, T, 1)

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, K D), zeros for what another text holds."""
        beyond = F.pad(x, (0, 0, self.before, self.window - 1 - self.before))
        # Not unfold: its backward pass takes twice as long as that of these shifts.
        seen = (x if k == self.before else self._shifted(beyond, k) * same for k, same in enumerate(self.same))
        return torch.cat(list(seen), -1)

    def _shifted(self, beyond: Tensor, k: int) -> Tensor:
        return beyond[:, k : k + self.length]


class Recent:
    """Lays out the window of each hypothesis's newest place, from the K - 1 inputs before it, (R, K - 1, D), which move on."""

    def __init__(self, history: Tensor):
        self.history = history

    def __call__(self, x: Tensor) -> Tensor:
        """x (N, W, D), R = N W in all -> (N, W, K D)."""
        seen = torch.cat([self.history, x.flatten(0, 1)[:, None]], 1)
        self.history.copy_(seen[:, 1:])
        return seen.view(*x.shape[:2], -1)


class GatedConvolution(nn.Module):
    """A linear map of each window, half of which says how much of the other half passes (GLU, Dauphin et al. 2016)."""

    def __init__(self, width: int, window: int, rate: float):
        super().__init__()
        self.rate = rate
        # Section 3.5: the gate halves and more of the variance, hence 4; dropout before it adds some, hence 1 - rate.
        self.linear = NormedLinear(window * width, 2 * width, std=math.sqrt(4 * (1 - rate) / (window * width)))

    def forward(self, x: Tensor, look: Look) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        return F.glu(self.linear(look(dropout(x, self.rate, self.training))))


# Attention


class Source(NamedTuple):
    """The source as every decoder layer asks it."""

    keys: Tensor  # (B, 1, S, E) what the encoder knows
    values: Tensor  # (B, 1, S, E) that, and the words themselves
    mask: Tensor  # (B, 1, T or 1, S) boolean, True = attend, or additive
    growth: Tensor  # (B, T or 1, 1) square root of the number of source words, by which averaging them shrinks what is found


class SourceAttention(RecordedAttention):
    """Asks the source with a layer's state and the word that was read last, and adds what it finds (section 3.3)."""

    def __init__(self, width: int, embedding: int):
        super().__init__()
        self.query = NormedLinear(width, embedding, std=width**-0.5)
        self.context = NormedLinear(embedding, width, std=embedding**-0.5)

    def forward(self, x: Tensor, words: Tensor, source: Source) -> Tensor:
        """x (B, T, D), words (B, T, E) -> (B, T, D)."""
        # The paper does not divide scores by the root of the width, as `attend` does.
        query = (self.query(x) + words) * (HALVED * math.sqrt(words.size(-1)))
        found = attend(query[:, None], source.keys, source.values, source.mask)[:, 0]
        return (x + self.context(found * source.growth)) * HALVED


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.scale, None


def scale_gradient(x: Tensor, scale: float) -> Tensor:
    """x, whose gradient is that many times as large."""
    return _ScaledGradient.apply(x, scale)
