"""The linear layer of all parts: torch's, with our own backward pass on a GPU."""

import torch
from torch import Tensor, nn

from qkv.parts import kernels
from qkv.parts.activations import ACTIVATIONS


class Linear(nn.Linear):
    """x weight' + bias, if there is one; `then` also applies an activation."""

    def forward(self, x: Tensor) -> Tensor:
        """x (..., C) -> (..., D)."""
        return kernels.linear.linear(x, self.weight, self.bias) if self._fused(x) else super().forward(x)

    def then(self, activation: str, x: Tensor) -> Tensor:
        """Apply the layer and then the activation of that name. x (..., C) -> (..., D)."""
        if self._fused(x):
            return kernels.linear.linear(x, self.weight, self.bias, activation)
        return ACTIVATIONS[activation](super().forward(x))

    def _fused(self, x: Tensor) -> bool:
        # Our backward pass is fast at the weights' gradients; frozen weights have none.
        return torch.is_grad_enabled() and self.training and self.weight.requires_grad and kernels.usable(x)
