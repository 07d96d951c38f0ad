"""What all endpoints share: models and their workers, who is let in, how a body is read, how a request waits for its answer."""

import asyncio
import logging
import re
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from qkv.base.config import Config
from qkv.base.errors import QkvError
from qkv.serving.engine import Asked, Worker
from qkv.serving.keys import Doorkeeper
from qkv.serving.metrics import Metrics
from qkv.serving.models import Model, Models
from qkv.serving.refusals import Gone, Refusal, wrong
from qkv.serving.settings import Settings

log = logging.getLogger("qkv.serving")
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
PARAMETER = re.compile("[a-z][a-z_]{0,30}")
MARKS = 30  # on one letter, as in Unicode's stream-safe format
Ask = TypeVar("Ask", bound=Config)
Result = TypeVar("Result")


class Service:
    """Models that can be asked."""

    def __init__(self, models: Models, settings: Settings):
        self.models, self.settings, self.metrics = models, settings, Metrics()
        self.doorkeeper = Doorkeeper(settings)
        self.workers = {model.name: Worker(model.name, model.work, settings, self.metrics) for model in models.all}
        self.helpers = ThreadPoolExecutor(2, "qkv-reading")  # tokenize, so that nobody else waits for that
        self.stopping = False

    def close(self) -> None:
        """Finish what was begun, and end all threads."""
        self.stopping = True
        for worker in self.workers.values():
            worker.close()
        self.helpers.shutdown()

    def admit(self, request: Request, key: str | None = None) -> None:
        """Let a request in, by the key in its header or the one that its body brought."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        bearer = given.strip() if scheme.lower() == "bearer" else None
        caller = self.doorkeeper.recognise(bearer or key, request.client.host if request.client else "")
        request.state.who = caller.name
        self.doorkeeper.count(caller)

    async def read(self, request: Request, kind: type[Ask], form: bool = False) -> Ask:
        """The checked body of a request that is let in."""
        if not form:
            self.admit(request)
        ask = parse_body(await whole_body(request, self.settings), request.headers.get("content-type", ""), kind, form)
        if form:
            self.admit(request, getattr(ask, "api_key", None))
        if self.settings.logs == "texts":
            log.info("asked: %s", ask.model_dump_json(exclude={"api_key"}, exclude_unset=True))
        return ask

    async def answer(self, request: Request, model: Model, prepare: Callable[[], Asked]) -> Any:
        """What a model says, unless whoever asked hangs up before."""
        request.state.model = model.name
        with self.workers[model.name].enter() as worker:
            return await unless_gone(request, self._answer(worker, prepare))

    async def _answer(self, worker: Worker, prepare: Callable[[], Asked]) -> Any:
        asked = await self.prepare(prepare)
        return asked.answer(await worker.ask(asked.key, asked.units))

    async def prepare(self, prepare: Callable[[], Asked]) -> Asked:
        """Units of a request, made on another thread; what is wrong with its texts is the request's fault."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.helpers, prepare)
        except QkvError as error:
            raise Refusal(400, "unsuitable", str(error)) from None

    def check_texts(self, texts: Sequence[str], param: str) -> None:
        """Refuse more texts, or more of them, than one request may bring."""
        if len(texts) > self.settings.texts:
            raise wrong(f"{len(texts):,} texts in one request; send {self.settings.texts:,} at most", param, "too_many_texts")
        characters = sum(map(len, texts))
        if characters > self.settings.characters:
            most = self.settings.characters
            raise wrong(f"{characters:,} characters in one request; send {most:,} at most", param, "text_too_long")
        if any(_piled_up(text) for text in texts):
            raise wrong(f"a letter with more than {MARKS} marks on it cannot be read", param, "too_many_marks")


async def unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """The result of some work, which is given up when the client hangs up."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(hung_up(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def hung_up(request: Request) -> None:
    """Comes back when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def whole_body(request: Request, settings: Settings) -> bytes:
    """All of a request's body, unless it is too large or too slow."""
    most = settings.body_bytes
    too_large = Refusal(413, "body_too_large", f"the body has more than {most:,} bytes; send less at a time")
    told = request.headers.get("content-length", "0")
    if not told.isdigit() or int(told) > 16 * most:  # far too much to wait for its end
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size <= most:
                    parts.append(part)
                elif size > 16 * most:
                    raise too_large
    except ClientDisconnect:
        raise Gone from None
    except TimeoutError:
        raise Refusal(408, "body_too_slow", f"the body did not arrive within {settings.body_seconds:g} s") from None
    if size > most:
        raise too_large
    return b"".join(parts)


def parse_body(body: bytes, content_type: str, kind: type[Ask], form: bool) -> Ask:
    """A body as what it should be, or one line on what is wrong with it that repeats nothing of the text."""
    sort = content_type.partition(";")[0].strip().lower()
    if sort != JSON and not (form and sort == FORM):
        wanted = f"{JSON} or {FORM}" if form else JSON
        raise Refusal(415, "content_type", f"the content type must be {wanted}")
    try:
        if sort == JSON:
            return kind.model_validate_json(body, strict=True)
        return kind.model_validate(_form(body, kind))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        steps = [str(step) for step in first["loc"] if isinstance(step, int) or str(step) in kind.model_fields]
        where = ".".join(steps) or None
        raise wrong(f"{where or 'the body'}: {_told(first)}", where, "invalid_request") from None
    except ValueError:  # what urllib refuses: too many fields
        raise wrong("the form cannot be read; send fewer fields", None, "invalid_request") from None


def _piled_up(text: str) -> bool:
    """Whether a letter carries more marks than in any language; to bring many into order takes time that grows by the square."""
    if text.isascii():
        return False
    run = 0
    for sign in text:
        run = run + 1 if unicodedata.combining(sign) else 0
        if run > MARKS:
            return True
    return False


def _told(mistake: Any) -> str:
    if mistake["type"] == "extra_forbidden":
        name = str(mistake["loc"][-1])
        named = f" {name}" if PARAMETER.fullmatch(name) else ""  # what does not look like one may be anything
        return f"it has a key{named} that is not known here"
    if mistake["type"] == "json_invalid":
        return "it is not valid JSON"
    return str(mistake["msg"])[:1].lower() + str(mistake["msg"])[1:200]


def _form(body: bytes, kind: type[Config]) -> dict[str, Any]:
    """The fields of a form; one that is there several times is a list."""
    fields: dict[str, list[str]] = {}
    for name, value in parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1000, errors="replace"):
        fields.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
