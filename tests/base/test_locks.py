"""Locks on files: exclusive and shared, by flock and by the bytes that Windows locks."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO

import pytest

from qkv.base import locks


def windows(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as Windows runs it, on a made-up msvcrt that locks bytes from the position of the file on."""
    held: dict[int, range] = {}  # bytes by handle

    def locking(handle: int, mode: int, count: int) -> None:
        start = os.lseek(handle, 0, os.SEEK_CUR)
        others = [taken for other, taken in held.items() if other != handle]
        if any(taken.start < start + count and start < taken.stop for taken in others):
            raise PermissionError(13, "Permission denied")
        held[handle] = range(start, start + count)

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2, held=held))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "fcntl", None)  # type: ignore[arg-type]
    spec = importlib.util.spec_from_file_location("locks_on_windows", locks.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["posix", "windows"])
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return locks if request.param == "posix" else windows(monkeypatch)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[IO[bytes]]]:
    path = tmp_path / "lock"
    path.write_bytes(b"content")
    with path.open("rb+") as one, path.open("rb+") as two, path.open("rb+") as three:
        yield [one, two, three]


def test_an_exclusive_lock_is_refused_to_others(module: ModuleType, files: list[IO[bytes]]) -> None:
    files[0].seek(3)
    module.lock_file(files[0], wait=False)
    assert files[0].tell() == 3
    for shared in (False, True):
        with pytest.raises(OSError):
            module.lock_file(files[1], shared=shared, wait=False)


def test_readers_share_a_lock_and_keep_writers_out(module: ModuleType, files: list[IO[bytes]]) -> None:
    module.lock_file(files[0].fileno(), shared=True, wait=False)
    module.lock_file(files[1], shared=True, wait=False)
    with pytest.raises(OSError):
        module.lock_file(files[2], wait=False)


def test_a_lock_waits_until_the_file_is_free(files: list[IO[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    module = windows(monkeypatch)
    module.lock_file(files[0])
    freed = []

    def sleep(seconds: float) -> None:
        freed.append(seconds)
        sys.modules["msvcrt"].held.clear()

    monkeypatch.setattr(module.time, "sleep", sleep)
    module.lock_file(files[1])
    assert freed == [module.RETRY]
    assert list(sys.modules["msvcrt"].held.values()) == [range(module.FIRST_BYTE, module.FIRST_BYTE + module.READERS)]


def test_a_closed_file_is_free(files: list[IO[bytes]]) -> None:
    locks.lock_file(files[0])
    files[0].close()
    locks.lock_file(files[1], wait=False)
    with locks.locked_between_forks(files[2]):
        assert files[1].read() == b"content"
