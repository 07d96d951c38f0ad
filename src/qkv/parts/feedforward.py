"""Position-wise feed-forward network ("Attention Is All You Need", section 3.3), with ReLU, GELU, SiLU, tanh, SwiGLU or GEGLU."""

import torch
from torch import Tensor, nn

from qkv.parts import kernels
from qkv.parts.activations import ACTIVATIONS
from qkv.parts.linear import Linear

# Gated activations multiply two vectors (Shazeer 2020); the first goes through this function.
GATED = {"swiglu": "silu", "geglu": "gelu-tanh"}


class FeedForward(nn.Module):
    """Two matrix products with an activation between them, the same at every position."""

    def __init__(self, width: int, feedforward: int, activation: str, bias: bool = True):
        super().__init__()
        self.activation = activation
        self.up = Linear(width, feedforward * (2 if activation in GATED else 1), bias=bias)
        self.down = Linear(feedforward, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D) -> (..., D)."""
        if self.activation not in GATED:
            return self.down(self.up.then(self.activation, x))
        inside, activation = self.up(x), GATED[self.activation]
        if torch.is_grad_enabled() and self.training and kernels.usable(inside):
            return self.down(kernels.gated.gate(inside, activation))
        gate, value = inside.chunk(2, dim=-1)
        return self.down(ACTIVATIONS[activation](gate) * value)
