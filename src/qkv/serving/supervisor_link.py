"""Messages between the supervisor and its processes: lines of JSON over a socket that ends with either side."""

import asyncio
import itertools
import json
import socket
from collections.abc import Callable
from typing import Any

MAX_LINE = 1 << 24  # bytes of a message; a config with all its keys is the longest


def write_message(channel: socket.socket, **message: Any) -> None:
    """Send a message from a process without an event loop."""
    channel.sendall(json.dumps(message).encode() + b"\n")


def read_message(channel: socket.socket) -> dict[str, Any]:
    """Read the only message that is on its way to a process without an event loop; empty when the supervisor has ended."""
    data = b""
    while not data.endswith(b"\n"):
        more = channel.recv(1 << 16)
        if not more:
            return {}
        data += more
    return json.loads(data)


class SupervisorLink:
    """A worker's connection to the supervisor."""

    def __init__(self, channel: socket.socket, workers: int):
        self.channel, self.workers = channel, workers
        self.alive = workers  # workers that serve, in all
        self.replaced = False  # whether this worker stops because others serve a new config
        self.writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count()

    async def run(self, models: list[str], stop: Callable[[], None]) -> None:
        """Tell the supervisor that this worker serves these models, and read messages until the supervisor ends; then stop."""
        reader, self.writer = await asyncio.open_connection(sock=self.channel, limit=MAX_LINE)
        self.send(ready=True, models=models)
        while line := await reader.readline():
            message = json.loads(line)
            self.alive = message.get("alive", self.alive)
            if "stop" in message:
                self.replaced = message["stop"] == "replaced"
                stop()
            if "answers" in message and (asked := self._asked.pop(message["answers"], None)) is not None and not asked.done():
                asked.set_result(message)
        self.alive = 0
        stop()

    def send(self, **message: Any) -> None:
        """Send a message."""
        if self.writer is not None:
            self.writer.write(json.dumps(message).encode() + b"\n")

    async def ask(self, **question: Any) -> dict[str, Any]:
        """Send a question, and return the supervisor's answer."""
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self.send(asks=number, **question)
        return await answer
