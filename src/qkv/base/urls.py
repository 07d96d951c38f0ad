"""Files on a disk or an object store: a location is a local path or a URL that fsspec can open (s3://, gs://, https://, memory://).

Objects are read by ranges, and one that is replaced meanwhile is refused. Transient faults (a busy server, a connection that
breaks, an answer that is cut off) are tried again; what remains becomes one line (StorageError). An object is written whole or
not at all. Local paths need no package.
"""

import contextlib
import io
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from qkv.base.errors import StorageError
from qkv.base.files import atomic_file, digest
from qkv.base.storage_errors import MissingObjectError, describe, find_refusal, local_error

S = TypeVar("S")
T = TypeVar("T")
Location = str | Path

BLOCK = 8 << 20  # bytes read from a store at once
TRIES = 5  # of one request
FIRST_WAIT = 0.5  # seconds before the second try; each further wait is twice as long
AT_ONCE = 32  # requests for small things
TIMEOUT = 60  # seconds without a byte, after which a request has failed
EXTRAS = {"s3": "cluster", "s3a": "cluster"}  # extras of qkv that bring a protocol's package, beside `data`
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # of two letters or more: C:// is a drive


class ObjectInfo(NamedTuple):
    """Size and identity of a file or an object."""

    size: int | None  # None where a server does not say
    tag: str  # changes with the content: an etag, or a hash of a local file; "" where a server does not say


def is_url(location: Location) -> bool:
    """Return whether a location is a URL; all else is a local path."""
    return isinstance(location, str) and _SCHEME.match(location) is not None


def join(location: Location, *names: str) -> str:
    """Return the location of a file below a folder."""
    return "/".join([str(location).rstrip("/"), *names]) if is_url(location) else str(Path(location, *names))


def file_name(location: Location) -> str:
    """Return the last part of a location, without the query of a URL."""
    return re.sub(r"[?#].*", "", str(location)).rstrip("/").rpartition("/")[2] if is_url(location) else Path(location).name


def open_binary(location: Location, block: int | None = None) -> BinaryIO:
    """Open a file for reading bytes, with seeking; a URL is read by ranges of `block` bytes."""
    if is_url(location):
        return io.BufferedReader(_RemoteFile(str(location)), block or BLOCK)
    try:
        return Path(location).open("rb")
    except OSError as error:
        raise local_error(location, error) from None


def read_bytes(location: Location) -> bytes:
    """Return the content of a small file; of a URL by one request."""
    if is_url(location):
        return _request(str(location), lambda system, path: bytes(system.cat_file(path)))
    with open_binary(location) as file:
        return file.read()


def read_files(folder: Location) -> dict[str, bytes]:
    """Return the content of the small files of a folder, by their names."""
    files = list_files(folder)
    return dict(zip(map(file_name, files), ask_at_once(read_bytes, files), strict=True))


def ask_at_once(ask: Callable[[S], T], items: Sequence[S], remote: bool = True) -> list[T]:
    """Ask for many small things at the same time, for a store takes long to answer and serves many; a disk one by one."""
    if not remote:
        return list(map(ask, items))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, items))


def list_files(pattern: Location) -> list[str]:
    """Return the files that a path, a folder or a glob names, sorted; none where there are none."""
    if not is_url(pattern):
        return _list_local(Path(pattern))
    url = str(pattern)

    def find(system: Any, path: str) -> list[str]:
        system.invalidate_cache()
        # In an address of the web, a question mark begins a query.
        if any(sign in path for sign in ("*[" if url.startswith("http") else "*[?")):
            found = [path for path, info in system.glob(path, detail=True).items() if info["type"] == "file"]
        elif url.startswith("http") or system.info(path)["type"] == "file":
            found = [path]
        else:
            found = list(system.find(path, maxdepth=1))
        return sorted(system.unstrip_protocol(path) for path in found)

    try:
        return _request(url, find)
    except MissingObjectError:
        return []


def find_info(location: Location) -> ObjectInfo:
    """Return size and tag of a file."""
    if not is_url(location):
        try:
            return ObjectInfo(Path(location).stat().st_size, digest(Path(location)))
        except OSError as error:
            raise local_error(location, error) from None
    return _object_info(_request(str(location), _fresh_info))


def exists(location: Location) -> bool:
    """Return whether there is a file or an object; no rights to see it is an error."""
    if not is_url(location):
        return Path(location).is_file()
    try:
        return bool(_request(str(location), _fresh_info)["type"] == "file")
    except MissingObjectError:
        return False


def refuse_read_only(location: Location) -> None:
    """Refuse a location that cannot be written: an address of the web."""
    if is_url(location) and str(location).lower().startswith("http"):
        raise StorageError(f"{location}: an address of the web cannot be written; give a local folder, s3:// or gs://")


def write_object(location: Location, data: bytes | Path) -> None:
    """Write bytes, or the content of a local file, to a location: whole, or not at all."""
    if not is_url(location):
        with atomic_file(Path(location)) as aside:
            if isinstance(data, Path):
                shutil.copyfile(data, aside)
            else:
                aside.write_bytes(data)
        return
    url = str(location)
    refuse_read_only(url)
    # An object of a store appears when its only request, or the last one of several parts, has succeeded.
    if isinstance(data, Path):
        _request(url, lambda system, path: system.put_file(str(data), path))
    else:
        _request(url, lambda system, path: system.pipe_file(path, data))


