"""Checkpoints as one process writes them, without a training."""

from pathlib import Path
from typing import Any

from torch import Tensor

from qkv.training import checkpoints
from qkv.training.checkpoint_writer import CheckpointWriter


def write_checkpoint(run: Path, step: int, tensors: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> Path:
    """Write a checkpoint with one file per name in `tensors`, and return its folder."""
    writer = CheckpointWriter(run, rank=0, world_size=1)
    writer.folder = checkpoints.folder_of(run, step)
    writer.write_first_part(step, tensors, state)
    return writer.folder
