"""Parts of the cache that machines can share: folders of files named by a digest of what they are made from.

`QKV_CACHE` is a folder, or a URL of an object store. A part is complete once its last file is there, which describes the others;
it is never changed, so that any number of machines may read and write the same cache.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from qkv.base.errors import StorageError
from qkv.base.files import atomic_folder
from qkv.base.urls import MissingObjectError, ask_at_once, is_url, join, read_bytes, refuse_read_only, write_object
from qkv.data.cache import cache_folder, cache_root, file_fingerprint
from qkv.data.copies import copy_path, delete_copies, local_copy

FEW = 16  # parts that are read each time
META = "meta.json"  # the last file of most parts
TRIES = 3  # to open a copy that is damaged, or that another process deletes to stay within the bound
T = TypeVar("T")


class Part:
    """A folder of the cache: its files, and `last`, which is written after them and says how large they are."""

    def __init__(self, kind: str, key: str, last: str = META):
        self.remote = is_url(cache_root())
        self.location = join(cache_root(), kind, key)
        self.kind, self.key, self.last = kind, key, last

    def __str__(self) -> str:
        return self.location

    def meta(self) -> dict[str, Any] | None:
        """Return the content of the last file; None where the part is absent, cut off or otherwise not as it was written."""
        try:
            found = json.loads(read_bytes(join(self.location, self.last)))
            files = found["files"]
            if not files and self.last == META:
                return None
            if not self.remote and any(Path(self.location, name).stat().st_size != size for name, (size, _) in files.items()):
                return None
            return found
        except (MissingObjectError, OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def open(self, name: str, opener: Callable[[Path], T], fingerprint: list[Any] | None = None, thorough: bool = False) -> T:
        """Return what `opener` makes of a file on this machine, fetched if the cache is elsewhere.

        A file without its fingerprint is refused.
        """
        for _ in range(TRIES):
            path = local_copy(join(self.location, name)) if self.remote else Path(self.location, name)
            try:
                if fingerprint is None or file_fingerprint(path, thorough) == [*fingerprint]:
                    return opener(path)
                damaged = True
            except FileNotFoundError:
                damaged = False
            if not self.remote:
                break
            if damaged:  # perhaps the copy alone
                path.unlink(missing_ok=True)
        raise StorageError(f"{join(self.location, name)}: missing or damaged; run qkv prepare, then the same command again")

    def is_damaged(self, thorough: bool) -> bool:
        """Return whether a file has another content than when it was written; reads all of them if `thorough`."""
        found = self.meta()
        try:
            for name, fingerprint in found["files"].items() if found else ():
                self.open(name, Path.exists, fingerprint, thorough)
            return found is None
        except StorageError:
            return True

    def make(self, fill: Callable[[Path], dict[str, Any]]) -> None:
        """Let `fill` write the files into a folder and return what the last one is to say, beside their fingerprints."""
        refuse_read_only(self.location)

        def write(folder: Path) -> None:
            meta = fill(folder)
            files = {path.name: file_fingerprint(path, thorough=True) for path in sorted(folder.iterdir())}
            (folder / self.last).write_text(json.dumps({**meta, "files": files}, indent=1))

        if not self.remote:
            with atomic_folder(Path(self.location)) as aside:
                write(aside)
            return
        made = cache_folder() / "uploads" / f"{self.kind}-{self.key}"
        with atomic_folder(made) as aside:
            write(aside)
        for path in sorted(made.iterdir(), key=lambda path: (path.name == self.last, path.name)):
            url = join(self.location, path.name)
            write_object(url, path)
            copy_path(url).parent.mkdir(parents=True, exist_ok=True)
            path.replace(copy_path(url))
            delete_copies(copy_path(url))
        made.rmdir()


def find_missing(parts: Sequence[Part], thorough: bool = False) -> set[int]:
    """Return the numbers of the parts that are absent or damaged.

    All are read to find damage if the work is `thorough`. Otherwise a few on this machine are, except large files that have not
    changed since they were read; of many parts the sizes are compared.
    """
    few = len(parts) <= FEW and not (len(parts) > 1 and any(part.remote for part in parts))
    if thorough or few:
        return {number for number, part in enumerate(parts) if part.is_damaged(thorough)}
    return {number for number, meta in enumerate(find_metas(parts)) if meta is None}


def find_metas(parts: Sequence[Part]) -> list[dict[str, Any] | None]:
    """Return what the last file of each part says, None where one is missing or damaged."""
    return ask_at_once(Part.meta, parts, any(part.remote for part in parts))
