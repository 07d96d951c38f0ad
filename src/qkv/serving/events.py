"""Server-sent events: an answer that is sent while it is made."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import Request, Response

from qkv.serving.gate import error_body
from qkv.serving.refusals import Refusal
from qkv.serving.service import unless_gone


class EventStream(Response):
    """An answer of events, each a value as JSON or a word as it is; it ends when the client hangs up."""

    def __init__(self, request: Request, events: AsyncIterator[Any], close: Callable[[], None]):
        super().__init__(media_type="text/event-stream", headers={"x-accel-buffering": "no"})  # nginx would keep all to the end
        self.request, self.events, self.close = request, events, close
        del self.headers["content-length"]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await unless_gone(self.request, self._send_all(send))
        finally:
            self.close()

    async def _send_all(self, send: Any) -> None:
        try:
            async for event in self.events:
                await send(_body(_line(event)))
        except Refusal as refusal:  # too late for a status: the client is told in the stream
            await send(_body(b"data: " + error_body("/v1/", refusal) + b"\n\n"))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _line(event: Any) -> bytes:
    text = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def _body(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}
