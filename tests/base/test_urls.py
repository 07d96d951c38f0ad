"""Locations: local paths and URLs behave alike; faults are tried again, then become one line, and leave nothing half-written."""

import os
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from object_store import BUCKET, BUSY, CUT, FORBIDDEN, RESET, SLOW, ObjectStore
from qkv.base import urls
from qkv.base.errors import StorageError
from qkv.data.cache import cached_digest
from qkv.text.input_files import UrlFile

CONTENT = bytes(range(256)) * 40


@pytest.fixture(params=["local", "memory", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        request.getfixturevalue("store")
        return f"s3://{BUCKET}/{tmp_path.name}"
    return str(tmp_path) if request.param == "local" else f"memory://{tmp_path.name}"


def test_locations_behave_alike(folder: str, tmp_path: Path) -> None:
    one, two = urls.join(folder, "part-1.bin"), urls.join(folder, "part-2.txt")
    assert not urls.exists(one) and urls.list_files(one) == [] and urls.list_files(urls.join(folder, "*.bin")) == []
    (tmp_path / "source").write_bytes(CONTENT)
    urls.write_object(one, tmp_path / "source")
    urls.write_object(two, b"two")
    (tmp_path / "source").unlink()
    assert urls.exists(one) and not urls.exists(folder)
    assert {urls.file_name(file) for file in urls.list_files(folder)} == {"part-1.bin", "part-2.txt"}
    assert [urls.file_name(file) for file in urls.list_files(urls.join(folder, "*.bin"))] == ["part-1.bin"]
    with urls.open_binary(urls.list_files(one)[0]) as file:
        file.seek(255)
        assert file.read(3) == CONTENT[255:258] and file.tell() == 258
        assert file.read() == CONTENT[258:]
    before = urls.find_info(two)
    assert before.size == 3
    urls.write_object(two, b"new")
    assert urls.find_info(two).tag != before.tag
    urls.fetch(one, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    urls.delete_object(one)
    urls.delete_object(one)
    assert not urls.exists(one)
    with pytest.raises(urls.MissingObjectError, match=r"part-1\.bin: no such file"):
        urls.read_bytes(one)


def test_large_objects_are_read_by_ranges(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "BLOCK", 1000)
    url = f"s3://{BUCKET}/ranges"
    urls.write_object(url, CONTENT)
    store.requests.clear()
    with urls.open_binary(url) as file:
        file.seek(5000)
        assert file.read(10) == CONTENT[5000:5010]
    assert [method for method, _ in store.requests] == ["HEAD", "GET", "HEAD"]


@pytest.mark.parametrize("folder", ["memory", "s3"], indirect=True)
def test_an_object_that_is_replaced_while_it_is_read_is_refused(folder: str) -> None:
    url = urls.join(folder, "replaced")
    urls.write_object(url, b"old " * 500)
    with urls.open_binary(url, 1000) as file:
        assert file.read(1000) == b"old " * 250
        urls.write_object(url, b"new " * 500)  # of the same size
        with pytest.raises(StorageError, match="replaced: was replaced while it was read; run the same command again"):
            file.read()


@pytest.mark.parametrize("fault", [BUSY, CUT, RESET, SLOW])
def test_passing_faults_are_tried_again(store: ObjectStore, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"s3://{BUCKET}/{fault}"
    if fault == SLOW:
        monkeypatch.setattr(urls, "TIMEOUT", 0.5)
    store.faults.extend([fault, fault])
    urls.write_object(url, CONTENT)
    store.only = "GET"
    store.faults.extend([fault, fault])
    assert urls.read_bytes(url) == CONTENT
    assert not store.faults


@pytest.mark.parametrize("fault", [BUSY, CUT, RESET])
def test_lasting_faults_are_one_line(store: ObjectStore, fault: str, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/lasting-{fault}"
    urls.write_object(url, CONTENT)
    store.only, store.always = "GET", fault
    with pytest.raises(StorageError, match=rf"lasting-{fault}: not reached in {urls.TRIES} tries: .*again later$") as found:
        urls.fetch(url, tmp_path / "copy")
    assert "\n" not in str(found.value)
    assert list(tmp_path.iterdir()) == []
    store.only, store.always, new = "PUT", BUSY, f"s3://{BUCKET}/new-{fault}"
    with pytest.raises(StorageError, match="not reached"):
        urls.write_object(new, CONTENT)
    store.reset()
    assert not urls.exists(new)


def test_missing_rights_are_not_tried_again(store: ObjectStore) -> None:
    store.always = FORBIDDEN
    for ask in (urls.exists, urls.read_bytes, urls.list_files, lambda url: urls.write_object(url, b"")):
        store.requests.clear()
        with pytest.raises(StorageError, match=f"s3://{BUCKET}/secret: no rights there: .*check the credentials"):
            ask(f"s3://{BUCKET}/secret")
        assert len(store.requests) <= 2


def test_a_missing_bucket_is_named(store: ObjectStore) -> None:
    with pytest.raises(urls.MissingObjectError, match="s3://none/file: there is no such bucket; check the address"):
        urls.write_object("s3://none/file", b"")
    assert not urls.exists("s3://none/file") and urls.list_files("s3://none/*") == []


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match=r"foo://x: .*give s3://"):
        urls.exists("foo://x")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    for url, extra in ("s3://bucket/a", "cluster"), ("memory://a", "data"):
        with pytest.raises(StorageError, match=rf"{url}: URLs need fsspec; pip install 'qkv\[{extra}\]'"):
            urls.exists(url)


def test_the_web_is_read_and_not_written(store: ObjectStore) -> None:
    urls.write_object(f"s3://{BUCKET}/page", CONTENT)
    url = f"{store.address}/{BUCKET}/page"
    assert urls.list_files(url) == [url] and urls.read_bytes(url) == CONTENT
    assert urls.find_info(url).tag == urls.find_info(f"s3://{BUCKET}/page").tag
    with pytest.raises(urls.MissingObjectError, match="no such file"):
        urls.read_bytes(f"{url}-not")
    with pytest.raises(StorageError, match="cannot be written"):
        urls.write_object(url, b"")


class _PlainHandler(SimpleHTTPRequestHandler):
    """Files of a folder, whole whatever range is asked for, with a date and without an etag."""

    def log_message(self, *_: Any) -> None:
        pass


def test_a_server_without_ranges_and_etags_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "FIRST_WAIT", 0.001)
    for name in "ab":
        (tmp_path / name).write_bytes(CONTENT)
        os.utime(tmp_path / name, (1e9, 1e9))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_PlainHandler, directory=str(tmp_path))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        one, two = (f"http://127.0.0.1:{server.server_port}/{name}" for name in "ab")
        with urls.open_binary(one, 1000) as file:
            file.seek(5000)
            assert file.read(10) == CONTENT[5000:5010] and file.read() == CONTENT[5010:]
        with urls.open_binary(one, 1000) as file:
            os.utime(tmp_path / "a", (2e9, 2e9))
            with pytest.raises(StorageError, match="was replaced while it was read"):
                file.read(1)
        assert cached_digest(UrlFile(two)) == cached_digest(UrlFile(two)) != cached_digest(UrlFile(one))
        os.utime(tmp_path / "a", (1e9, 1e9))  # two files of one size and date are two files
        assert cached_digest(UrlFile(two)) != cached_digest(UrlFile(one))
        server.shutdown()


def test_an_object_that_was_replaced_before_it_is_fetched_is_refused(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/replaced"
    urls.write_object(url, b"old")
    tag = urls.find_info(url).tag
    urls.fetch(url, tmp_path / "copy", tag)
    urls.write_object(url, b"new")
    with pytest.raises(StorageError, match="was replaced while it was read"):
        urls.fetch(url, tmp_path / "copy", tag)
    assert (tmp_path / "copy").read_bytes() == b"old"
