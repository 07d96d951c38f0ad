"""Atomic writing: files and folders are complete or absent."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from qkv.base.errors import QkvError
from qkv.base.files import atomic_file, atomic_folder, check_writable, digest, write_error

HOST = platform.node()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_its_name_when_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "a.txt"
    with atomic_file(path) as aside:
        aside.write_text("new")
        assert not path.exists()
        assert aside.parent == path.parent  # the same disk, so that a rename is enough
    assert path.read_text() == "new"
    assert names(path.parent) == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), atomic_file(path) as aside:
        aside.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_takes_its_name_when_whole_and_replaces_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "step"
    for content in ("one", "two"):
        with atomic_folder(path) as aside:
            (aside / content).write_text(content)
            assert not (path / content).exists()
        assert names(path) == [content]
        assert names(path.parent) == ["step"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_folder_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "step"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(error), atomic_folder(path) as aside:
        (aside / "half").touch()
        raise error
    assert names(path) == ["old"]
    assert names(tmp_path) == ["step"]


def test_what_a_killed_process_of_the_same_number_left_is_no_obstacle(tmp_path: Path) -> None:
    # In a container the first process has the same number each time it is started.
    left = tmp_path / f".step.{HOST}.{os.getpid()}-0badcafe-1.partial"
    left.mkdir()
    (left / "half").touch()
    with atomic_folder(tmp_path / "step") as aside:
        (aside / "new").touch()
    assert names(tmp_path / "step") == ["new"]
    assert names(tmp_path) == ["step"]


@pytest.mark.parametrize("whole", [atomic_file, atomic_folder])
def test_what_killed_processes_left_under_the_same_name_is_deleted(tmp_path: Path, whole: type) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    for name in ("step", "[s]tep", "step.1"):
        (tmp_path / f".{name}.{HOST}.{ended.pid}-0badcafe-1.partial").mkdir()
        (tmp_path / f".{name}.{HOST}.{ended.pid}-0badcafe-1.partial" / "half").touch()
    (tmp_path / f".step.{HOST}.{10**30}.partial").touch()
    others = [f".step.{HOST}.{os.getppid()}-0badcafe-1.partial", f".step.{HOST}.mine.partial"]
    for name in others:
        (tmp_path / name).touch()
    others += [f".{name}.{HOST}.{ended.pid}-0badcafe-1.partial" for name in ("[s]tep", "step.1")]
    for content in ("one", "two"):
        with whole(tmp_path / "step") as aside:
            (aside / content if whole is atomic_folder else aside).touch()
        assert names(tmp_path) == sorted(["step", *others])


@pytest.mark.parametrize("whole", [atomic_file, atomic_folder])
@pytest.mark.parametrize("host", [HOST, "another"])
def test_two_writers_of_one_file_write_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: type, host: str) -> None:
    """Two threads, or processes of two machines that share a disk and have the same number."""
    with whole(tmp_path / "step") as first:
        (first / "file" if whole is atomic_folder else first).touch()
        monkeypatch.setattr(platform, "node", lambda: host)
        with whole(tmp_path / "step") as second:
            assert first != second and first.exists()
            (second / "file" if whole is atomic_folder else second).touch()
    assert names(tmp_path) == ["step"]


def test_a_full_disk_is_named_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(QkvError, match="the disk is full"), atomic_file(path) as aside:
        aside.write_text("half")
        raise OSError(28, "No space left on device")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("whole", [atomic_file, atomic_folder])
def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path, whole: type) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(QkvError, match="cannot be written"), whole(tmp_path / "file" / "inside"):
        pytest.fail("there is no place to write to")


@pytest.mark.parametrize(("number", "words"), [(28, "disk is full"), (122, "disk is full"), (13, "not allowed"), (5, "cannot")])
def test_errors_of_the_disk_say_what_to_do(number: int, words: str) -> None:
    text = str(write_error(Path("x"), OSError(number, os.strerror(number))))
    assert text.startswith("x: ")
    assert words in text


@pytest.mark.parametrize("whole", [atomic_file, atomic_folder])
def test_what_takes_its_name_is_on_the_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: type) -> None:
    path, flushed = tmp_path / "new", []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append((os.fstat(handle).st_ino, path.exists())))
    with whole(path) as aside:
        written = aside / "inside" if whole is atomic_folder else aside
        written.write_text("x")
        wanted = [*dict.fromkeys([written.stat().st_ino, aside.stat().st_ino])]
    # What was written, under no name yet; then, once it has its name, the list of names.
    assert flushed == [*((number, False) for number in wanted), (tmp_path.stat().st_ino, True)]


def test_a_digest_is_of_the_content(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in "abc")
    one.write_bytes(b"x" * 100_000)
    two.write_bytes(b"x" * 100_000)
    three.write_bytes(b"x" * 99_999 + b"y")
    assert digest(one) == digest(two) != digest(three)


def test_a_place_is_looked_at_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    check_writable(tmp_path / "a.txt")
    check_writable(tmp_path / "new" / "b")
    assert names(tmp_path) == ["a.txt", "new"] and names(tmp_path / "new") == []
    with pytest.raises(QkvError, match="cannot be written"):
        check_writable(tmp_path / "a.txt" / "b")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_permissions_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with atomic_file(tmp_path / "weights") as aside:
            aside.touch(0o600)  # as safetensors writes its files
        with atomic_folder(tmp_path / "step") as folder:
            (folder / "deep").mkdir()
            for file in (folder / "weights", folder / "deep" / "weights"):
                file.touch(0o600)
    finally:
        os.umask(before)
    written = [tmp_path / "weights", tmp_path / "step" / "weights", tmp_path / "step" / "deep" / "weights"]
    assert [file.stat().st_mode & 0o777 for file in written] == [mode] * 3
