"""Files that are whole or not there: written aside, flushed to the disk, then renamed."""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from qkv.base.errors import QkvError

PARTIAL = ".partial"  # ends the names of what is being written


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a path to write to; on leaving, the file takes its final name. On any error nothing is left behind."""
    aside = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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
def whole_folder(path: Path) -> Iterator[Path]:
    """Give a folder to fill; on leaving, it takes its final name, replacing nothing but an older folder of that name."""
    aside = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    # A killed process may have had our number: in a container the first one always has the same.
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
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


def clear_partial(folder: Path) -> None:
    """Delete what killed processes left half-written, anywhere below a folder that no other process writes to."""
    for path in [*folder.rglob(f".*{PARTIAL}")]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


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
