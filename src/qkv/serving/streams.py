"""Texts that are told while they are made: from the worker's thread, piece by piece, to whoever listens."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import Request

from qkv.serving.engine import Asked, Ticket
from qkv.serving.models import Model
from qkv.serving.refusals import too_late
from qkv.serving.service import Service


class Stream:
    """A request whose texts are told as they come. Closing it frees its place, and the worker stops at the next word."""

    def __init__(self, service: Service, request: Request, model: Model):
        self.service, self.model = service, model
        request.state.model = model.name
        self.loop = asyncio.get_running_loop()
        self.ends = self.loop.time() + service.settings.time_limit
        self.told: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()
        self.ticket: Ticket | None = None
        self._place = contextlib.ExitStack()

    async def start(self, prepare: Callable[[], Asked]) -> None:
        """Take a place and begin to wait for the first piece."""
        worker = self._place.enter_context(self.service.workers[self.model.name].enter())
        try:
            asked = await self.service.prepare(prepare)
            self.ticket = worker.put(asked.key, asked.units)
        except BaseException:
            self._place.close()
            raise
        self.ticket.done.add_done_callback(lambda _: self.told.put_nowait(None))

    def teller(self, index: int) -> Callable[[str], None]:
        """What the worker calls with each piece of a text."""

        def tell(piece: str) -> None:
            if piece:
                with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody listens
                    self.loop.call_soon_threadsafe(self.told.put_nowait, (index, piece))

        return tell

    async def pieces(self) -> AsyncIterator[tuple[int, str]]:
        """The number of a text and its next piece, until all texts are there."""
        while (piece := await self._next()) is not None:
            yield piece

    async def _next(self) -> tuple[int, str] | None:
        try:
            async with asyncio.timeout_at(self.ends):
                return await self.told.get()
        except TimeoutError:
            assert self.ticket is not None
            raise too_late(self.ticket.begun, self.service.settings.time_limit) from None

    async def results(self) -> list[Any]:
        """What came of all texts."""
        assert self.ticket is not None
        return await self.ticket.done

    def close(self) -> None:
        """Leave, whether or not all was heard."""
        if self.ticket is not None:
            self.ticket.gone = True
            self.ticket.done.cancel()
        self._place.close()
