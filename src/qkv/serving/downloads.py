"""Translated files that wait for their download: in a folder, so that all workers of a service know them, and not for long."""

import contextlib
import errno
import logging
import re
import secrets
import shutil
import time
from pathlib import Path

from qkv.base.errors import QkvError
from qkv.base.files import atomic_file
from qkv.serving.errors import RequestError, internal_error
from qkv.serving.temporary_folder import make_temporary_folder

log = logging.getLogger("qkv.serving")
PREFIX = "qkv-serve-files-"  # of temporary folders
SECONDS = 600  # in which a file can be fetched
GRACE = 30  # seconds until it is deleted, for those who have begun
MOST_BYTES = 200_000_000  # of all files together
NAME = re.compile(r"[0-9a-f]{32}\.[\w-]{1,80}\.\w{1,10}")
OURS = re.compile(rf"{NAME.pattern}|\.{NAME.pattern}\..*\.partial")  # in a folder that may hold other files


class Downloads:
    """Files under names that cannot be guessed."""

    def __init__(self, folder: str | None = None):
        """`folder` may be shared with others; without one, a temporary folder is made and deleted at the end."""
        self.shared = folder
        self._folder: Path | None = None if folder is None else Path(folder)

    def save(self, content: bytes, stem: str, suffix: str) -> str:
        """Store a file and return its name for `path`; raise if there is no room."""
        if self.delete_old() + len(content) > MOST_BYTES:
            raise RequestError(429, "busy", "too many translated files wait for their download", retry_after=60)
        name = f"{secrets.token_hex(16)}.{re.sub(r'[^A-Za-z0-9_-]+', '-', stem)[:60] or 'file'}{suffix.lower()}"
        try:
            self._folder = self._folder or make_temporary_folder(PREFIX)
            with atomic_file(self._folder / name) as path:
                path.write_bytes(content)
        except (OSError, QkvError) as error:
            reason = error if isinstance(error, OSError) else error.__cause__
            raise self._fault(reason if isinstance(reason, OSError) else OSError()) from None
        return name

    def _fault(self, reason: OSError) -> RequestError:
        """Log why a file cannot be stored, without its name; return the error for the client, who is not to blame."""
        log.error("translated files cannot be stored in %s: %s", self._folder or "a temporary folder", reason.strerror)
        if reason.errno not in (errno.ENOSPC, errno.EDQUOT):
            return internal_error()
        return RequestError(507, "no_space", "the service has no room for translated files; try again later", retry_after=60)

    def path(self, name: str) -> Path:
        """Return the file of a name; raise if there is none, or no longer."""
        if self._folder is not None and NAME.fullmatch(name):
            with contextlib.suppress(OSError):
                if time.time() - (self._folder / name).stat().st_mtime <= SECONDS:
                    return self._folder / name
        raise RequestError(404, "not_found", f"there is no such file; translated files are kept for {SECONDS // 60} minutes")

    def delete_old(self) -> int:
        """Delete files that nobody fetched in time; return the bytes of the others."""
        kept = 0
        with contextlib.suppress(OSError):  # no folder yet
            for path in self._folder.iterdir() if self._folder is not None else ():
                with contextlib.suppress(OSError):  # another worker was first
                    if not OURS.fullmatch(path.name):
                        continue
                    found = path.stat()
                    if time.time() - found.st_mtime > SECONDS + GRACE:
                        path.unlink()
                    else:
                        kept += found.st_size
        return kept

    def close(self) -> None:
        """Delete the temporary folder."""
        if self._folder is not None and self.shared is None:
            shutil.rmtree(self._folder, ignore_errors=True)
