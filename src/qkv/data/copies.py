"""Copies of remote files on this machine, within a bound: those that were not used for longest are deleted first."""

import contextlib
import os
from hashlib import blake2b
from pathlib import Path

from qkv.base.errors import ConfigError, StorageError
from qkv.base.urls import fetch, file_name, find_info, is_url, list_files
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
    """Delete the copies that were not used for longest, except `keep` and what is in it, until the others are within the bound.

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
        if keep not in (path, path.parent) and not path.name.startswith("."):
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


def local_folder(location: str | Path) -> Path:
    """Return a folder on this machine; the files of a remote one are copied, those of its own folders are not."""
    if not is_url(location):
        return Path(location)
    url = str(location).rstrip("/")
    files = {file_name(file): (file, find_info(file).tag) for file in list_files(url) if file.rstrip("/") != url}
    if not files:
        raise StorageError(f"{url}: no such folder, or no files in it; check the address")
    version = blake2b(repr(sorted((name, tag) for name, (_, tag) in files.items())).encode(), digest_size=16).hexdigest()
    folder = cache_folder() / "copies" / version
    for name, (file, _) in files.items():
        try:
            os.utime(folder / name)
        except FileNotFoundError:
            fetch(file, folder / name)
    delete_copies(folder)
    return folder
