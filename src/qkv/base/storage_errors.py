"""Errors of disks and object stores as one line each; which of them pass by themselves."""

from pathlib import Path

from qkv.base.errors import StorageError

RIGHTS_ERRORS = ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError", "NoAuthTokenError")
# Packages whose errors are those of a request.
CLIENT_PACKAGES = ("aiohttp", "aiobotocore", "botocore", "gcsfs", "google", "requests", "urllib3")


class MissingObjectError(StorageError):
    """There is no file or object at a location."""


def find_refusal(url: str, error: Exception) -> StorageError | None:
    """Return the line for an error that another try would meet again; None for a transient one. A bug is raised as it is."""
    # fsspec calls every failed answer of the web a missing file.
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception) and _is_client(error.__cause__):
        error = error.__cause__
    status = getattr(error, "status", None) or getattr(error, "code", None)
    if "bucket does not exist" in str(error):
        return MissingObjectError(f"{url}: there is no such bucket; check the address")
    if isinstance(error, FileNotFoundError) or status == 404:
        return MissingObjectError(f"{url}: no such file")
    if isinstance(error, IsADirectoryError | NotADirectoryError):
        return MissingObjectError(f"{url}: is a folder, a file is wanted")
    if isinstance(error, PermissionError) or status in (401, 403) or type(error).__name__ in RIGHTS_ERRORS:
        return StorageError(f"{url}: no rights there: {describe(error)}; check the credentials (docs/scale.md)")
    if isinstance(status, int) and 400 <= status < 500 and status not in (408, 429):
        return StorageError(f"{url}: refused: {describe(error)}")
    if isinstance(error, OSError | EOFError) or _is_client(error):
        return None
    raise error


def _is_client(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in CLIENT_PACKAGES


def describe(error: Exception) -> str:
    """Return the message of an error in one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def local_error(location: str | Path, error: OSError) -> StorageError:
    """Return the line for a local file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return MissingObjectError(f"{location}: no such file")
    if isinstance(error, PermissionError):
        return StorageError(f"{location}: not allowed to read it; change its permissions")
    return StorageError(f"{location}: cannot be read: {error.strerror or error}")
