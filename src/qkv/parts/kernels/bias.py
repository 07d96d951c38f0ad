"""A bias that is added to attention scores: how the attention kernels read it, and write its gradient.

A bias is (1, H, T, P), the same for all rows, entry (i, j) for query i and key j. P is S or more, a multiple of `PADDED`, so that
kernels can read and write several entries at once; entries from S on are unused.
B rows, T query positions, S key positions, H heads.
"""

import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

PADDED = 16  # Triton reads several entries at once if the length of a line is a multiple of this


def by_distance(values: Tensor) -> Tensor:
    """Return the bias between all positions of rows from that of distances: entry T - 1 - i + j. (H, 2 T - 1) -> (1, H, T, P)."""
    positions = (values.size(1) + 1) // 2
    lines = F.pad(values, (0, -positions % PADDED)).unfold(1, positions + -positions % PADDED, 1)
    return lines.flip(1)[None]


@triton.jit
def bias_at(BIAS, t, s, T, step):  # type: ignore[no-untyped-def]
    """Load the bias of a row and head between queries and keys, which broadcast against each other."""
    return tl.load(BIAS + t * step + s, mask=(t < T) & (s < step), other=0.0).to(tl.float32)


@triton.jit
def put_gradient(GRAD, found, t, s, T, step):  # type: ignore[no-untyped-def]
    """Store the gradients of some scores of a row and head."""
    tl.store(GRAD + t * step + s, found.to(GRAD.dtype.element_ty), mask=(t < T) & (s < step))


def new_gradient(bias: Tensor, rows: int, everywhere: bool) -> Tensor:
    """Return room for the gradients of all scores; kernels that do not write them `everywhere` leave zeros. -> (B, H, T, P)."""
    return (bias.new_empty if everywhere else bias.new_zeros)(rows, *bias.shape[1:])
