"""Copies of remote files on this machine, within a bound: those that were not used for longest are deleted first."""

import contextlib
import os
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from qkv.base.errors import ConfigError, StorageError
from qkv.base.locks import lock_file
from qkv.base.urls import ask_at_once, fetch, file_name, find_info, is_url, list_files
from qkv.data.cache import cache_folder

BOUND = "QKV_COPIES_GB"  # variable with the bound
DEFAULT_BOUND = 50.0  # GB


def copy_path(url: str, tag: str = "") -> Path:
    """Return where the copy of a remote file is, or will be; `tag` tells its versions apart."""
    return cache_folder() / "copies" / blake2b(f"{url} {tag}".encode(), digest_size=16).hexdigest() / file_name(url)


def local_copy(url: str, tag: str = "") -> Path:
    """Return a copy of a remote file on this machine, fetched now if there is none.

    Open it at once: another process may delete it. What is open, or mapped into memory, stays readable.
    """
    path = copy_path(url, tag)
    try:
        _note_use(path)
    except FileNotFoundError:
        fetch(url, path)
        delete_copies(path)
    return path


def _note_use(path: Path) -> None:
    """Note that a copy is used now; its date of change stays, by which a large file is known to be the same."""
    os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def delete_copies(keep: Path) -> None:
    """Delete the copies that were not used for longest, except `keep` and what is in it, until the rest is within the bound."""
    found = []
    for path in (path for folder in _entries(cache_folder() / "copies") for path in _entries(folder)):
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append((status.st_atime_ns, status.st_size, path))
    excess = sum(size for _, size, _ in found) - _bound()
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        if keep in (path, path.parent) or path.name.startswith("."):
            continue
        with contextlib.suppress(OSError), _unused(path.parent):
            path.unlink()
            excess -= size
            path.parent.rmdir()


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder; nothing if another thread or process has just deleted it."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


_held: dict[Path, int] = {}  # locks of the folders that this process uses


def _hold(folder: Path) -> None:
    """Keep other processes from deleting a folder of copies as long as this one runs."""
    if folder not in _held:
        lock = _lock_of(folder)
        lock.parent.mkdir(parents=True, exist_ok=True)
        _held[folder] = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        lock_file(_held[folder], shared=True)


@contextlib.contextmanager
def _unused(folder: Path) -> Iterator[None]:
    """Keep a folder of copies from being used for the time of a block; OSError if it is."""
    if not _lock_of(folder).exists():  # files of the cache have none
        yield
        return
    lock = os.open(_lock_of(folder), os.O_RDWR)
    try:
        lock_file(lock, wait=False)
        yield
    finally:
        os.close(lock)


def _lock_of(folder: Path) -> Path:
    return cache_folder() / "locks" / f"copies-{folder.name}"


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
    found = [file for file in list_files(url) if file.rstrip("/") != url]
    files = {file_name(file): (file, info.tag) for file, info in zip(found, ask_at_once(find_info, found), strict=True)}
    if not files:
        raise StorageError(f"{url}: no such folder, or no files in it; check the address")
    version = blake2b(repr(sorted((name, tag) for name, (_, tag) in files.items())).encode(), digest_size=16).hexdigest()
    folder = cache_folder() / "copies" / version
    _hold(folder)
    for name, (file, tag) in files.items():
        try:
            _note_use(folder / name)
        except FileNotFoundError:
            fetch(file, folder / name, tag)
    delete_copies(folder)
    return folder
