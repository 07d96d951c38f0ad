"""What every request passes, whatever it asks: the names the service goes by, headers for browsers, counts, a line in the log."""

import json
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from qkv.serving.refusals import Gone, Refusal
from qkv.serving.service import Service

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
GONE = 499  # in logs and counts: the client hung up before it was answered


def error_body(path: str, refusal: Refusal) -> bytes:
    """A refusal as the clients of that path read it."""
    if path.startswith("/v1/"):
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "server_error")
        told: Any = {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code}
        return json.dumps({"error": told}).encode()
    return json.dumps({"error": refusal.message, "code": refusal.code}).encode()


def error_headers(refusal: Refusal) -> dict[str, str]:
    """Headers that a refusal has beside those of all answers."""
    headers = {"content-type": "application/json"}
    if refusal.retry_after is not None:
        headers["retry-after"] = str(refusal.retry_after)
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    if refusal.status in (408, 413):  # what is left of the body is not read
        headers["connection"] = "close"
    return headers


class Gate:
    """An ASGI application around another."""

    def __init__(self, app: App, service: Service):
        self.app, self.service = app, service

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await Passage(self.service, scope, send).through(self.app, receive)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)


class Passage:
    """One request on its way through."""

    def __init__(self, service: Service, scope: MutableMapping[str, Any], send: Send):
        self.service, self.scope, self._send = service, scope, send
        self.status, self.started = 0, time.monotonic()

    async def through(self, app: App, receive: Receive) -> None:
        self.scope.setdefault("state", {})
        try:
            self._check_host()
            self._check_origin()
            await app(self.scope, receive, self.send)
        except Gone:
            self.status = GONE
        except Refusal as refusal:
            await self._refuse(refusal)
        except Exception as error:
            # The words of an error may be a user's; where it happened is ours.
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s in %s %s:\n%s", type(error).__name__, self.scope["method"], self.path, where)
            await self._refuse(Refusal(500, "internal", "something went wrong here; the log says where"))
        finally:
            self._note()

    async def send(self, message: Message) -> None:
        """Pass on what is answered, with the headers that all answers have."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            known = {name.lower() for name, _ in message.get("headers", [])}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in known]
            if self.service.stopping:
                more.append((b"connection", b"close"))
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await self._send(message)

    async def _refuse(self, refusal: Refusal) -> None:
        if self.status:  # an answer is under way already
            return
        body = error_body(self.scope["path"], refusal)
        headers = {**error_headers(refusal), "content-length": str(len(body))}
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": refusal.status, "headers": encoded})
        await self.send({"type": "http.response.body", "body": body})

    def _check_host(self) -> None:
        """Refuse to be asked under a name that is not ours: so a web page's own name cannot be pointed at this machine."""
        hosts = self.service.settings.hosts
        given = self._header(b"host")
        name = given.rsplit(":", 1)[0] if not given.endswith("]") else given
        if hosts and name.lower().strip("[]") not in hosts:
            raise Refusal(421, "wrong_host", "the service does not go by that name; allow it with --host-name")

    def _check_origin(self) -> None:
        """Refuse what the pages of others let a browser send; they could not read the answer, but make us work."""
        origin, host = self._header(b"origin"), self._header(b"host")
        allowed = {"", f"http://{host}", f"https://{host}", *self.service.settings.origins}
        if self.scope["method"] == "POST" and origin not in allowed and "*" not in allowed:
            raise Refusal(403, "wrong_origin", "pages of other sites may not ask; allow one with --origin")

    def _header(self, wanted: bytes) -> str:
        return next((value.decode("latin-1") for name, value in self.scope["headers"] if name == wanted), "")

    @property
    def path(self) -> str:
        """The path as it is known here; what is not known may be anybody's text."""
        route = self.scope.get("route")
        return getattr(route, "path", None) or "other"

    def _note(self) -> None:
        seconds = time.monotonic() - self.started
        self.service.metrics.request(self.path, self.status or GONE, seconds)
        if self.service.settings.logs != "none":
            state = self.scope["state"]
            more = " ".join(f"{name}={state[name]}" for name in ("who", "model") if state.get(name))
            log.info("%s %s %d %.0f ms %s", self.scope["method"], self.path, self.status or GONE, 1000 * seconds, more)
