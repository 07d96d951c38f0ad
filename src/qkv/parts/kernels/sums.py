"""Column sums of a few hundred lines: the second half of a sum over all positions of a batch, always in the same order.

P lines, D columns.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _add_lines(LINES, SUM, D, P: tl.constexpr, AT_ONCE: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros([AT_ONCE, WIDTH], tl.float32)
    for start in range(0, P, AT_ONCE):
        line = start + tl.arange(0, AT_ONCE)
        inside = (line < P)[:, None] & (column < D)[None, :]
        total += tl.load(LINES + line[:, None] * D + column[None, :], mask=inside, other=0.0)
    tl.store(SUM + column, tl.sum(total, 0), mask=column < D)


def sum_lines(lines: Tensor) -> Tensor:
    """Return the sum of each column, in float32. (P, D) -> (D,)."""
    total = lines.new_empty(lines.size(1), dtype=torch.float32)
    _add_lines[(triton.cdiv(lines.size(1), 16),)](lines, total, lines.size(1), P=lines.size(0), AT_ONCE=32, WIDTH=16, num_warps=8)
    return total
