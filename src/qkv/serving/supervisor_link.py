"""Messages between the supervisor and its processes: lines of JSON over a socket that ends with either side."""

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import Callable
from typing import Any

from qkv.serving.errors import RequestError

ANSWER_SECONDS = 600.0  # until a worker gives up waiting for an answer of the supervisor, which loads models for some
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
        self._ended = False
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count()

    async def run(self, models: list[str], stop: Callable[[], None]) -> None:
        """Tell the supervisor that this worker serves these models, and read messages until the supervisor ends; then stop."""
        reader, self.writer = await asyncio.open_connection(sock=self.channel, limit=MAX_LINE)
        self.send(ready=True, models=models)
        with contextlib.suppress(OSError):  # the supervisor was killed before it read what was sent
            while line := await reader.readline():
                message = json.loads(line)
                self.alive = message.get("alive", self.alive)
                if "stop" in message:
                    self.replaced = message["stop"] == "replaced"
                    stop()
                asked = self._asked.pop(message.get("answers", -1), None)
                if asked is not None and not asked.done():
                    asked.set_result(message)
        self.alive, self._ended = 0, True
        for asked in self._asked.values():
            asked.cancel()
        stop()

    def send(self, **message: Any) -> None:
        """Send a message."""
        if self.writer is not None:
            self.writer.write(json.dumps(message).encode() + b"\n")

    async def ask(self, **question: Any) -> dict[str, Any]:
        """Send a question, and return the supervisor's answer; raise if none comes."""
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self.send(asks=number, **question)
        if self._ended:
            answer.cancel()
        await asyncio.wait({answer}, timeout=ANSWER_SECONDS)
        self._asked.pop(number, None)
        if answer.cancelled():
            raise RequestError(503, "stopping", "the service is stopping")
        if not answer.done():
            message = f"no answer within {ANSWER_SECONDS:g} s; the change may still come, GET /admin/models says what is served"
            raise RequestError(503, "no_answer", message)
        return answer.result()
