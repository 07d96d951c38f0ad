"""Copies of remote files on this machine, within a bound: those that were not used for longest are deleted first."""

import contextlib
import os
from hashlib import blake2b
from pathlib import Path

from qkv.base.errors import ConfigError
from qkv.base.urls import fetch, file_name
from qkv.data.cache import cache_folder

BOUND = "QKV_COPIES_GB"  # variable with the bound
DEFAULT_BOUND = 50.0  # GB


def copy_path(url: str, tag: str = "") -> Path:
    """Return where the copy of a remote file is, or will be; `tag` tells its versions apart."""
    return cache_folder() / "copies" / blake2b(f"{url} {tag}".encode(), digest_size=16).hexdigest() / file_name(url)


def local_copy(url: str, tag: str = "") -> Path:
    """Return a copy of a remote file on this machine, fetched now if there is none."""
    path = copy_path(url, tag)
    try:
        os.utime(path)
    except FileNotFoundError:
        fetch(url, path)
        delete_copies(path)
    return path


def delete_copies(keep: Path) -> None:
    """Delete the copies that were not used for longest, until the others are within the bound.

    A file that some process has mapped into memory stays readable there.
    """
    found = []
    for path in (cache_folder() / "copies").glob("*/*"):
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size, path))
    excess = sum(size for _, size, _ in found) - _bound()
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        if path != keep and not path.name.startswith("."):
            with contextlib.suppress(OSError):
                path.unlink()
                path.parent.rmdir()
            excess -= size


def _bound() -> float:
    given = os.environ.get(BOUND, "")
    try:
        return 1e9 * float(given or DEFAULT_BOUND)
    except ValueError:
        raise ConfigError(f"{BOUND}={given}: give a number of gigabytes, such as {BOUND}={DEFAULT_BOUND:g}") from None
