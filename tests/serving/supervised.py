"""A supervisor in this process: it answers questions of a worker as ever, but its changes are of the config alone."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from qkv.serving.process import Process
from qkv.serving.service_config import ServiceConfig
from qkv.serving.supervisor import Supervisor
from qkv.serving.supervisor_link import SupervisorLink


class ConfigSupervisor(Supervisor):
    """A supervisor without processes."""

    def __init__(self, config: ServiceConfig, read_config: Callable[[], ServiceConfig], channel: socket.socket):
        self.config, self.read_config, self.stopping, self.tasks = config, read_config, False, set()
        self.channel = channel

    async def change(self, update: Callable[[ServiceConfig], ServiceConfig]) -> None:
        self.config = update(self.config)

    async def run(self) -> None:
        """Answer a worker's questions until its channel is closed."""
        process = Process(self.channel, 0)
        await process.connect()
        async for question in process.questions():
            self._spawn(self._answer(process, question))


@contextlib.contextmanager
def supervised(config: ServiceConfig, read_config: Callable[[], ServiceConfig] | None = None) -> Iterator[SupervisorLink]:
    """Yield a link to a supervisor with this config, which a reload reads again; it ends when the worker closes the link."""
    ours, theirs = socket.socketpair()

    async def run() -> None:
        await ConfigSupervisor(config, read_config or (lambda: config), ours).run()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    yield SupervisorLink(theirs, 1)
    theirs.close()
    thread.join()
