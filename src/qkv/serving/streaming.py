"""Streamed answers: text goes from the worker's thread to the client, piece by piece, as server-sent events."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import Request, Response

from qkv.decoding.logprobs import LogprobRecord
from qkv.serving.batching import PreparedRequest, QueuedRequest
from qkv.serving.errors import RequestError, error_body, no_turn
from qkv.serving.registry import ServedModel
from qkv.serving.service import Service, until_disconnect


class RequestStream:
    """A request whose results are read as they are computed; `close` frees its slot, and generation stops at the next token."""

    def __init__(self, service: Service, request: Request, model: ServedModel[Any]):
        self.service, self.request, self.model = service, request, model
        request.state.model = model.name
        self.loop = asyncio.get_running_loop()
        self.received: asyncio.Queue[tuple[int, Any] | None] = asyncio.Queue()
        self.queued: QueuedRequest | None = None
        self._slot = contextlib.ExitStack()

    async def start(self, prepare: Callable[[], PreparedRequest], by_item: bool = False) -> PreparedRequest:
        """Reserve a slot and put the request into the queue; if `by_item`, `pieces` are the results of its items."""
        worker = self._slot.enter_context(self.service.workers[self.model.name].reserve())
        try:
            prepared = await self.service.prepare(self.request, prepare)
            receive = (lambda index, result: self.received.put_nowait((index, result))) if by_item else None
            self.queued = worker.put(prepared.key, prepared.items, self.request.state.caller, receive)
        except BaseException:
            self._slot.close()
            raise
        self.queued.done.add_done_callback(lambda _: self.received.put_nowait(None))
        return prepared

    def callback(self, index: int, record: LogprobRecord | None = None) -> Callable[[str], None]:
        """Return the function that the worker calls with each piece of a text; its tokens' log-probabilities go with it."""
        sent = 0

        def receive(piece: str) -> None:
            nonlocal sent
            if piece:
                tokens = () if record is None else tuple(record.tokens[sent:])
                sent += len(tokens)
                with contextlib.suppress(RuntimeError):  # the event loop is closed, so nobody listens
                    self.loop.call_soon_threadsafe(self.received.put_nowait, (index, (piece, tokens)))

        return receive

    async def pieces(self) -> AsyncIterator[tuple[int, Any]]:
        """Return the index of a text and its next piece, or of an item and its result, until all are complete."""
        assert self.queued is not None
        limit = self.service.settings.time_limit
        while True:
            left = self.queued.seconds_left(limit)
            if left is not None and left <= 0:
                raise no_turn(limit)
            try:
                async with asyncio.timeout(left):
                    piece = await self.received.get()
            except TimeoutError:
                continue
            if piece is None:
                return
            yield piece

    async def results(self) -> list[Any]:
        """Return the results of all texts."""
        assert self.queued is not None
        return await self.queued.done

    def close(self) -> None:
        """Cancel what is not computed yet, and free the slot."""
        if self.queued is not None:
            self.queued.cancelled = True
            self.queued.done.cancel()
        self._slot.close()


class EventStreamResponse(Response):
    """A response of server-sent events: values as JSON, strings as they are. It ends when the client disconnects."""

    def __init__(self, request: Request, events: AsyncIterator[Any], close: Callable[[], None]):
        # Without this header nginx would hold the response back until it is complete.
        super().__init__(media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self.request, self.events, self.close = request, events, close
        del self.headers["content-length"]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await until_disconnect(self.request, self._send_all(send))
        finally:
            self.close()

    async def _send_all(self, send: Any) -> None:
        async def send_event(data: bytes) -> None:
            await send({"type": "http.response.body", "body": b"data: " + data + b"\n\n", "more_body": True})

        try:
            async for event in self.events:
                await send_event((event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)).encode())
        except RequestError as error:  # the status is sent already, so the error is an event
            await send_event(error_body(self.request.url.path, error))
        await send({"type": "http.response.body", "body": b"", "more_body": False})
