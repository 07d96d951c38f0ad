"""The linear layer that all parts are made of: torch's, on a GPU with our own backward pass."""

import torch
from torch import Tensor, nn

from qkv.parts import kernels
from qkv.parts.activations import ACTIVATIONS


class Linear(nn.Linear):
    """x weight' + bias, if there is one; `then` also puts that through an activation."""

    def forward(self, x: Tensor) -> Tensor:
        """x (..., C) -> (..., D)."""
        return kernels.linear.linear(x, self.weight, self.bias) if self._by_kernel(x) else super().forward(x)

    def then(self, activation: str, x: Tensor) -> Tensor:
        """The same with the activation of that name after it."""
        if self._by_kernel(x):
            return kernels.linear.linear(x, self.weight, self.bias, activation)
        return ACTIVATIONS[activation](super().forward(x))

    def _by_kernel(self, x: Tensor) -> bool:
        return self.bias is not None and torch.is_grad_enabled() and self.training and kernels.usable(x)
