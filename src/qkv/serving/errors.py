"""Errors that end a request: an HTTP status, a short code and one line of text."""

import json
import logging
import math

from qkv.base.errors import ConfigError, DataError, QkvError

log = logging.getLogger("qkv.serving")


class RequestError(Exception):
    """A request that cannot be answered, and the reason."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None, retry_after: int | None = None):
        super().__init__(message)
        self.status, self.code, self.message, self.param, self.retry_after = status, code, message, param, retry_after


class ClientGone(Exception):
    """The client closed the connection before it was answered."""


def invalid(message: str, param: str | None = None, code: str = "invalid_value") -> RequestError:
    """Return the error for a request that asks for something impossible."""
    return RequestError(400, code, message, param)


def as_request_error(error: QkvError) -> RequestError:
    """Return the error for a request whose texts or options cannot be used; anything else is a fault of the service."""
    if isinstance(error, DataError | ConfigError):
        return invalid(error.message, None, "unsuitable")
    log.error("%s", error)
    return internal_error()


def queue_full(queue: int) -> RequestError:
    """Return the error for a request that finds the queue full."""
    return RequestError(429, "busy", f"{queue:,} requests are waiting already; try again in a moment", retry_after=1)


def no_turn(limit: float) -> RequestError:
    """Return the error for a request whose turn did not come in time."""
    return RequestError(429, "time_limit", f"no turn came within {limit:g} s; try again in a moment", retry_after=2)


def overloaded(expected: float, wait: float) -> RequestError:
    """Return the error for a request that would wait too long, with the seconds to its answer and those until there is room."""
    retry = max(1, math.ceil(wait))
    message = f"much is waiting: the answer would take about {expected:.0f} s; try again in {retry} s"
    return RequestError(429, "busy", message, retry_after=retry)


def too_much_work(expected: float, limit: float) -> RequestError:
    """Return the error for a request that takes too long even if nobody else asks for anything."""
    message = f"the answer would take about {expected:.0f} s even alone, and {limit:g} s are the limit; send less at a time"
    return RequestError(422, "time_limit", message)


def internal_error() -> RequestError:
    """Return the error for a fault of the service; it must not repeat the exception's message, which may hold a user's text."""
    return RequestError(500, "internal", "something went wrong here; the log says where")


def device_failed() -> RequestError:
    """Return the error for a request that was not answered because the GPU failed; another process takes over."""
    message = "the device failed, and the service starts anew; ask again in a moment"
    return RequestError(503, "device_failed", message, retry_after=10)


def error_body(path: str, error: RequestError) -> bytes:
    """Return an error in the format of the path's API: OpenAI's under /v1/, LibreTranslate's elsewhere."""
    if path.startswith("/v1/"):
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
        details = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
        return json.dumps({"error": details}).encode()
    return json.dumps({"error": error.message, "code": error.code}).encode()


def error_headers(error: RequestError) -> dict[str, str]:
    """Return the headers that an error adds to those of all responses."""
    headers = {"content-type": "application/json"}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.status in (408, 413):  # the rest of the body is not read
        headers["connection"] = "close"
    return headers
