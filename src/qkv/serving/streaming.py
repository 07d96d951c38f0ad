"""Streamed answers: text goes from the worker's thread to the client, piece by piece, as server-sent events."""

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import Request, Response

from qkv.decoding.logprobs import LogprobRecord
from qkv.inference.text_stream import TextStream
from qkv.serving.batching import PreparedRequest, QueuedRequest
from qkv.serving.errors import RequestError, error_body, no_turn
from qkv.serving.registry import ServedModel
from qkv.serving.service import Service, until_disconnect

MIN_INTERVAL = 0.02  # seconds between two events of a stream, at least
INTERVAL_PER_STREAM = 0.001  # and for each open stream: an event takes 0.2 ms, so that events take a fifth of the time at most


class RequestStream:
    """A request whose results are read as they are computed; `close` frees its slot, and generation stops at the next token."""

    def __init__(self, service: Service, request: Request, model: ServedModel[Any]):
        self.service, self.request, self.model = service, request, model
        request.state.model = model.name
        self.loop = asyncio.get_running_loop()
        self.queued: QueuedRequest | None = None
        self._slot = contextlib.ExitStack()
        self._received: deque[tuple[int, Any]] = deque()  # filled by the worker's thread
        self._decoders: dict[int, TextStream] = {}  # of texts whose tokens are received instead of pieces
        self._wake = asyncio.Event()  # set when results were received or all is complete
        self._woken = False  # whether the worker has set it since results were last read

    async def start(self, prepare: Callable[[], PreparedRequest], by_item: bool = False) -> PreparedRequest:
        """Reserve a slot and put the request into the queue; if `by_item`, `received` gives the results of its items."""
        self.worker = self._slot.enter_context(self.service.workers[self.model.name].reserve())
        try:
            prepared = await self.service.prepare(self.request, prepare)
            receive = self.receive_result if by_item else None
            self.queued = self.worker.put(prepared.key, prepared.items, self.request.state.caller, receive)
        except BaseException:
            self._slot.close()
            raise
        self.service.streams.add(self)
        self.queued.done.add_done_callback(lambda _: self._wake.set())
        return prepared

    def callback(self, index: int, record: LogprobRecord | None = None) -> Callable[[str], None]:
        """Return the function that the worker calls with each piece of a text; its tokens' log-probabilities go with it."""
        sent = 0

        def receive(piece: str) -> None:
            nonlocal sent
            if piece:
                tokens = () if record is None else tuple(record.tokens[sent:])
                sent += len(tokens)
                self._receive(index, (piece, tokens))

        return receive

    def token_callback(self, index: int, decoder: TextStream) -> Callable[[int], None]:
        """Return the function that the worker calls with each token of a text, whose pieces the decoder makes here."""
        self._decoders[index] = decoder
        return lambda token: self._receive(index, token)

    def _receive(self, index: int, result: Any) -> None:
        """Take a result on the worker's thread; wake the event loop, once for all results that it has not read yet."""
        self._received.append((index, result))
        if not self._woken:
            self._woken = True
            self.worker.outbox.post(self.loop, self._wake.set)

    def receive_result(self, index: int, result: Any) -> None:
        """Take an item's result, on the event loop."""
        self._received.append((index, result))
        self._wake.set()

    async def received(self) -> AsyncIterator[list[tuple[int, Any]]]:
        """Return what is new, as indices of items and their results, until all are complete.

        Results within an interval go together: an event for each token of a fast model would take longer than the token.
        """
        assert self.queued is not None
        done, sent = self.queued.done, 0.0
        while True:
            await self._wait_for_results()
            interval = max(MIN_INTERVAL, INTERVAL_PER_STREAM * len(self.service.streams))
            if (rest := sent + interval - time.monotonic()) > 0 and not done.done():
                await asyncio.wait([done], timeout=rest)
            self._wake.clear()
            self._woken = False  # before reading, so that nothing is left behind
            complete, sent = done.done(), time.monotonic()
            if self._received:
                yield [self._received.popleft() for _ in range(len(self._received))]
            if complete:
                return

    async def _wait_for_results(self) -> None:
        """Wait until results are received; raise if the request's turn has not come within the limit."""
        assert self.queued is not None
        limit = self.service.settings.time_limit
        while (left := self.queued.seconds_left(limit)) is not None and not self._wake.is_set():
            if left <= 0:
                raise no_turn(limit)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()
        await self._wake.wait()

    async def pieces(self) -> AsyncIterator[list[tuple[int, str, list[Any]]]]:
        """Return the indices of texts, their next pieces and the facts about the pieces' tokens, until all are complete."""
        async for new in self.received():
            joined: dict[int, list[Any]] = {}
            for index, received in new:
                joined.setdefault(index, []).append(received)
            found = [self._piece(index, received) for index, received in joined.items()]
            yield [(index, text, details) for index, text, details in found if text]
        rest = [(index, decoder.new_text(last=True)) for index, decoder in self._decoders.items()]
        yield [(index, text, []) for index, text in rest if text]

    def _piece(self, index: int, received: list[Any]) -> tuple[int, str, list[Any]]:
        """Return the next piece of a text, from the tokens or the pieces that were received."""
        if (decoder := self._decoders.get(index)) is not None:
            decoder.append(received)
            return index, decoder.new_text(), []
        return index, "".join(piece for piece, _ in received), [one for _, tokens in received for one in tokens]

    async def results(self) -> list[Any]:
        """Return the results of all texts."""
        assert self.queued is not None
        return await self.queued.done

    def close(self) -> None:
        """Cancel what is not computed yet, and free the slot."""
        self.service.streams.discard(self)
        if self.queued is not None:
            self.queued.cancelled = True
            self.queued.done.cancel()
        self._slot.close()


class EventStreamResponse(Response):
    """A response of server-sent events: values as JSON, strings as they are. It ends when the client disconnects."""

    def __init__(self, request: Request, events: AsyncIterator[list[Any]], close: Callable[[], None]):
        """`events` come in lists of those that are sent together."""
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
        async def send_events(events: list[bytes]) -> None:
            body = b"".join(b"data: " + data + b"\n\n" for data in events)
            await send({"type": "http.response.body", "body": body, "more_body": True})

        try:
            async for events in self.events:
                if events:
                    texts = [event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events]
                    await send_events([text.encode() for text in texts])
        except RequestError as error:  # the status is sent already, so the error is an event
            await send_events([error_body(self.request.url.path, error)])
        await send({"type": "http.response.body", "body": b"", "more_body": False})
