"""A full disk gives one clear line and loses nothing saved; with room again the same command gives the same result."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench import Commands, UninterruptedRun

# From a certain write on, the disk is full.
FULL_FROM = """
import errno, os, safetensors.torch, pathlib
import qkv.training.checkpoints
left = {count}
def counted(act):
    def first(*args, **options):
        global left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return act(*args, **options)
    return first
qkv.training.checkpoints.save_weights = counted(qkv.training.checkpoints.save_weights)
pathlib.Path.write_text = counted(pathlib.Path.write_text)
os.fsync = counted(os.fsync)
"""


def mount(folder: Path, *options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "qkv-test", str(folder)]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() or not shutil.which("mount") or not mount(folder, "size=16k"):
        pytest.skip("needs to be root and allowed to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def grow(folder: Path, kilobytes: int) -> None:
    assert mount(folder, "remount", f"size={kilobytes}k")


def test_a_small_disk_that_grows_too_slowly(commands: Commands, whole: UninterruptedRun, small_disk: Path) -> None:
    run, newest, complaints = small_disk / "run", "", []
    for kilobytes in range(40, 4000, 120):
        grow(small_disk, kilobytes)
        done = commands.run("train", whole.recipe, "--out", run, QKV_CACHE=str(whole.cache))
        saved = max((f.name for f in (run / "checkpoints").glob("step-*")), default="")
        assert saved >= newest  # what was there is still there
        newest = saved
        if done.code == 0:
            break
        complaints.append(done.complaint())
        assert "the disk is full; make room and run the same command again" in complaints[-1]
    assert done.code == 0, done.err
    assert len(complaints) >= 4, complaints  # it was full at several stages
    assert whole.equals(run)


def test_a_cache_on_a_full_disk(commands: Commands, whole: UninterruptedRun, small_disk: Path, tmp_path: Path) -> None:
    run, complaints = tmp_path / "run", []
    for kilobytes in range(16, 400, 8):
        grow(small_disk, kilobytes)
        done = commands.run("train", whole.recipe, "--out", run, QKV_CACHE=str(small_disk / "cache"))
        if done.code == 0:
            break
        complaints.append(done.complaint())
        assert "the disk is full; make room and run the same command again" in complaints[-1]
        assert not list(small_disk.rglob("*.partial"))
    assert done.code == 0, done.err
    assert len(complaints) >= 3, complaints
    assert whole.equals(run)


def test_a_disk_that_is_full_from_any_write_on(commands: Commands, whole: UninterruptedRun, tmp_path: Path) -> None:
    run, cache = tmp_path / "run", {"QKV_CACHE": str(tmp_path / "cache")}
    for count in (0, 1, 2, 3, 5, 8, 13, 21, 34):
        done = commands.run("train", whole.recipe, "--out", run, first=FULL_FROM.format(count=count), **cache)
        assert "the disk is full; make room and run the same command again" in done.complaint(), count
        assert not list(tmp_path.rglob("*.partial"))
    assert commands.run("train", whole.recipe, "--out", run, **cache).code == 0
    assert whole.equals(run)