def fetch(location: Location, path: Path, tag: str = "") -> None:
    """Copy a file to a local path, which appears when it is complete; an object with another tag than `tag` is refused."""
    with open_binary(location) as file, atomic_file(path) as aside, aside.open("wb") as copy:
        if tag and find_info(location).tag != tag:
            raise replaced_error(location)
        shutil.copyfileobj(file, copy, BLOCK)


def replaced_error(location: Location) -> StorageError:
    """Return the line for a file of which some was read before, and some after it was replaced."""
    return StorageError(f"{location}: was replaced while it was read; run the same command again")


def delete_object(location: Location) -> None:
    """Delete a file or an object; a missing one is no error."""
    if not is_url(location):
        with contextlib.suppress(FileNotFoundError):
            Path(location).unlink()
        return
    with contextlib.suppress(MissingObjectError):
        _request(str(location), lambda system, path: system.rm_file(path))


class _RemoteFile(io.RawIOBase):
    """An object that is read by ranges; a server that does not offer ranges sends it whole, and it is held in memory."""

    def __init__(self, url: str):
        self.url = url
        found = _request(url, _fresh_info)
        if found["type"] != "file":
            raise MissingObjectError(f"{url}: is a folder; name a file, or a pattern such as {url.rstrip('/')}/*")
        self.info = _object_info(found)
        self.whole: bytes | None = None
        if found.get("size") is None or not found.get("partial", True):
            self.whole = _request(url, lambda system, path: bytes(system.cat_file(path)))
        self.size = int(found["size"]) if self.whole is None else len(self.whole)
        self.position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.position = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence])
        return self.position

    def tell(self) -> int:
        return self.position

    def readinto(self, buffer: Any) -> int:
        start, stop = self.position, min(self.size, self.position + len(buffer))
        if stop <= start:
            return 0
        buffer[: stop - start] = self._range(start, stop) if self.whole is None else self.whole[start:stop]
        self.position = stop
        return stop - start

    def _range(self, start: int, stop: int) -> bytes:
        def read(system: Any, path: str) -> bytes:
            found = bytes(system.cat_file(path, start=start, end=stop))
            if len(found) == self.size > stop - start:  # some servers ignore ranges without saying so
                self.whole = found
                return found[start:stop]
            if len(found) != stop - start:
                raise EOFError(f"{len(found):,} of {stop - start:,} bytes came")
            return found

        try:
            return _request(self.url, read)
        finally:
            # The size and the ranges before this one are those of the object that was opened.
            if _object_info(_request(self.url, _fresh_info)) != self.info:
                raise replaced_error(self.url)


def _fresh_info(system: Any, path: str) -> dict[str, Any]:
    system.invalidate_cache()
    return dict(system.info(path))


def _object_info(found: dict[str, Any]) -> ObjectInfo:
    names = ("ETag", "etag", "md5Hash", "crc32c", "LastModified", "Last-Modified", "mtime", "created")
    tag = next((str(found[name]) for name in names if found.get(name)), "")
    return ObjectInfo(found.get("size"), f"{tag.strip(chr(34))}-{found.get('size')}" if tag else "")


def _request(url: str, ask: Callable[[Any, str], T]) -> T:
    """Ask a store, several times if it fails in passing, and turn what remains into a line."""
    system, path = _file_system(url)
    for number in range(TRIES):
        if number:
            time.sleep(FIRST_WAIT * 2 ** (number - 1))
        try:
            return ask(system, path)
        except Exception as error:
            refusal = find_refusal(url, error)
            if refusal is not None:
                raise refusal from None
            last = error
    raise StorageError(f"{url}: not reached in {TRIES} tries: {describe(last)}; run the same command again later") from None


def _file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path there."""
    found = _SCHEME.match(url)
    assert found is not None
    protocol = found[1].lower()
    try:
        import fsspec
    except ImportError:
        raise StorageError(f"{url}: URLs need fsspec; pip install 'qkv[{EXTRAS.get(protocol, 'data')}]'") from None
    options: dict[str, Any] = {"use_listings_cache": False}
    if protocol in ("s3", "s3a"):
        # Requests are repeated here, so that all protocols behave the same.
        config = {"connect_timeout": TIMEOUT, "read_timeout": TIMEOUT, "retries": {"total_max_attempts": 1}}
        options |= {"config_kwargs": config, "default_cache_type": "none"}
    try:
        system, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        package = f"'qkv[{EXTRAS[protocol]}]'" if protocol in EXTRAS else "the package that its message names"
        raise StorageError(f"{url}: {protocol}:// needs another package: {describe(error)}; pip install {package}") from None
    except ValueError as error:
        raise StorageError(f"{url}: {describe(error)}; give s3://, gs://, https:// or a local path") from None
    if protocol in ("s3", "s3a"):
        system.retries = 1
    return system, path


def _list_local(path: Path) -> list[str]:
    path = path.expanduser()
    if path.is_dir():
        return sorted(str(file) for file in path.iterdir() if _is_file(file))
    if path.is_file():
        return [str(path)]
    root = Path(path.anchor)
    pattern = str(path.relative_to(root)) if path.anchor else str(path)
    return sorted(str(file) for file in root.glob(pattern) if _is_file(file))


def _is_file(path: Path) -> bool:
    """Return whether a path is a file, or a link to one that is gone, which is to be reported when it is read."""
    return path.is_file() or (path.is_symlink() and not path.exists())
