"""The HTTP server: it limits connections and slow clients, and finishes accepted requests when a signal stops it."""

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
from qkv.serving.settings import ServiceSettings

log = logging.getLogger("qkv.serving")
BACKLOG = 1024  # connections that wait to be accepted
LINGER = 2.0  # seconds in which connected clients may send one more request before the server stops
MAX_HEADER_BYTES = 32_768
TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with limits on the number of connections, and on the time to send a request or read a response."""

    settings = ServiceSettings()
    read_timer: asyncio.TimerHandle | None = None  # closes the connection unless the rest of a request arrives
    write_timer: asyncio.TimerHandle | None = None  # closes the connection unless the client reads the response

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.read_timer = self.loop.call_later(self.settings.body_seconds, transport.abort)
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
        """Limit the wait for the rest of a request: its headers, or a body that no endpoint reads."""
        headers = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        unread = self.conn.their_state is h11.SEND_BODY and self.cycle is not None and self.cycle.response_complete
        if not (headers or unread):
            self.read_timer = _cancelled(self.read_timer)
        elif self.read_timer is None:
            self.read_timer = self.loop.call_later(self.settings.body_seconds, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.write_timer = self.loop.call_later(self.settings.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.write_timer = _cancelled(self.write_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.read_timer, self.write_timer = _cancelled(self.read_timer), _cancelled(self.write_timer)
        super().connection_lost(exc)


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer, and return None to put in its place."""
    if timer is not None:
        timer.cancel()
    return None


class ServiceServer(uvicorn.Server):
    """uvicorn's server; before it stops, connected clients may send one more request."""

    def __init__(self, app: FastAPI):
        self.service = app.state.service
        settings: ServiceSettings = self.service.settings
        config = uvicorn.Config(
            app,
            http=type("Protocol", (LimitedProtocol,), {"settings": settings}),
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=list(settings.proxies),
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(settings.time_limit) + 5,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            backlog=BACKLOG,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("stopping: %d connections are open", len(self.server_state.connections))
        self.service.stopping = True  # from now on every response closes its connection
        for server in self.servers:
            server.close()
        await self.linger()
        await super().shutdown(sockets)

    async def linger(self) -> None:
        """Let connected clients send one more request, for a while."""
        # A client may have sent a request before it could know that the server stops; silent connections are closed after that.
        ends = asyncio.get_running_loop().time() + LINGER
        while self.server_state.connections and not self.force_exit and asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(0.02)


def serve(server: ServiceServer, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then answer the accepted requests and return."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    with _stopped_by_signals(server):
        asyncio.run(server.serve([listening]))


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address, and does not listen yet."""
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
def _stopped_by_signals(server: ServiceServer) -> Iterator[None]:
    """Let signals only stop the server: before uvicorn handles them, and when uvicorn raises the last one again at its end."""

    def stop(*_: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
