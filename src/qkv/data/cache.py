"""The cache between runs: each part is named by a digest of its inputs, and one process at a time makes it."""

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from qkv.base.files import atomic_file, digest, write_error
from qkv.base.locks import lock_file
from qkv.base.storage_errors import local_error
from qkv.base.urls import ask_at_once, find_info, is_url, replaced_error
from qkv.text.input_files import UrlFile, WholeFile

VERSION = 3  # of the caches' contents; raise it whenever reading, checking or tokenising changes its result
LARGE = 64 << 20  # bytes of a file of the cache whose digest is not computed each time it is opened


def cache_root() -> str:
    """Return where the cache that machines can share is, a folder or a URL: QKV_CACHE, or the user's cache folder."""
    return os.environ.get("QKV_CACHE") or str(_home())


def cache_folder() -> Path:
    """Return the folder of the cache on this machine: `cache_root`, or the user's cache folder where that is a URL."""
    return _home() if is_url(cache_root()) else Path(cache_root())


def _home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qkv"


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Let one process at a time make a part of the cache; others wait until it is there."""
    path = cache_folder() / "locks" / folder.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        raise write_error(path, error) from None
    with lock:
        lock_file(lock)
        yield


def cache_key(parts: list[Any]) -> str:
    """Return the name of a part that is made from these values."""
    return blake2b(json.dumps([VERSION, *parts], sort_keys=True).encode(), digest_size=16).hexdigest()


def cached_digest(path: WholeFile) -> str:
    """Return the digest of a file, cached while its size and date stay the same, so that large corpora start at once.

    A remote file has the tag of its content that its server keeps; reading it all would take too long. Servers of the web make
    it of date and size: it tells apart the versions of one address, not two files.
    """
    if isinstance(path, UrlFile):
        if tag := find_info(path.location).tag:
            return f"{tag} {path.location}" if path.location.lower().startswith("http") else tag
        found = blake2b(digest_size=16)
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
        return found.hexdigest()
    stat = path.stat()
    note = cache_folder() / "digests" / cache_key([str(path.resolve()), stat.st_size, stat.st_mtime_ns])
    if note.exists() and re.fullmatch(rb"[0-9a-f]{32}", known := note.read_bytes()):
        return known.decode()
    known_digest = digest(path)
    with atomic_file(note) as aside:
        aside.write_text(known_digest)
    return known_digest


def cached_digests(paths: Sequence[WholeFile]) -> list[str]:
    """Return the digests of several files; stores are asked for theirs at the same time."""
    return ask_at_once(cached_digest, paths, any(isinstance(path, UrlFile) for path in paths))


def refuse_replaced(path: WholeFile, found: str) -> None:
    """Refuse a file that no longer has the digest that was found before it was read."""
    try:
        same = cached_digest(path) == found
    except OSError as error:
        raise local_error(str(path), error) from None
    if not same:
        raise replaced_error(str(path))


def file_fingerprint(path: Path, thorough: bool = False) -> list[str | int]:
    """Return size and digest of a file of the cache; a large one that has not changed is read again only if `thorough`."""
    size = path.stat().st_size
    return [size, digest(path) if thorough or size <= LARGE else cached_digest(path)]


@contextlib.contextmanager
def progress_bar(what: str, of: str, quiet: bool) -> Iterator[Any]:
    """Show a progress bar; yields a function that counts the items it passes on."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} " + of),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)

        def count(items: Iterable[Any]) -> Iterator[Any]:
            for number, item in enumerate(items, 1):
                if number % 1000 == 0:
                    progress.update(task, completed=number)
                yield item

        yield count
