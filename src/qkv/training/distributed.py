"""Data parallelism over torch.distributed: each process computes some rows of a batch, and gradients are summed.

Every function works in a single process too, where there is nothing to exchange.
"""

import os
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

N = TypeVar("N", int, float)


def init_processes() -> tuple[int, int]:
    """Join the process group if torchrun started several processes. -> (rank, world size)."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1:
        return 0, 1
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        # The other processes wait while the first one validates.
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(hours=6))
    return dist.get_rank(), world_size


def destroy_processes() -> None:
    """Leave the process group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def all_reduce_sum(tensors: list[Tensor]) -> None:
    """Replace each tensor by its sum over all processes, in one message."""
    if not dist.is_initialized() or not tensors:
        return
    flat = torch.cat([t.flatten() for t in tensors])
    dist.all_reduce(flat)
    for tensor, summed in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(summed.view_as(tensor))


def all_reduce_max(value: int, device: torch.device) -> int:
    """Return the largest value of all processes."""
    if not dist.is_initialized():
        return value
    shared = torch.tensor(value, device=device)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return int(shared.item())


def barrier() -> None:
    """Wait until all processes have reached this call."""
    if dist.is_initialized():
        dist.barrier()


def broadcast(value: N, device: torch.device) -> N:
    """Return the first process's value in all processes."""
    if not dist.is_initialized():
        return value
    shared = torch.tensor(float(value), dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    return type(value)(shared.item())
