"""Files that are whole or not there: written aside, flushed to the disk, then renamed."""

import contextlib
import errno
import glob
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from qkv.base.errors import QkvError

PARTIAL = ".partial"  # ends the names of what is being written


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a path to write to; on leaving, the file takes its final name. On any error nothing is left behind."""
    aside = _aside(path)
    try:
        _make_way(path)
        yield aside
        _flush(aside)
        aside.replace(path)
        _flush(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Give a folder to fill; on leaving, it takes its final name, replacing nothing but an older folder of that name."""
    aside = _aside(path)
    try:
        _make_way(path)
        aside.mkdir()
        yield aside
        for file in aside.iterdir():
            _flush(file)
        _flush(aside)
        if path.exists():
            shutil.rmtree(path)
        aside.rename(path)
        _flush(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_writable(path: Path) -> None:
    """Refuse a path that could not be written, before hours of work for it."""
    aside = _aside(path)
    try:
        _make_way(path)
        aside.mkdir()
        aside.rmdir()
    except OSError as error:
        raise write_error(path, error) from None


def delete_partial(folder: Path) -> None:
    """Delete what killed processes left half-written, anywhere below a folder that no other process writes to."""
    for path in [*folder.rglob(f".*{PARTIAL}")]:
        _delete(path)


def _aside(path: Path) -> Path:
    """Where this process writes what is to be `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")


def _make_way(path: Path) -> None:
    """Make the folder that `path` will be in, and delete what killed processes left half-written under its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in [*path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}")]:
        number = left.name.removeprefix(f".{path.name}.").removesuffix(PARTIAL)
        if number.isdecimal() and not _at_work(int(number)):
            _delete(left)


def _at_work(process: int) -> bool:
    """Whether another process of this machine has this number."""
    # A killed process may have had our own: in a container the first one always has the same.
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # there is one, of another user
        return True
    return True


def _delete(path: Path) -> None:
    """Delete a file or a folder; one that is another user's stays."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def write_error(path: Path, error: OSError) -> QkvError:
    """An error from the disk in words that say what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return QkvError(f"{path}: the disk is full; make room and run the same command again, nothing saved was lost")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return QkvError(f"{path}: not allowed to write there; choose another --out or change its permissions")
    return QkvError(f"{path}: cannot be written: {error.strerror or error}")


def _flush(path: Path) -> None:
    """Ask the disk to really hold the file (or a folder's list of names) before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    """A fingerprint of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
