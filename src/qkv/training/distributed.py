"""Several processes that train as one, over torch.distributed: how they join, talk, agree and end.

Each computes some rows of a batch, and gradients are summed (`exchange.py`). Messages between the hosts are tensors on the CPU,
so that nobody waits for a GPU to send one. Every function works in a single process too, where there is nothing to exchange.
"""

import contextlib
import ctypes
import json
import os
import platform
import signal
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from qkv.base.errors import ConfigError, QkvError

LONGEST_WAIT = timedelta(hours=6)  # the other processes wait while the first one prepares data or validates
SET_PARENT_DEATH_SIGNAL = 1  # of Linux' prctl


class OtherProcessFailedError(SystemExit):
    """The end of a process because another one has failed, which prints why."""

    def __init__(self) -> None:
        super().__init__(2)


# Joining and leaving


@contextlib.contextmanager
def joined_processes() -> Iterator[int]:
    """Join the others for the time of a block; whatever ends it in one process ends all, and one of them says why. -> rank."""
    rank, _ = init_processes()
    try:
        with ended_by_lost_processes():
            yield rank
    except QkvError:
        claim_report()
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def init_processes() -> tuple[int, int]:
    """Join the process group if torchrun started several processes. -> (rank, world size)."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1:
        return 0, 1
    if not dist.is_initialized():
        _refuse_shared_store()
        _end_with_agent()
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=LONGEST_WAIT)
        _compare_versions()
    return dist.get_rank(), world_size


def _refuse_shared_store() -> None:
    """Refuse agents of several machines that share one store over all starts.

    After a restart it still has the addresses of the processes before it. torch tells starts apart by their number, which agents
    count differently, and an agent that is replaced never hears where the store is: seen with torch 2.13.
    """
    several = int(os.environ.get("GROUP_WORLD_SIZE", "1")) > 1 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if several and os.environ["RANK"] != "0":
        raise OtherProcessFailedError
    if several:
        raise ConfigError(
            "torchrun on several machines may hang after a restart unless each start has a store of its own; set "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the environment of torchrun on all of them"
        )


def _end_with_agent() -> None:
    """Ask Linux for SIGTERM when torchrun's agent dies: this process would train on and keep the run's lock otherwise."""
    if "TORCHELASTIC_RUN_ID" in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _compare_versions() -> None:
    """Refuse processes with other versions: they would draw and round differently, or not understand each other."""
    own = f"torch {torch.__version__}, Python {platform.python_version()}"
    first = broadcast_text(own)
    with all_or_none():
        if own != first:
            raise ConfigError(
                f"process {dist.get_rank()} on {platform.node()} has {own}, and process 0 has {first}; install the same "
                "versions everywhere"
            )


def is_joined() -> bool:
    """Whether this process belongs to a group, which may be of one process only."""
    return dist.is_initialized()


def is_first_of_node() -> bool:
    """Whether this process is the one that makes the caches of its machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) == 0


# Messages


def all_reduce_max(values: list[int]) -> list[int]:
    """Return the largest of each value over all processes."""
    if not dist.is_initialized():
        return values
    shared = torch.tensor(values)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return shared.tolist()


def barrier() -> None:
    """Wait until all processes have reached this call."""
    all_reduce_max([0])


def broadcast(values: list[float]) -> list[float]:
    """Return the first process's values in all processes; whole numbers stay exact up to 2^53."""
    if not dist.is_initialized():
        return values
    shared = torch.tensor(values, dtype=torch.float64)
    dist.broadcast(shared, 0)
    return shared.tolist()


def broadcast_text(text: str) -> str:
    """Return the first process's text in all processes."""
    if not dist.is_initialized():
        return text
    data = text.encode()
    (size,) = broadcast([len(data)])
    shared = torch.zeros(int(size), dtype=torch.uint8)
    shared[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)[: int(size)]
    dist.broadcast(shared, 0)
    return bytes(shared.tolist()).decode()


def all_reduce_sum(tensor: Tensor) -> Tensor:
    """Replace a tensor by its sum over all processes."""
    if dist.is_initialized():
        dist.all_reduce(tensor)
    return tensor


def gather_names(names: list[str]) -> list[str]:
    """Return the names that any process has, sorted."""
    if not dist.is_initialized():
        return sorted(names)
    data = json.dumps(names).encode()
    (size,) = all_reduce_max([len(data)])
    own = torch.tensor([*data.ljust(size)], dtype=torch.uint8)
    found = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(found, own)
    return sorted({name for one in found for name in json.loads(bytes(one.tolist()))})


def sum_tally(tally: Any, device: torch.device | str = "cpu") -> None:
    """Replace the sums of an objective's tally by those over all processes; some of them may lack some names."""
    own: dict[str, Tensor] = tally.copy()
    names = gather_names([*own])
    if names:
        nothing = torch.zeros(2, dtype=torch.float64, device=device)
        total = all_reduce_sum(torch.stack([own.get(name, nothing) for name in names]))
        tally.restore(dict(zip(names, total, strict=True)))


# Agreement


@contextlib.contextmanager
def all_or_none() -> Iterator[None]:
    """Run a block in all processes; where some of them raise a QkvError, all end, and only the first of these raises it."""
    error: QkvError | None = None
    try:
        yield
    except QkvError as raised:
        error = raised
    raise_together(error)


def raise_together(error: QkvError | None) -> None:
    """End all processes if one of them has an error: the first of those raises it, and all others end without a word."""
    if not dist.is_initialized():
        if error is not None:
            raise error
        return
    rank, world_size = dist.get_rank(), dist.get_world_size()
    (highest,) = all_reduce_max([world_size - rank if error is not None else 0])
    if not highest:
        return
    if error is not None and highest == world_size - rank:
        raise error
    raise OtherProcessFailedError


@contextlib.contextmanager
def ended_by_lost_processes() -> Iterator[None]:
    """Turn the error of a connection to a process that died into one line, which one of the others prints."""
    try:
        yield
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise
        if not claim_report():
            raise OtherProcessFailedError from None
        raise QkvError(
            "another process of this training has ended; see its message. After a crash the same command, or torchrun's next "
            "start, resumes from the last checkpoint"
        ) from error


def _is_lost_connection(error: RuntimeError) -> bool:
    """Whether an error of torch.distributed means that another process is gone."""
    if not dist.is_initialized():
        return False
    if isinstance(error, dist.DistError):
        return True
    # gloo's errors have no class of their own.
    text = str(error)
    return any(sign in text for sign in ("gloo", "Connection closed by peer", "Connection reset by peer", "Broken pipe"))


def claim_report() -> bool:
    """Note in the store that all processes share that this one reports a failure. -> whether no other one did before."""
    if not dist.is_initialized():
        return True
    store: Any = dist.distributed_c10d._get_default_store()
    try:
        return store.add("qkv/failures", 1) == 1
    except RuntimeError:  # without torchrun the store is in the first process, which is gone
        return dist.get_rank() == 1
