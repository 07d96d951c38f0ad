"""The system: where qkv writes, what it may open, and how text is encoded."""

import shutil
import sys
import tempfile
from pathlib import Path

from qkv.base.processes import open_file_limit
from qkv.base.urls import is_url
from qkv.cli.doctor.finding import Diagnosis, State
from qkv.data.cache import cache_folder, cache_root

LITTLE, TOO_LITTLE = 5e9, 2e8  # bytes of disk
SHARED_MEMORY = Path("/dev/shm")
LITTLE_SHARED = 256e6  # bytes; a container has 64 MB unless told otherwise
FEW_FILES, TOO_FEW_FILES = 1024, 128


def check_cache() -> Diagnosis:
    """Check that the cache's folder on this machine can be written."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"qkv")
    except OSError as error:
        advice = "set QKV_CACHE to a folder that you may write to"
        return Diagnosis("cache", "fail", f"{folder}: {error.strerror or error}", advice)
    return Diagnosis("cache", "ok", f"{cache_root()}, copies in {folder}" if is_url(cache_root()) else str(folder))


def check_disk() -> Diagnosis:
    """Check the space on the disks of the cache and of this folder, where runs are written."""
    free = {}
    for folder in (cache_folder(), Path.cwd()):
        there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
        free[str(folder)] = shutil.disk_usage(there).free
    where, least = min(free.items(), key=lambda item: item[1])
    found = f"{least / 1e9:,.1f} GB free in {where}"
    if least < LITTLE:
        state: State = "fail" if least < TOO_LITTLE else "note"
        return Diagnosis("disk", state, found, "make room, or set QKV_CACHE and --out to another disk")
    return Diagnosis("disk", "ok", found)


def check_shared_memory() -> Diagnosis:
    """Check the shared memory, through which processes on several GPUs exchange data; only Linux limits it."""
    if not SHARED_MEMORY.is_dir():
        return Diagnosis("shared memory", "ok", f"no {SHARED_MEMORY} here")
    size = shutil.disk_usage(SHARED_MEMORY).total
    found = f"{size / 1e9:,.2f} GB"
    if size < LITTLE_SHARED:
        advice = "training on several GPUs may fail: start the container with --shm-size=1g"
        return Diagnosis("shared memory", "note", found, advice)
    return Diagnosis("shared memory", "ok", found)


def check_encoding() -> Diagnosis:
    """Check that names of files and output are UTF-8, without which other texts than ASCII end in an error."""
    found = {"files": sys.getfilesystemencoding(), "output": getattr(sys.stdout, "encoding", None) or "utf-8"}
    wrong = [f"{name} in {encoding}" for name, encoding in found.items() if encoding.lower().replace("-", "") != "utf8"]
    if wrong:
        return Diagnosis("encoding", "fail", ", ".join(wrong), "set PYTHONUTF8=1, or LANG to a UTF-8 locale such as C.UTF-8")
    return Diagnosis("encoding", "ok", "UTF-8")


def check_open_files() -> Diagnosis:
    """Check how many files this process may have open."""
    limit = open_file_limit()
    if limit is None or limit >= FEW_FILES:
        return Diagnosis("open files", "ok", "no limit" if limit is None else f"{limit:,}")
    state: State = "fail" if limit < TOO_FEW_FILES else "note"
    return Diagnosis("open files", state, f"{limit:,}", f"ulimit -n {4 * FEW_FILES}, for services and large corpora")
