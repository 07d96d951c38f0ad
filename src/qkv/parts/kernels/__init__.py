"""Kernels where torch is too slow: for GPUs in Triton, and one for decoding on CPUs in numba. Each has an equivalent in torch."""

import functools
import importlib.util
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from qkv.base.compiler import release_compiler_memory

TRITON = importlib.util.find_spec("triton") is not None
WIDEST_HEAD = 128  # widest head of the attention kernels
MANY_POSITIONS = 2048  # cached positions from which on the kernel for CPUs is worth its import
if TRITON:
    from qkv.parts.kernels import (  # noqa: F401
        attention,
        bias,
        decode_step,
        draw,
        dropout,
        embedding,
        gated,
        linear,
        loss,
        lstm,
        residual,
        sums,
        two_stream,
    )


def usable(x: Tensor) -> bool:
    """Return whether the kernels can compute from x: on a GPU, with matrix products in bf16."""
    in_bf16 = x.dtype == torch.bfloat16 or (
        torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    )
    return in_bf16 and run_on(x.device)


def usable_in(x: Tensor) -> bool:
    """Return whether the kernels that take float32 as well as bf16 can compute from x."""
    return x.dtype in (torch.bfloat16, torch.float32) and run_on(x.device)


@functools.cache
def run_on(device: torch.device) -> bool:
    """Return whether kernels can be built for a device, by building the smallest: Triton needs a GPU and a C compiler."""
    if not TRITON or device.type != "cuda":
        return False
    if torch.cuda.get_device_capability(device) < (8, 0):  # the first that multiplies bf16
        return False
    try:
        sums.sum_lines(torch.ones(1, 1, device=device))
    except Exception as error:  # from the compiler, the driver or Triton itself
        why = str(error).partition("\n")[0][:200]
        warnings.warn(f"qkv's kernels cannot be built here, so torch's slower ones are used: {why}", stacklevel=2)
        return False
    return True


def usable_on_cpu(x: Tensor) -> bool:
    """Return whether the kernel for CPUs can compute from x."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_grad_enabled()


@functools.cache
def load_cpu_kernel() -> Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]:
    """Import and compile the kernel for CPUs, `decode_step_cpu.attend_cached`, and return it."""
    from qkv.parts.kernels import decode_step_cpu

    attend, none = decode_step_cpu.attend_cached, torch.zeros(1, dtype=torch.long)
    attend(torch.zeros(1, 1), torch.zeros(1, 2), none[None], none, 1)
    release_compiler_memory()
    return attend
