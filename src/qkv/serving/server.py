"""The application on a port: connections that are too slow or too many are closed, and a signal to stop lets it finish."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from qkv.base.errors import ConfigError
from qkv.serving.settings import Settings

log = logging.getLogger("qkv.serving")
BACKLOG = 1024  # connections that nobody has accepted yet
LINGER = 2.0  # seconds for those who are connected to ask once more; none where nobody is
HEADERS = 32_768  # bytes of a request before its body
TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Protocol(H11Protocol):
    """HTTP as uvicorn speaks it, to so many at once, and only to those who send and take what they should in time."""

    settings = Settings()
    owed: asyncio.TimerHandle | None = None  # until when a request, or the rest of one, must have come
    taken: asyncio.TimerHandle | None = None  # until when an answer must be taken

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.owed = self.loop.call_later(self.settings.body_seconds, transport.abort)
        if len(self.connections) > self.settings.connections:
            transport.write(TOO_MANY)
            transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.watch()

    def watch(self) -> None:
        """Wait no longer than allowed for the rest of a request: its headers, or a body that nobody reads."""
        headers = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        unread = self.conn.their_state is h11.SEND_BODY and self.cycle is not None and self.cycle.response_complete
        if not (headers or unread):
            self.owed = _cancelled(self.owed)
        elif self.owed is None:
            self.owed = self.loop.call_later(self.settings.body_seconds, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.taken = self.loop.call_later(self.settings.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.taken = _cancelled(self.taken)

    def connection_lost(self, exc: Exception | None) -> None:
        self.owed, self.taken = _cancelled(self.owed), _cancelled(self.taken)
        super().connection_lost(exc)


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """No timer, where there may have been one."""
    if timer is not None:
        timer.cancel()
    return None


class Server(uvicorn.Server):
    """uvicorn's server, which lets those who are still connected ask once more before it stops."""

    def __init__(self, app: FastAPI):
        self.service = app.state.service
        settings: Settings = self.service.settings
        config = uvicorn.Config(
            app,
            http=type("Protocol", (Protocol,), {"settings": settings}),
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(settings.time_limit) + 5,
            h11_max_incomplete_event_size=HEADERS,
            backlog=BACKLOG,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("stopping: %d connections are open", len(self.server_state.connections))
        self.service.stopping = True  # from now on every answer closes its connection
        for server in self.servers:
            server.close()
        # What was sent before the client could know that we stop is answered; silent connections are closed after that.
        ends = asyncio.get_running_loop().time() + LINGER
        while self.server_state.connections and not self.force_exit and asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)


def serve(app: FastAPI, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then answer what was accepted and come back."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    server = Server(app)
    with _ended_by_signals(server):
        asyncio.run(server.serve([listening]))


def bind(host: str, port: int) -> socket.socket:
    """A socket for that address, on which nobody listens yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}; choose another with --port") from None
    return listening


@contextlib.contextmanager
def _ended_by_signals(server: Server) -> Iterator[None]:
    """Before uvicorn listens to signals, and when it raises the one that ended it once more, they mean no more than to stop."""

    def stop(*_: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
