"""Position-wise feed-forward network ("Attention Is All You Need", section 3.3), with ReLU, GELU, tanh or SwiGLU."""

import torch.nn.functional as F
from torch import Tensor, nn

from qkv.parts.linear import Linear


class FeedForward(nn.Module):
    """Two matrix products with an activation between them, the same at every place."""

    def __init__(self, width: int, inner: int, activation: str):
        super().__init__()
        self.activation = activation
        # SwiGLU (Shazeer 2020) multiplies two inner vectors: one more projection.
        self.up = Linear(width, inner * (2 if activation == "swiglu" else 1))
        self.down = Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., D) -> (..., D)."""
        if self.activation != "swiglu":
            return self.down(self.up.then(self.activation, x))
        gate, inside = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * inside)
