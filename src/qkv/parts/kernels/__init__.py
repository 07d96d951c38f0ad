"""Kernels for the GPU, written in Triton, where torch is too slow. Each has its equal in plain torch."""

import importlib.util

import torch
from torch import Tensor

TRITON = importlib.util.find_spec("triton") is not None
if TRITON:
    from qkv.parts.kernels import attention, linear, loss, past, residual  # noqa: F401


def usable(x: Tensor) -> bool:
    """Whether the kernels can take part in what is computed from x: on a GPU, with matrix products in bf16."""
    if not (TRITON and x.is_cuda):
        return False
    return x.dtype == torch.bfloat16 or (torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16)
