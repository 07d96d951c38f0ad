"""Temporary folders of a service, which no death of its processes leaves behind for long."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from qkv.base.locks import lock_file

_held: dict[Path, int] = {}  # handles of this process's locked folders, which its forks share


def make_temporary_folder(prefix: str, parent: Path | None = None) -> Path:
    """Create a folder for this process and its forks, and delete those of services that were killed.

    A folder is locked until the last of these processes has ended; so a folder that can be locked is nobody's, also
    where containers share the parent and cannot see each other's processes. The prefix must be used for nothing else.
    """
    parent = parent or Path(tempfile.gettempdir())
    for old in parent.glob(f"{prefix}*"):
        if (handle := _lock(old)) is not None:
            shutil.rmtree(old, ignore_errors=True)
            os.close(handle)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        if (handle := _lock(folder)) is not None and folder.exists():  # else another start has just taken it for an old one
            _held[folder] = handle
            return folder


def delete_if_last(folder: Path) -> None:
    """Delete a folder of this process and its forks, unless another of them lives; this one must need it no more."""
    if (own := _held.pop(folder, None)) is not None:
        os.close(own)
    if (handle := _lock(folder)) is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _lock(folder: Path) -> int | None:
    """Lock a folder and return its handle; None if it is in use, another user's, or none."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        with contextlib.suppress(OSError):
            if os.fstat(handle).st_uid == os.geteuid():
                lock_file(handle, wait=False)
                return handle
        os.close(handle)
    return None
