"""The residual connection around each sub-layer ("Attention Is All You Need", sections 3.1 and 5.4)."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from qkv.parts import kernels
from qkv.parts.dropout import dropout

Norm = nn.LayerNorm | nn.RMSNorm


class PendingSum(NamedTuple):
    """x + dropout(change), left to the next norm: on a GPU one kernel computes both."""

    x: Tensor  # (B, T, D)
    change: Tensor
    rate: float

    def add_and_norm(self, norm: Norm) -> tuple[Tensor, Tensor]:
        """Return the sum and the norm of it."""
        bias, epsilon = getattr(norm, "bias", None), norm.eps  # an RMSNorm has no bias
        assert epsilon is not None
        return kernels.residual.add_then_norm(*self[:2], norm.weight, bias, self.rate, epsilon)


class Residual(nn.Module):
    """post: norm(x + dropout(sublayer(x))), the paper's.

    Pre: x + dropout(sublayer(norm(x))), which trains without a long warm-up.
    """

    def __init__(self, width: int, norm: str, dropout: float, epsilon: float = 1e-5, rms_norm: bool = False):
        """Build the norm; T5's is an RMSNorm (Zhang and Sennrich 2019) and pre."""
        super().__init__()
        self.norm: Any = nn.RMSNorm(width, eps=epsilon) if rms_norm else nn.LayerNorm(width, eps=epsilon)
        self.pre_norm = norm == "pre"
        self.dropout = dropout

    def forward(self, x: Tensor | PendingSum, sublayer: Callable[[Tensor], Tensor]) -> Tensor | PendingSum:
        """x (B, T, D) -> (B, T, D)."""
        if self.pre_norm:
            return self._norm_first(x, sublayer)
        assert isinstance(x, Tensor)
        change = sublayer(x)
        if self.training and kernels.usable(change):
            return kernels.residual.add_and_norm(x, change, self.norm.weight, self.norm.bias, self.dropout, self.norm.eps)
        return self.norm(x + dropout(change, self.dropout, self.training))

    def _norm_first(self, x: Tensor | PendingSum, sublayer: Callable[[Tensor], Tensor]) -> Tensor | PendingSum:
        x, normed = x.add_and_norm(self.norm) if isinstance(x, PendingSum) else (x, self.norm(x))
        change = sublayer(normed)
        if self.training and kernels.usable(change):
            return PendingSum(x, change, self.dropout)
        return x + dropout(change, self.dropout, self.training)


class FinalNorm(nn.LayerNorm):
    """The norm after the last of some pre-norm layers."""

    def forward(self, x: Tensor | PendingSum) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return x.add_and_norm(self)[1] if isinstance(x, PendingSum) else super().forward(x)


class FinalRMSNorm(nn.RMSNorm):
    """The same without centring: T5's."""

    def forward(self, x: Tensor | PendingSum) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return x.add_and_norm(self)[1] if isinstance(x, PendingSum) else super().forward(x)
