"""Atomic writing: a file or a folder is complete or absent. It is written under another name, flushed to disk, then renamed."""

import contextlib
import errno
import glob
import hashlib
import itertools
import os
import platform
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from qkv.base.errors import QkvError
from qkv.base.processes import is_running

PARTIAL = ".partial"  # suffix while a file or a folder is being written
_TOKEN = secrets.token_hex(4)  # of this process: containers of one machine may have the same host name and process ids
_numbers = itertools.count()  # of what this process writes, on any thread


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to, and rename it to `path` on exit. On an error nothing is left behind."""
    partial = partial_path(path)
    try:
        _prepare_parent(path)
        partial.touch()
        mode = partial.stat().st_mode
        partial.unlink()
        yield partial
        partial.chmod(mode)  # some libraries create files for their owner only, whatever the umask
        flush(partial)
        partial.replace(path)
        flush(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


@contextlib.contextmanager
def atomic_folder(path: Path, writer: str = "") -> Iterator[Path]:
    """Yield a folder to fill, and rename it to `path` on exit, where it replaces an older folder.

    Other processes that write into it know its name by `writer`.
    """
    partial = partial_path(path, writer)
    try:
        _prepare_parent(path)
        partial.mkdir()
        yield partial
        mode = partial.stat().st_mode & 0o666
        for file in partial.rglob("*"):
            if file.is_file():
                file.chmod(mode)
        for file in partial.iterdir():
            flush(file)
        flush(partial)
        if path.exists():
            shutil.rmtree(path)
        partial.rename(path)
        flush(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before hours of work go into it."""
    partial = partial_path(path)
    try:
        _prepare_parent(path)
        partial.mkdir()
        partial.rmdir()
    except OSError as error:
        raise write_error(path, error) from None


def delete_folder(path: Path) -> None:
    """Delete a folder; what is left of it if the process is killed meanwhile is a partial folder."""
    partial = partial_path(path)
    path.rename(partial)
    shutil.rmtree(partial)


def delete_partial(folder: Path) -> None:
    """Delete the partial files of killed processes below a folder that no other process writes to."""
    for path in [*folder.rglob(f".*{PARTIAL}")]:
        _delete(path)


def partial_path(path: Path, writer: str = "") -> Path:
    """Return the path under which `path` is written, by a new writer or a named one."""
    return path.with_name(f".{path.name}.{writer or writer_name()}{PARTIAL}")


def writer_name() -> str:
    """Return a new name, which nobody else has on any thread, process or machine that shares a disk."""
    return f"{platform.node()}.{os.getpid()}-{_TOKEN}-{next(_numbers)}"


def _prepare_parent(path: Path) -> None:
    """Create the parent folder of `path`, and delete partial files that killed processes of this machine left under its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for partial in [*path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}")]:
        host, _, writer = partial.name.removeprefix(f".{path.name}.").removesuffix(PARTIAL).rpartition(".")
        process, _, rest = writer.partition("-")
        if host == platform.node() and process.isdecimal() and not _writer_runs(int(process), rest.partition("-")[0]):
            _delete(partial)


def _writer_runs(process: int, token: str) -> bool:
    """Return whether a process of this machine, with this id and token, runs."""
    # A killed process may have had our own id: in a container the first process always has the same.
    if process == os.getpid():
        return token == _TOKEN
    return is_running(process)


def _delete(path: Path) -> None:
    """Delete a file or a folder, unless it is another user's."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def write_error(path: Path, error: OSError) -> QkvError:
    """Return an error that says what to do about an error of the file system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return QkvError(f"{path}: the disk is full; make room and run the same command again, nothing saved was lost")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return QkvError(f"{path}: not allowed to write there; choose another --out or change its permissions")
    return QkvError(f"{path}: cannot be written: {error.strerror or error}")


def flush(path: Path) -> None:
    """Wait until the disk holds a file, or the entries of a folder."""
    on_windows = sys.platform == "win32"
    if on_windows and path.is_dir():  # it opens no folders, and writes their entries when it renames
        return
    handle = os.open(path, os.O_RDWR if on_windows else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    """Return a hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
