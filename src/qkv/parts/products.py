"""Matrix products that keep their sums in float32."""

import torch
from torch import Tensor


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return a b in float32, in which a GPU sums bf16 products anyway: the sums are not rounded to bf16."""
    if a.is_cuda and a.dtype == torch.bfloat16:
        return torch.mm(a, b, out_dtype=torch.float32)
    return (a @ b).float()
