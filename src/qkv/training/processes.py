"""Several processes, one batch: each takes some of the rows, and the gradients are summed."""

import os
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

N = TypeVar("N", int, float)


def join() -> tuple[int, int]:
    """Become one of the processes that torchrun started, if it did. -> (my number, how many)."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return 0, 1
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        # Validation runs on one process while the others wait for it.
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(hours=6))
    return dist.get_rank(), world


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def add_up(tensors: list[Tensor]) -> None:
    """Replace each tensor by its sum over all processes, in one message."""
    if not dist.is_initialized() or not tensors:
        return
    flat = torch.cat([t.flatten() for t in tensors])
    dist.all_reduce(flat)
    for tensor, summed in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(summed.view_as(tensor))


def largest(value: int, device: torch.device) -> int:
    """The largest of all processes' values, in all processes."""
    if not dist.is_initialized():
        return value
    shared = torch.tensor(value, device=device)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return int(shared.item())


def wait() -> None:
    """Go on when all processes are here."""
    if dist.is_initialized():
        dist.barrier()


def same_everywhere(value: N, device: torch.device) -> N:
    """The first process's value, in all processes."""
    if not dist.is_initialized():
        return value
    shared = torch.tensor(float(value), dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    return type(value)(shared.item())
