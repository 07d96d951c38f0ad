"""Middleware around every request: checks of host and origin, security headers, metrics, and a line in the log."""

import logging
import re
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from qkv.serving.errors import ClientGone, RequestError, error_body, error_headers, internal_error
from qkv.serving.logs import choose_request_id, request_id
from qkv.serving.service import Service
from qkv.serving.settings import HOST

log = logging.getLogger("qkv.serving")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
HOST_HEADER = re.compile(rf"(?P<name>{HOST})(?::[0-9]{{0,5}})?", re.IGNORECASE)
HEALTH_CHECKS = ("/healthz", "/readyz")
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT")
CLIENT_GONE = 499  # in logs and metrics: the client disconnected before it was answered


class ServiceMiddleware:
    """ASGI middleware that handles each HTTP request in a `RequestContext`."""

    def __init__(self, app: App, service: Service):
        self.app, self.service = app, service

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await RequestContext(self.service, scope, send).run(self.app, receive)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)


class RequestContext:
    """One request on its way through the application."""

    def __init__(self, service: Service, scope: MutableMapping[str, Any], send: Send):
        self.method = scope["method"] if scope["method"] in METHODS else "other"  # for the log: a method may be any text
        # The server leaves the body of an answer to HEAD out, so the application need not know the method.
        self.scope = {**scope, "method": "GET"} if self.method == "HEAD" else scope
        self.service, self._send = service, send
        self.status, self.started = 0, time.monotonic()
        self.id = choose_request_id(self._header(b"x-request-id"))

    async def run(self, app: App, receive: Receive) -> None:
        """Check the request, let the application answer it, and turn every exception into a response."""
        self.scope.setdefault("state", {})
        request_id.set(self.id)
        try:
            self._check_connection()
            self._check_host()
            self._check_origin()
            await app(self.scope, receive, self.send)
        except ClientGone:
            self.status = CLIENT_GONE
        except RequestError as error:
            await self._send_error(error)
        except Exception as error:
            # The exception's message may hold a user's text; its traceback does not.
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s in %s %s:\n%s", type(error).__name__, self.method, self.path, where)
            await self._send_error(internal_error())
        finally:
            self._record()

    async def send(self, message: Message) -> None:
        """Pass on a message of the response; add the security headers to its start."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            known = {name.lower() for name, _ in message.get("headers", [])}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in known]
            more.append((b"x-request-id", self.id.encode()))
            if self.service.stopping or self.scope["state"].get("reserved") or self.service.surplus > 0:
                self.service.surplus -= 1
                more.append((b"connection", b"close"))
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await self._send(message)

    async def _send_error(self, error: RequestError) -> None:
        if self.status:  # a response has begun
            return
        body = error_body(self.scope["path"], error)
        headers = {**error_headers(error), "content-length": str(len(body))}
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": error.status, "headers": encoded})
        await self.send({"type": "http.response.body", "body": body})

    def _check_connection(self) -> None:
        """Refuse everything but health checks on a connection beyond the limits."""
        if self.scope["state"].get("reserved") and self.scope["path"] not in HEALTH_CHECKS:
            message = "too many connections are open, in all or from this address; close some or try again in a moment"
            raise RequestError(429, "too_many_connections", message, retry_after=1)

    def _check_host(self) -> None:
        """Refuse unknown host names: this prevents DNS rebinding, where a web page points its own name at this machine."""
        hosts, given = self.service.settings.hosts, self._header(b"host")
        found = HOST_HEADER.fullmatch(given)
        if given and not found:
            raise RequestError(400, "bad_host", "the Host header is not a name or an address with perhaps a port")
        name = found["name"].lower().strip("[]") if found else ""
        if hosts and name not in hosts:
            raise RequestError(421, "wrong_host", "the service does not go by that name; allow it with --name")

    def _check_origin(self) -> None:
        """Refuse POST requests from other sites' pages: they could not read the response, but would cause work."""
        origin, host = self._header(b"origin"), self._header(b"host")
        allowed = {"", f"http://{host}", f"https://{host}", *self.service.settings.origins}
        if self.scope["method"] == "POST" and origin not in allowed and "*" not in allowed:
            raise RequestError(403, "wrong_origin", "pages of other sites may not ask; allow one with --origin")

    def _header(self, wanted: bytes) -> str:
        return next((value.decode("latin-1") for name, value in self.scope["headers"] if name == wanted), "")

    @property
    def path(self) -> str:
        """The path of the matched route; an unknown path may hold a user's text, and is called `other`."""
        route = self.scope.get("route")
        return getattr(route, "path", None) or "other"

    def _record(self) -> None:
        """Count the request and log it."""
        seconds = time.monotonic() - self.started
        self.service.metrics.count_request(self.path, self.status or CLIENT_GONE, seconds)
        if self.service.settings.logs != "none":
            state = self.scope["state"]
            known = {name: state[name] for name in ("who", "model") if state.get(name)}
            fields = {"method": self.method, "path": self.path, "status": self.status or CLIENT_GONE, **known}
            more = "".join(f" {name}={value}" for name, value in known.items())
            log.info(
                "%s %s %d %.0f ms%s",
                *(fields[name] for name in ("method", "path", "status")),
                1000 * seconds,
                more,
                extra={"fields": {**fields, "seconds": round(seconds, 4)}},
            )
