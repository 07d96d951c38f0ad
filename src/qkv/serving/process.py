"""A template or worker, as the supervisor sees it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

from qkv.base.errors import ConfigError
from qkv.serving.supervisor_link import MAX_LINE


class Process:
    """The supervisor's end of the channel to a process; the process has ended when the channel is closed."""

    def __init__(self, channel: socket.socket, number: int | None = None):
        self.channel, self.number = channel, number  # a template has no number
        self.pid, self.started = 0, time.monotonic()
        self.ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.drained, self.ended = asyncio.Event(), asyncio.Event()  # drained: answers only requests that have begun

    async def connect(self) -> None:
        """Make the channel a stream."""
        self.reader, self.writer = await asyncio.open_connection(sock=self.channel, limit=MAX_LINE)

    async def questions(self) -> AsyncIterator[dict[str, Any]]:
        """Read messages until the process ends, and return what it asks of the supervisor."""
        with contextlib.suppress(OSError):
            while line := await self.reader.readline():
                message = json.loads(line)
                self.pid = message.get("pid", self.pid)
                if "asks" in message:
                    yield message
                elif "drained" in message:
                    self.drained.set()
                elif "failed" in message:
                    self._fail(message["failed"])
                elif "ready" in message:
                    self.ready.set_result(message)
        self._fail("a new process ended before it was ready")
        self.drained.set()
        self.ended.set()
        self.writer.close()

    def _fail(self, why: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(ConfigError(why))
            self.ready.exception()  # it is no fault if nobody waits for it

    def send(self, **message: Any) -> None:
        """Send a message; one to a process that has ended is lost."""
        if not self.ended.is_set():
            self.writer.write(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """Let a template end."""
        self.writer.close()

    def kill(self) -> None:
        """End the process at once."""
        if not self.pid:  # it has just begun
            self.close()
        elif not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
