"""The linear layer that all parts are made of: torch's, on a GPU with our own backward pass."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.parts import kernels


class Linear(nn.Linear):
    """x weight' + bias; `then_relu` also sets what is below zero to zero."""

    def forward(self, x: Tensor) -> Tensor:
        """x (..., C) -> (..., D)."""
        return kernels.linear.linear(x, self.weight, self.bias, False) if self._by_kernel(x) else super().forward(x)

    def then_relu(self, x: Tensor) -> Tensor:
        """The same with ReLU after it."""
        return kernels.linear.linear(x, self.weight, self.bias, True) if self._by_kernel(x) else F.relu(super().forward(x))

    def _by_kernel(self, x: Tensor) -> bool:
        return torch.is_grad_enabled() and self.training and kernels.usable(x)
