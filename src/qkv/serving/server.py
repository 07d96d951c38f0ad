"""The HTTP server: it finishes accepted requests when a signal stops it."""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from qkv.base.errors import ConfigError
from qkv.base.processes import raise_open_file_limit
from qkv.serving.admission import LONGEST
from qkv.serving.connections import RESERVED, ConnectionLimits
from qkv.serving.protocol import LimitedProtocol
from qkv.serving.settings import ServiceSettings

log = logging.getLogger("qkv.serving")
BACKLOG = 1024  # connections that wait to be accepted
OTHER_FILES = 256  # that a process has open beside its connections
CLEAN_EVERY = 300  # ticks of 0.1 s: translated files that are too old are deleted
# Seconds after which a thread that runs Python lets another run. A model's thread asks for its turn after each operation, of
# which there are hundreds in a pass; with Python's default of 5 ms, a pass beside a busy thread took ten times as long.
SWITCH = 0.0001
LINGER = 2.0  # seconds in which connected clients may send one more request before the server stops


class ServiceServer(uvicorn.Server):
    """uvicorn's server; before it stops, connected clients may send one more request."""

    def __init__(self, app: FastAPI):
        self.service = app.state.service
        settings: ServiceSettings = self.service.settings
        self.limits = ConnectionLimits(settings, self.service.limits)
        shared = {"settings": settings, "limits": self.limits, "metrics": self.service.metrics}
        config = uvicorn.Config(
            app,
            http=type("Protocol", (LimitedProtocol,), shared),
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=list(settings.proxies),
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(LONGEST * settings.time_limit) + 5,
            backlog=BACKLOG,
        )
        super().__init__(config)

    async def on_tick(self, counter: int) -> bool:
        if counter % CLEAN_EVERY == 0:
            asyncio.get_running_loop().run_in_executor(None, self.service.downloads.delete_old)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
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
    sys.setswitchinterval(SWITCH)
    _allow_open_files(server.service.settings.connections)
    with _stopped_by_signals(server):
        asyncio.run(server.serve([listening]))


def _allow_open_files(connections: int) -> None:
    """Raise this process's limit on open files, each connection being one; many systems allow 1,024 unless asked for more."""
    wanted = connections + RESERVED + BACKLOG + OTHER_FILES  # asyncio accepts all that wait before it closes one
    if (allowed := raise_open_file_limit(wanted)) < wanted:
        log.warning("%d connections need %d open files; this system allows %d (ulimit -n)", connections, wanted, allowed)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address, and does not listen yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it every kept connection waits 40 ms for an ACK.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        wrong_host = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        advice = "give one of this machine's addresses to --host, 0.0.0.0 for all" if wrong_host else "choose another with --port"
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}; {advice}") from None
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
