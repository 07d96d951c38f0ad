"""Translated files on the disk of a service: a disk that fails, files that nobody fetches, and services that are killed."""

import errno
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_runs import Running, code_of

import qkv.serving.downloads
import qkv.serving.server
from qkv.base.errors import DataError, StorageError
from qkv.serving.downloads import Downloads
from qkv.serving.errors import as_request_error
from qkv.serving.registry import ModelRegistry
from qkv.serving.temporary_folder import delete_if_last, make_temporary_folder
from workbench import wait_until


@pytest.fixture(scope="module")
def served(models: ModelRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Path]]:
    """A service, and its folder of translated files, which has others too."""
    folder = tmp_path_factory.mktemp("translated")
    (folder / "notes.txt").write_text("not of the service")
    os.utime(folder / "notes.txt", (0, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(qkv.serving.server, "CLEAN_EVERY", 1)
        with Running(models, downloads=str(folder)) as running:
            yield running, folder


@pytest.mark.parametrize(("number", "status", "code"), [(errno.ENOSPC, 507, "no_space"), (errno.EROFS, 500, "internal")])
def test_a_disk_that_fails_is_the_fault_of_the_service(
    served: tuple[Running, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
    status: int,
    code: str,
) -> None:
    def fail(path: Path, _: bytes) -> None:
        raise OSError(number, os.strerror(number), str(path))

    running, folder = served
    monkeypatch.setattr(Path, "write_bytes", fail)
    answer = running.client.post("/translate_file", files={"file": ("a.txt", b"red bird")})
    assert (answer.status_code, code_of(answer)) == (status, code) and (status == 500 or answer.headers["retry-after"] == "60")
    assert str(folder) not in answer.text and ".txt" not in answer.text
    assert f"translated files cannot be stored in {folder}: {os.strerror(number)}" in caplog.text and ".txt" not in caplog.text
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_only_texts_and_options_are_the_clients_fault(caplog: pytest.LogCaptureFixture) -> None:
    unsuitable = as_request_error(DataError("the file: which languages? name them", "or say --set languages=[en,de]"))
    assert (unsuitable.status, unsuitable.message) == (400, "the file: which languages? name them")
    fault = as_request_error(StorageError("/srv/models: cannot be reached"))
    assert (fault.status, fault.code) == (500, "internal") and "/srv" not in fault.message and "/srv/models" in caplog.text


def test_a_large_upload_needs_no_disk(served: tuple[Running, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    running, _ = served
    answer = running.client.post("/translate_file", files={"file": ("a.txt", b"sun" * 500_000)})
    assert (answer.status_code, code_of(answer)) == (400, "text_too_long")


def test_files_are_deleted_though_nobody_uploads_another(served: tuple[Running, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    running, folder = served
    url = running.client.post("/translate_file", files={"file": ("a.txt", b"red bird")}).json()["translatedFileUrl"]
    assert running.client.get(url).status_code == 200
    for path in folder.iterdir():
        os.utime(path, (time.time() - 3600,) * 2)
    (folder / f".{'0' * 32}.a.txt.host.1.partial").touch()
    os.utime(folder / f".{'0' * 32}.a.txt.host.1.partial", (0, 0))
    wait_until(lambda: [path.name for path in folder.iterdir()] == ["notes.txt"])
    assert running.client.get(url).status_code == 404


def test_folders_of_killed_services_are_deleted_by_the_next(tmp_path: Path) -> None:
    def start() -> int:
        process = os.fork()
        if process == 0:
            try:
                folder = make_temporary_folder("files-", tmp_path)
                (folder / "document.txt").write_text("a letter")
                (tmp_path / f"ready-{os.getpid()}").touch()
                signal.pause()
            finally:
                os._exit(1)
        wait_until((tmp_path / f"ready-{process}").exists)
        return process

    killed = start()
    (left,) = tmp_path.glob("files-*")
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    other = start()
    try:
        (used,) = tmp_path.glob("files-*")
        assert used != left
        mine = make_temporary_folder("files-", tmp_path)
        assert set(tmp_path.glob("files-*")) == {used, mine} and mine.stat().st_mode & 0o77 == 0
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)


def test_the_last_of_several_processes_deletes_their_folder(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.close(writing)
            folder = make_temporary_folder("files-", tmp_path)
            if other := os.fork():
                os.waitpid(other, 0)  # which is not the last
                (tmp_path / "first").touch()
                os.read(reading, 1)
            delete_if_last(folder)
        finally:
            os._exit(0)
    os.close(reading)
    wait_until((tmp_path / "first").exists)
    assert any(tmp_path.glob("files-*"))
    os.close(writing)
    os.waitpid(process, 0)
    assert not any(tmp_path.glob("files-*"))


def test_a_temporary_folder_lasts_as_long_as_its_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    downloads = Downloads()
    assert downloads.delete_old() == 0 and not any(tmp_path.iterdir())
    assert downloads.path(downloads.save(b"red bird", "a b", ".TXT")).read_bytes() == b"red bird"
    assert downloads.delete_old() == 8
    downloads.close()
    assert not any(tmp_path.iterdir())
