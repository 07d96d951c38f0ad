"""The residual connection around each sub-layer ("Attention Is All You Need", section 3.1 and 5.4)."""

from collections.abc import Callable

from torch import Tensor, nn

from qkv.parts import kernels
from qkv.parts.dropout import dropout


class Residual(nn.Module):
    """post: norm(x + dropout(sublayer(x))), the paper's; pre: x + dropout(sublayer(norm(x))), which needs no warm-up care."""

    def __init__(self, width: int, norm: str, dropout: float, epsilon: float = 1e-5):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.first = norm == "pre"
        self.dropout = dropout

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        change = sublayer(self.norm(x) if self.first else x)
        if not self.first and self.training and kernels.usable(change):
            norm, rate = self.norm, self.dropout
            return kernels.residual.add_and_norm(x, change, norm.weight, norm.bias, rate, norm.eps)
        x = x + dropout(change, self.dropout, self.training)
        return x if self.first else self.norm(x)
