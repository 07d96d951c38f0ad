"""Functions that run in several processes which can talk to each other."""

import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from interruptions import free_port


def in_processes(count: int, work: Callable[..., None], *args: Any) -> None:
    """Run work(rank, *args) in several processes; an error in one is raised."""
    multiprocessing.start_processes(_joined, (count, free_port(), work, *args), count, start_method="fork")


def _joined(rank: int, count: int, port: str, work: Callable[..., None], *args: Any) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo")
    work(rank, *args)
    dist.destroy_process_group()
