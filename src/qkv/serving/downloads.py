"""Translated files that wait for their download: in a folder, so that all workers of a service know them, and not for long."""

import re
import secrets
import shutil
import tempfile
import time
from pathlib import Path

from qkv.base.files import atomic_file
from qkv.serving.errors import RequestError

SECONDS = 600  # until a file is deleted
MOST_BYTES = 200_000_000  # of all files together
NAME = re.compile(r"[0-9a-f]{32}\.[\w-]{1,80}\.\w{1,10}")


class Downloads:
    """Files under names that cannot be guessed."""

    def __init__(self, folder: str | None = None):
        """`folder` exists and is shared with others; without one, a temporary folder is made and deleted at the end."""
        self.shared = folder
        self._folder: Path | None = None if folder is None else Path(folder)

    def save(self, content: bytes, stem: str, suffix: str) -> str:
        """Store a file and return its name for `path`; raise if there is no room."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="qkv-downloads-"))
        kept = self._delete_old(self._folder)
        if kept + len(content) > MOST_BYTES:
            raise RequestError(429, "busy", "too many translated files wait for their download", retry_after=60)
        name = f"{secrets.token_hex(16)}.{re.sub(r'[^A-Za-z0-9_-]+', '-', stem)[:60] or 'file'}{suffix.lower()}"
        with atomic_file(self._folder / name) as path:
            path.write_bytes(content)
        return name

    def path(self, name: str) -> Path:
        """Return the file of a name; raise if there is none, or no longer."""
        path = self._folder / name if self._folder is not None and NAME.fullmatch(name) else None
        if path is None or not path.is_file() or time.time() - path.stat().st_mtime > SECONDS:
            raise RequestError(404, "not_found", f"there is no such file; translated files are kept for {SECONDS // 60} minutes")
        return path

    def close(self) -> None:
        """Delete the temporary folder."""
        if self._folder is not None and self.shared is None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _delete_old(self, folder: Path) -> int:
        """Delete files that nobody fetched in time; return the bytes of the others."""
        kept = 0
        for path in folder.iterdir():
            try:
                found = path.stat()
            except FileNotFoundError:  # another worker was first
                continue
            if time.time() - found.st_mtime > SECONDS:
                path.unlink(missing_ok=True)
            else:
                kept += found.st_size
        return kept
