"""Locks on files, which end with the process that holds them: flock where there is POSIX, byte ranges on Windows."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import IO

# Windows locks bytes, which nobody else can then read: these lie behind the end of any file that is locked.
FIRST_BYTE = 0x7FFF_0000
READERS = 64  # bytes; a shared lock is one of them, an exclusive one all
RETRY = 0.05  # seconds


def lock_file(file: IO[bytes] | IO[str] | int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock an open file until it is closed; OSError where it is locked already and `wait` is false."""
    handle = file if isinstance(file, int) else file.fileno()
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        return
    while True:
        try:
            return _lock_bytes(handle, shared)
        except OSError:
            if not wait:
                raise
        time.sleep(RETRY)


def _lock_bytes(handle: int, shared: bool) -> None:
    """Lock the bytes of a reader, or of all readers, on Windows."""
    if sys.platform != "win32":
        raise NotImplementedError("only Windows locks bytes")
    import msvcrt

    before = os.lseek(handle, 0, os.SEEK_CUR)
    try:
        for offset in range(READERS if shared else 1):
            os.lseek(handle, FIRST_BYTE + offset, os.SEEK_SET)
            try:
                return msvcrt.locking(handle, msvcrt.LK_NBLCK, 1 if shared else READERS)
            except OSError:
                if not shared or offset == READERS - 1:
                    raise
    finally:
        os.lseek(handle, before, os.SEEK_SET)


@contextlib.contextmanager
def locked_between_forks(file: IO[bytes]) -> Iterator[None]:
    """Lock a file that forks of one process share; `lock_file` would lock it for all of them at once. Not on Windows."""
    if sys.platform == "win32":
        raise NotImplementedError("Windows has no forks")
    import fcntl

    fcntl.lockf(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN)
