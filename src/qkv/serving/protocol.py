"""HTTP/1.1 on one connection: uvicorn's protocol, stricter in what it reads, with limits on connections and slow clients."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from qkv.serving.addresses import plain_address
from qkv.serving.connections import ConnectionLimits, Place
from qkv.serving.errors import RequestError, error_body
from qkv.serving.metrics import Metrics
from qkv.serving.settings import ServiceSettings

MAX_HEADER_BYTES = 32_768  # of the request line and all headers
MAX_HEADERS = 200
MAX_CHUNKS = 20_000  # of one body; each costs a hundred times the time of a byte
RESERVED_SECONDS = 2.0  # in which a health check beyond the limits must arrive
LINGER = 1.0  # seconds in which the rest of a refused request is read, so that the client gets to read the answer
TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BAD_HTTP = RequestError(400, "bad_http", "this is not a valid HTTP/1.1 request")
LARGE_HEADERS = RequestError(
    431, "headers_too_large", f"the headers have more than {MAX_HEADER_BYTES:,} bytes or {MAX_HEADERS} lines"
)


class StrictConnection(h11.Connection):
    """h11's parser; it also refuses large headers that arrive at once, and requests whose length is ambiguous."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEADER_BYTES)
        self.error = BAD_HTTP  # for the client, once `next_event` has raised
        self.chunks = 0

    def next_event(self) -> Any:
        unread = len(self.trailing_data[0]) if self.their_state is h11.IDLE else 0
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.error = LARGE_HEADERS if error.error_status_hint == 431 else BAD_HTTP
            raise
        if isinstance(event, h11.Request):
            self.chunks = 0
            self._check(event, unread - len(self.trailing_data[0]))
        elif isinstance(event, h11.Data):
            self.chunks += event.chunk_start
            if self.chunks > MAX_CHUNKS:
                raise h11.RemoteProtocolError("too many chunks")
        return event

    def _check(self, request: h11.Request, size: int) -> None:
        """Raise if the request breaks a limit, or if another server could read its end elsewhere (request smuggling)."""
        if size > MAX_HEADER_BYTES or len(request.headers) > MAX_HEADERS:
            self.error = LARGE_HEADERS
            raise h11.RemoteProtocolError("large headers")
        names = {name for name, _ in request.headers}
        version = request.http_version
        chunked = b"transfer-encoding" in names
        if version[:1] != b"1" or (chunked and (version == b"1.0" or b"content-length" in names)):
            raise h11.RemoteProtocolError("unknown version or ambiguous length")


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with limits on the number of connections, and on the time to send a request or read a response."""

    settings: ServiceSettings  # these three are the server's
    limits: ConnectionLimits
    metrics: Metrics
    place = Place.NONE
    refused = False  # what arrives now is not read any more
    read_timer: asyncio.TimerHandle | None = None  # closes the connection unless the rest of a request arrives
    write_timer: asyncio.TimerHandle | None = None  # closes the connection unless the client reads the response

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.conn: StrictConnection = StrictConnection()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.client:  # for limits, trusted proxies and the log alike
            self.client = (plain_address(self.client[0]), self.client[1])
        self.place = self.limits.take(self.client[0] if self.client else "")
        if self.place is Place.NONE:
            self.metrics.count_request("other", 429, 0.0)
            transport.write(TOO_MANY)
            transport.close()
            return
        seconds = self.settings.body_seconds
        if self.place is Place.RESERVED:  # the middleware answers health checks alone, and closes the connection
            self.app_state = {**self.app_state, "reserved": True}
            seconds = min(seconds, RESERVED_SECONDS)
        self.read_timer = self.loop.call_later(seconds, transport.abort)

    def data_received(self, data: bytes) -> None:
        if not self.refused:
            super().data_received(data)
            self.watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.watch()

    def watch(self) -> None:
        """Limit the wait for the rest of a request: its headers, or a body that no endpoint reads."""
        if self.refused:
            return
        headers = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        unread = self.conn.their_state is h11.SEND_BODY and self.cycle is not None and self.cycle.response_complete
        if not (headers or unread):
            self.read_timer = _cancelled(self.read_timer)
        elif self.read_timer is None:
            self.read_timer = self.loop.call_later(self.settings.body_seconds, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or breaks a limit of the parser, and close the connection."""
        self.refused = True
        if self.cycle is not None and not self.cycle.response_complete:  # its body is broken
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state is h11.SEND_BODY:  # the client must see that the response is not complete
            self.transport.abort()
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send_error(self.conn.error)
        self.transport.write_eof()
        self.flow.resume_reading()
        self.read_timer = _cancelled(self.read_timer)
        self.read_timer = self.loop.call_later(LINGER, self.transport.abort)

    def _send_error(self, error: RequestError) -> None:
        self.metrics.count_request("other", error.status, 0.0)
        body = error_body("/", error)
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        start = h11.Response(status_code=error.status, headers=headers, reason=STATUS_PHRASES[error.status])
        for event in (start, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

    def pause_writing(self) -> None:
        super().pause_writing()
        self.write_timer = self.loop.call_later(self.settings.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.write_timer = _cancelled(self.write_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.read_timer, self.write_timer = _cancelled(self.read_timer), _cancelled(self.write_timer)
        self.limits.free(self.client[0] if self.client else "", self.place)
        super().connection_lost(exc)


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer, and return None to put in its place."""
    if timer is not None:
        timer.cancel()
    return None
