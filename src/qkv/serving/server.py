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
TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def protocol(settings: Settings) -> type[H11Protocol]:
    """HTTP as uvicorn speaks it, to so many at once, and only to those who say what they want in time."""

    class Protocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.patience = self.loop.call_later(settings.body_seconds, self.lose_patience)
            if len(self.connections) > settings.connections:
                transport.write(TOO_MANY)
                transport.close()

        def lose_patience(self) -> None:
            """Close a connection on which no request has begun, or only half of its headers has come."""
            if self.conn.their_state in (h11.IDLE, h11.ERROR) and self.conn.our_state is h11.IDLE:
                self.transport.close()

        def data_received(self, data: bytes) -> None:
            if (
                self.patience.when() <= self.loop.time() and self.conn.their_state is h11.IDLE
            ):  # a later request of the same connection
                self.patience = self.loop.call_later(settings.body_seconds, self.lose_patience)
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            self.patience.cancel()
            super().connection_lost(exc)

    return Protocol


class Server(uvicorn.Server):
    """uvicorn's server, which says where it listens and tells the service that it is about to stop."""

    def __init__(self, config: uvicorn.Config, app: FastAPI):
        super().__init__(config)
        self.service = app.state.service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.stopping = True
        log.info("stopping: %d connections are still open", len(self.server_state.connections))
        await super().shutdown(sockets)


def serve(app: FastAPI, settings: Settings, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then answer what was accepted and come back."""
    config = uvicorn.Config(
        app,
        http=protocol(settings),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(settings.time_limit) + 5,
        h11_max_incomplete_event_size=32_768,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    with _ended_by_signals():
        asyncio.run(Server(config, app).serve([listening]))


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there."""
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
def _ended_by_signals() -> Iterator[None]:
    """uvicorn raises the signal that ended it once more when it is done; to have finished well, it must find no one."""
    wanted = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: None) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
