"""State and functions that all endpoints share: models, workers, authentication, and waiting for a result."""

import asyncio
import logging
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from fastapi import Request

from qkv.base.errors import QkvError
from qkv.serving.authentication import Authenticator
from qkv.serving.batching import PreparedRequest
from qkv.serving.downloads import Downloads
from qkv.serving.errors import ClientGone, RequestError, as_request_error, invalid
from qkv.serving.fair_threads import FairThreads
from qkv.serving.metrics import Metrics
from qkv.serving.registry import ModelRegistry, ServedModel
from qkv.serving.request_body import parse_body, read_bytes
from qkv.serving.request_models import RequestBody
from qkv.serving.settings import ServiceSettings
from qkv.serving.shared_limits import SharedLimits
from qkv.serving.supervisor_link import SupervisorLink
from qkv.serving.worker import BatchWorker

log = logging.getLogger("qkv.serving")
FEW_ITEMS = 16  # whose results become an answer in no time
MAX_MARKS = 30  # combining marks on one letter, as in Unicode's stream-safe format
Body = TypeVar("Body", bound=RequestBody)
Result = TypeVar("Result")


class Service:
    """Models with their workers, and the checks that every request passes."""

    def __init__(
        self,
        models: ModelRegistry,
        settings: ServiceSettings,
        limits: SharedLimits | None = None,
        supervisor: SupervisorLink | None = None,
    ):
        self.models, self.settings, self.metrics = models, settings, Metrics()
        self.limits, self.supervisor = limits or SharedLimits(), supervisor
        self.authenticator, self.admins = Authenticator(settings.keys, settings.rate), Authenticator(settings.admin_keys)
        self.workers = {
            model.name: BatchWorker(model.name, model.handler, settings, self.metrics, self.limits) for model in models.all
        }
        self.threads = FairThreads(2, "qkv-prepare")  # so that the event loop stays free
        self.downloads = Downloads(settings.downloads)
        self.streams: set[Any] = set()  # those that are open
        self.stopping = False
        self.surplus = 0  # connections that other processes should have: the next responses close theirs

    def close(self) -> None:
        """Compute what is in the queues, and end all threads."""
        self.stopping = True
        for worker in self.workers.values():
            worker.close()
        self.threads.close()
        self.downloads.close()

    @property
    def dead(self) -> list[str]:
        """The names of models whose thread has ended."""
        return [name for name, worker in self.workers.items() if not worker.alive]

    def description(self) -> list[str]:
        """Return a line for each model: its name, kind and size, and what it can do."""
        lines = []
        for name, handler in ((model.name, model.handler) for model in self.models.all):
            size = "" if handler.parameters is None else f", {handler.parameters:,} parameters"
            lines.append(f"{name}: {handler.kind}{size}, can {', '.join(handler.abilities) or 'do nothing over HTTP'}")
            if "translate" in handler.abilities and handler.languages is None:
                lines.append(
                    f"{name} does not name its languages, so requests cannot either; name them by --languages {name}=en,de"
                )
        return lines

    def admit(self, request: Request, key: str | None = None) -> None:
        """Check the key in a request's header or body, and the caller's rate."""
        caller = self.authenticator.identify(_bearer(request) or key, request.client.host if request.client else "")
        request.state.who, request.state.caller = caller.name, caller.bucket
        self.limits.count(caller)

    def admit_admin(self, request: Request) -> None:
        """Check the administrator's key in a request's header."""
        if not self.admins.keys:
            raise RequestError(403, "no_admins", "this service has no administrators; start it with --admin-keys")
        request.state.who = self.admins.identify(_bearer(request), "").name

    async def read_body(self, request: Request, model: type[Body]) -> Body:
        """Admit a request and return its validated body; only bodies that may carry the key are read before that."""
        if model.for_admins:
            self.admit_admin(request)
        elif not model.accepts_form:
            self.admit(request)
        body = parse_body(await read_bytes(request, self.settings), request.headers.get("content-type", ""), model)
        if model.accepts_form:
            self.admit(request, getattr(body, "api_key", None))
        if self.settings.logs == "texts":
            log.info("body: %s", body.model_dump_json(exclude={"api_key"}, exclude_unset=True))
        return body

    async def answer(self, request: Request, model: ServedModel[Any], prepare: Callable[[], PreparedRequest]) -> Any:
        """Return a model's answer; stop when the client disconnects."""
        request.state.model = model.name
        with self.workers[model.name].reserve() as worker:

            async def compute() -> Any:
                prepared = await self.prepare(request, prepare)
                results = await worker.compute(prepared.key, prepared.items, request.state.caller)
                if len(results) <= FEW_ITEMS:
                    return prepared.answer(results)
                return await self.prepare(request, lambda: prepared.answer(results))

            return await until_disconnect(request, compute())

    async def prepare(self, request: Request, prepare: Callable[[], Result]) -> Result:
        """Call a function that reads a request's texts, or writes its answer, on another thread; errors are the client's."""
        try:
            return await self.threads.run(request.state.caller, prepare)
        except QkvError as error:
            raise as_request_error(error) from None

    def check_texts(self, given: Sequence[str | list[int]], param: str, any_number: bool = False) -> None:
        """Raise if a request has more characters than allowed, or more texts unless `any_number`, as of a document, will do.

        Texts may be lists of token ids, of which as many are allowed.
        """
        texts = [text for text in given if isinstance(text, str)]
        if sum(len(ids) for ids in given if not isinstance(ids, str)) > self.settings.characters:
            raise invalid(f"more than {self.settings.characters:,} tokens in one request", param, "text_too_long")
        if len(given) > self.settings.texts and not any_number:
            raise invalid(f"{len(given):,} texts in one request; send {self.settings.texts:,} at most", param, "too_many_texts")
        characters = sum(map(len, texts))
        if characters > self.settings.characters:
            most = self.settings.characters
            raise invalid(f"{characters:,} characters in one request; send {most:,} at most", param, "text_too_long")
        if any(_has_piled_marks(text) for text in texts):
            raise invalid(f"a letter with more than {MAX_MARKS} marks on it cannot be read", param, "too_many_marks")


def _bearer(request: Request) -> str | None:
    """Return the key in a request's header."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


async def until_disconnect(request: Request, work: Awaitable[Result]) -> Result:
    """Return the result of some work; cancel it and raise when the client disconnects."""

    async def disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(disconnect())
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


def _has_piled_marks(text: str) -> bool:
    """Return whether a letter has more combining marks than any language uses; normalising them takes quadratic time."""
    if text.isascii():
        return False
    run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        if run > MAX_MARKS:
            return True
    return False
