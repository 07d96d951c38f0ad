"""Products of matrices whose sums stay as exact as they were made."""

import torch
from torch import Tensor


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b in float32, in which a GPU makes the sums of bf16 anyway: they are not rounded on their way."""
    if a.is_cuda and a.dtype == torch.bfloat16:
        return torch.mm(a, b, out_dtype=torch.float32)
    return (a @ b).float()
