"""Helpers for tests that kill, stop or distribute runs."""

import contextlib
import signal
import socket
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from safetensors.torch import load_file

from toy_training import largest_difference, without_key_biases
from workbench import CommandResult, Commands, RunningCommand, metrics_without_times

# Counts every call that changes the disk, and kills the process at the given one.
DIE_AT = """
import os, pathlib, shutil, signal
import qkv.base.files, qkv.training.log
left = {count}
def counted(act):
    def first(*args, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*args, **options)
    return first
qkv.base.files.flush = counted(qkv.base.files.flush)
qkv.training.log.append = counted(qkv.training.log.append)
for name in ("replace", "rename", "unlink", "mkdir", "write_text"):
    setattr(pathlib.Path, name, counted(getattr(pathlib.Path, name)))
shutil.rmtree = counted(shutil.rmtree)
"""


def leftovers(folder: Path) -> list[Path]:
    """Return unfinished files of a run or cache, except digests, which are only 32 bytes."""
    return [path for path in folder.rglob("*.partial") if path.parent.name != "digests"]


class KilledRun:
    """A run that is killed and started again, many times."""

    def __init__(self, commands: Commands, recipe: Path, folder: Path):
        self.commands, self.recipe, self.run, self.cache = commands, recipe, folder / "run", folder / "cache"
        self.kills = 0

    def start(self) -> RunningCommand:
        return self.commands.start("train", self.recipe, "--out", self.run, QKV_CACHE=str(self.cache))

    def kill(self, started: RunningCommand) -> None:
        started.signal(signal.SIGKILL)
        done = started.result()
        self.kills += done.code == -signal.SIGKILL
        assert done.code in (0, -signal.SIGKILL), done.err
        # A run that finished before the kill must finish once more.
        (self.run / "result.json").unlink(missing_ok=True)


# Several processes


def free_port() -> str:
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def together(
    commands: Commands, recipe: Path, run: Path, cache: Path, count: int = 2, first: str = "", more: Sequence[str] = ()
) -> list[RunningCommand]:
    """Start the command in several processes, with the environment that torchrun sets."""
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "QKV_CACHE": str(cache)}
    return [
        commands.start("train", recipe, "--out", run, *more, first=first, RANK=str(rank), LOCAL_RANK=str(rank), **shared)
        for rank in range(count)
    ]


def results(started: list[RunningCommand]) -> list[CommandResult]:
    return [one.result() for one in started]


def assert_same(one: Path, other: Path, but: Collection[str] = ()) -> None:
    """Check that two runs' weights and metrics agree to rounding, except those in `but`; a/b is left out where a is."""
    first, second = (without_key_biases(load_file(run / "model.safetensors")) for run in (one, other))
    but = {*but, "gradient_norm"}
    for name in first.keys() & but:
        del first[name], second[name]
    assert largest_difference(first, second) < 1e-5
    for a, b in zip(metrics_without_times(one), metrics_without_times(other), strict=True):
        assert a.keys() == b.keys()
        names = [name for name in a if but.isdisjoint((name, name.split("/")[0]))]
        assert [a[name] for name in names] == pytest.approx([b[name] for name in names], abs=1e-5)
        # A norm over all weights is large where the loss is a sum over many labels: its rounding is relative.
        assert a.get("gradient_norm", 0.0) == pytest.approx(b.get("gradient_norm", 0.0), rel=1e-4)
