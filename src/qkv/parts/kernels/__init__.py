"""Kernels for the GPU, written in Triton, where torch is too slow. Each has its equal in plain torch."""

import functools
import importlib.util
import warnings

import torch
from torch import Tensor

TRITON = importlib.util.find_spec("triton") is not None
WIDEST_HEAD = 128  # that the kernels for attention over rows can hold
if TRITON:
    from qkv.parts.kernels import attention, draw, embedding, linear, loss, past, residual, sums  # noqa: F401


def usable(x: Tensor) -> bool:
    """Whether the kernels can take part in what is computed from x: on a GPU, with matrix products in bf16."""
    return TRITON and x.is_cuda and _in_bf16(x) and _run_on(x.device)


def usable_in(x: Tensor) -> bool:
    """Whether kernels that take float32 as well as bf16 can compute from x itself."""
    return TRITON and x.is_cuda and x.dtype in (torch.bfloat16, torch.float32) and _run_on(x.device)


def _in_bf16(x: Tensor) -> bool:
    return x.dtype == torch.bfloat16 or (torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16)


@functools.cache
def _run_on(device: torch.device) -> bool:
    """Whether kernels can be built for a GPU here, found out with the smallest of them: Triton needs a C compiler for it."""
    if torch.cuda.get_device_capability(device) < (8, 0):  # the first that multiplies bf16
        return False
    try:
        sums.sum_lines(torch.ones(1, 1, device=device))
    except Exception as error:  # from the compiler, the driver or Triton itself
        why = str(error).partition("\n")[0][:200]
        warnings.warn(f"qkv's own kernels cannot be built here, so that torch's slower ones are used: {why}", stacklevel=2)
        return False
    return True
