"""The HTTP server of a worker: it shares a listening socket with other workers, and obeys the supervisor."""

import asyncio
import contextlib
import logging
import socket
from typing import Any

from fastapi import FastAPI

from qkv.serving.server import BACKLOG, ServiceServer
from qkv.serving.supervisor_link import SupervisorLink

log = logging.getLogger("qkv.serving")
PAUSE, PAUSES = 0.002, 5  # seconds, for which a worker with more than its share leaves a connection to others, and how often
NO_FILES = 1.0  # seconds until a worker that cannot open another file tries again


class WorkerServer(ServiceServer):
    """A server that accepts its share of the connections, one by one.

    A worker that has more than its share waits a moment, so that another takes the connection. Connections that stay open are
    spread anew every second: a worker with some too many closes them after the next responses, and these clients connect again.
    """

    def __init__(self, app: FastAPI, link: SupervisorLink):
        super().__init__(app)
        self.link = link
        self.accepting: list[asyncio.Task[None]] = []
        self.connecting: set[asyncio.Task[Any]] = set()  # connections that are accepted and not counted yet

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup([])
        self.limits.begin_accepting()
        for each in sockets or ():
            each.setblocking(False)
            each.listen(BACKLOG)
            self.accepting.append(self.loop.create_task(self._accept_share(each)))
        self.obeying = self.loop.create_task(self.link.run(self.service.description(), self._stop))

    def _stop(self) -> None:
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # every second
            self.service.metrics.refresh()
            self.service.surplus = int(self.limits.surplus())
            if self.service.dead and not self.should_exit:
                log.error("the compute thread of %s has ended; this worker ends too", ", ".join(self.service.dead))
                self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        why = "others serve the new config" if self.link.replaced else "stopping"
        log.info("this worker ends, %s: %d connections are open", why, len(self.server_state.connections))
        self.limits.end_accepting()
        for task in self.accepting:
            task.cancel()
        await asyncio.gather(*self.accepting, return_exceptions=True)
        for each in sockets or ():
            if not self.link.replaced:  # nobody else would accept the connections that wait
                self._accept_all(each)
            each.close()
        await super().shutdown([])

    async def _accept_share(self, listening: socket.socket) -> None:
        """Accept connections one by one, until the server stops."""
        while True:
            await self._wait_for_connection(listening)
            for _ in range(PAUSES):
                if self.limits.surplus(len(self.connecting)) < 1:
                    break
                await asyncio.sleep(PAUSE)
            try:
                self._accept(listening)
            except (BlockingIOError, ConnectionAbortedError):  # another worker has it, or it is closed
                continue
            except OSError as error:
                log.error("cannot accept a connection: %s", error)
                await asyncio.sleep(NO_FILES)

    async def _wait_for_connection(self, listening: socket.socket) -> None:
        waits = asyncio.Event()
        self.loop.add_reader(listening, waits.set)
        try:
            await waits.wait()
        finally:
            self.loop.remove_reader(listening)

    def _accept_all(self, listening: socket.socket) -> None:
        """Accept every connection that waits, without giving way to anything else."""
        with contextlib.suppress(OSError):  # no other waits
            while True:
                self._accept(listening)

    def _accept(self, listening: socket.socket) -> None:
        protocol_class: Any = self.config.http_protocol_class

        def protocol() -> asyncio.Protocol:
            return protocol_class(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

        connection, _ = listening.accept()
        connection.setblocking(False)
        task = self.loop.create_task(self.loop.connect_accepted_socket(protocol, connection))
        self.connecting.add(task)
        task.add_done_callback(self.connecting.discard)

    async def linger(self) -> None:
        await asyncio.gather(*self.connecting, return_exceptions=True)
        await super().linger()
        self.link.send(drained=True)
