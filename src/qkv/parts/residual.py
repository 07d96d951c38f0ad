"""The residual connection around each sub-layer ("Attention Is All You Need", section 3.1 and 5.4)."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from qkv.parts import kernels
from qkv.parts.dropout import dropout


class Unadded(NamedTuple):
    """x + dropout(change), left to the norm that comes next: on a GPU one kernel does both."""

    x: Tensor  # (B, T, D)
    change: Tensor
    rate: float

    def normed(self, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
        """The sum, and the norm of it."""
        return kernels.residual.add_then_norm(*self[:2], norm.weight, norm.bias, self.rate, norm.eps)


class Residual(nn.Module):
    """post: norm(x + dropout(sublayer(x))), the paper's; pre: x + dropout(sublayer(norm(x))), which needs no warm-up care."""

    def __init__(self, width: int, norm: str, dropout: float, epsilon: float = 1e-5, lean: bool = False):
        """A `lean` norm, T5's, which stands first, only divides by the root of the mean square (Zhang and Sennrich 2019)."""
        super().__init__()
        self.norm: Any = nn.RMSNorm(width, eps=epsilon) if lean else nn.LayerNorm(width, eps=epsilon)
        self.first = norm == "pre"
        self.dropout = dropout

    def forward(self, x: Tensor | Unadded, sublayer: Callable[[Tensor], Tensor]) -> Tensor | Unadded:
        """x (B, T, D) -> (B, T, D)."""
        if self.first:
            return self._normed_first(x, sublayer)
        assert isinstance(x, Tensor)
        change = sublayer(x)
        if self.training and kernels.usable(change):
            return kernels.residual.add_and_norm(x, change, self.norm.weight, self.norm.bias, self.dropout, self.norm.eps)
        return self.norm(x + dropout(change, self.dropout, self.training))

    def _normed_first(self, x: Tensor | Unadded, sublayer: Callable[[Tensor], Tensor]) -> Tensor | Unadded:
        x, normed = x.normed(self.norm) if isinstance(x, Unadded) else (x, self.norm(x))
        change = sublayer(normed)
        if self.training and isinstance(self.norm, nn.LayerNorm) and kernels.usable(change):  # the kernel knows no other norm
            return Unadded(x, change, self.dropout)
        return x + dropout(change, self.dropout, self.training)


class LastNorm(nn.LayerNorm):
    """After the last of some pre-norm layers."""

    def forward(self, x: Tensor | Unadded) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return x.normed(self)[1] if isinstance(x, Unadded) else super().forward(x)
