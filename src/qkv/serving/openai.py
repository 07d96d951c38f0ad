"""OpenAI's API: vectors of texts from encoders, completions from GPTs."""

import base64
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from qkv.inference.text_generator import Prompt, Written
from qkv.serving import answers
from qkv.serving.asks import CompletionAsk, EmbeddingsAsk
from qkv.serving.documents import problems, takes
from qkv.serving.engine import Asked
from qkv.serving.events import EventStream
from qkv.serving.models import Model
from qkv.serving.refusals import wrong
from qkv.serving.service import Service
from qkv.serving.streams import Stream
from qkv.serving.works import GeneratorWork, ReaderWork

COLD = 0.01  # below this temperature the likeliest word is taken
STARTED = int(time.time())


def openai(service: Service) -> APIRouter:
    """The endpoints."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    @router.get("/models", response_model=answers.OpenAIModels, responses=problems(openai=True))
    async def models(request: Request) -> JSONResponse:
        """Models that can be asked."""
        service.admit(request)
        return JSONResponse({"object": "list", "data": [_told(model) for model in service.models.all]})

    @router.get("/models/{name}", response_model=answers.OpenAIModel, responses=problems(openai=True))
    async def model(request: Request, name: str) -> JSONResponse:
        """A model by its name."""
        service.admit(request)
        return JSONResponse(_told(service.models.named(name)))

    @router.post(
        "/embeddings", response_model=answers.Embeddings, responses=problems(openai=True), openapi_extra=takes(EmbeddingsAsk)
    )
    async def embeddings(request: Request) -> JSONResponse:
        """A vector of each text."""
        return JSONResponse(await _embeddings(service, request, await service.read(request, EmbeddingsAsk)))

    streamed: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/event-stream": {}}, "description": "The texts, or with stream the pieces of them."}
    }

    @router.post(
        "/completions",
        response_model=answers.Completion,
        responses={**problems(openai=True), **streamed},
        openapi_extra=takes(CompletionAsk),
    )
    async def completions(request: Request) -> Response:
        """Go on with each text; with `stream`, piece by piece as server-sent events."""
        ask = await service.read(request, CompletionAsk)
        model = service.models.find(ask.model, "complete")
        return await (_stream if ask.stream else _complete)(service, request, ask, model)

    return router


def _told(model: Model) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": STARTED, "owned_by": "qkv"}


async def _embeddings(service: Service, request: Request, ask: EmbeddingsAsk) -> dict[str, Any]:
    texts = [ask.input] if isinstance(ask.input, str) else ask.input
    service.check_texts(texts, "input")
    model = service.models.find(ask.model, "embed")
    work = model.work
    assert isinstance(work, ReaderWork)
    width = work.reader.model.encoder.config.width
    if ask.dimensions not in (None, width):
        raise wrong(f"the vectors of {model.name} have {width} dimensions; ask for these or leave it out", "dimensions")
    found = await service.answer(request, model, lambda: work.embed(texts))
    coded = ask.encoding_format == "base64"
    vectors = [_base64(vector) if coded else vector.tolist() for vector, _ in found]
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    tokens = sum(length for _, length in found)
    return {"object": "list", "model": model.name, "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def _base64(vector: np.ndarray) -> str:
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()


async def _complete(service: Service, request: Request, ask: CompletionAsk, model: Model) -> Response:
    texts = _prompts(service, ask)
    found: list[Written] = await service.answer(request, model, lambda: _asked(model, ask, texts, service.settings.new_tokens))
    choices = [
        {"index": index, "text": (text if ask.echo else "") + one.text, "logprobs": None, "finish_reason": _reason(one)}
        for index, (text, one) in enumerate(zip(texts, found, strict=True))
    ]
    return JSONResponse({**_frame(model), "choices": choices, "usage": _usage(model, ask, texts, found)})


async def _stream(service: Service, request: Request, ask: CompletionAsk, model: Model) -> Response:
    texts = _prompts(service, ask)
    stream = Stream(service, request, model)
    await stream.start(lambda: _asked(model, ask, texts, service.settings.new_tokens, stream))
    return EventStream(request, _events(stream, model, ask, texts), stream.close)


async def _events(stream: Stream, model: Model, ask: CompletionAsk, texts: Sequence[str]) -> AsyncIterator[Any]:
    """The pieces of all texts, as they come, then why each ended."""
    frame = _frame(model)
    if ask.echo:
        for index, text in enumerate(texts):
            yield {**frame, "choices": [_piece(index, text)]}
    async for index, text in stream.pieces():
        yield {**frame, "choices": [_piece(index, text)]}
    found: list[Written] = await stream.results()
    for index, one in enumerate(found):
        yield {**frame, "choices": [{**_piece(index, ""), "finish_reason": _reason(one)}]}
    if ask.stream_options and ask.stream_options.include_usage:
        yield {**frame, "choices": [], "usage": _usage(model, ask, texts, found)}
    yield "[DONE]"


def _prompts(service: Service, ask: CompletionAsk) -> list[str]:
    """The text that each choice begins with."""
    given = [ask.prompt] if isinstance(ask.prompt, str) else ask.prompt
    service.check_texts(given, "prompt")
    stop = _stops(ask)
    if len(stop) > 16 or any(not one or len(one) > 200 for one in stop):
        raise wrong("stop takes up to 16 strings of 1 to 200 characters", "stop")
    if (ask.max_tokens or 0) > service.settings.new_tokens:
        most = service.settings.new_tokens
        raise wrong(f"{ask.max_tokens:,} tokens; ask for {most:,} at most", "max_tokens", "too_many_tokens")
    texts = [text for text in given for _ in range(ask.n or 1)]
    if len(texts) > service.settings.texts:
        raise wrong(f"{len(texts):,} texts to be made; ask for {service.settings.texts:,} at most", "n", "too_many_texts")
    return texts


def _asked(model: Model, ask: CompletionAsk, texts: Sequence[str], most: int, stream: Stream | None = None) -> Asked:
    """What the worker is asked: a prompt for each choice. Choices of a request without a seed are drawn by random numbers."""
    work = model.work
    assert isinstance(work, GeneratorWork)
    temperature = 1.0 if ask.temperature is None else ask.temperature
    options: dict[str, Any] = {}
    if temperature >= COLD:
        options = {"sampling": True, "temperature": temperature, "top_p": ask.top_p or 1.0, "top_k": ask.top_k or 0}
        options["seed"] = ask.seed or 0
    config = work.generator.decoding(most, **options)
    prompts = []
    for index, text in enumerate(texts):
        number = secrets.randbits(48) if ask.seed is None else index
        tell = stream.teller(index) if stream else None
        prompts.append(Prompt(work.generator.prompt(text), number, _stops(ask), tell, ask.max_tokens or 16))
    return work.complete(prompts, config)


def _stops(ask: CompletionAsk) -> tuple[str, ...]:
    return (ask.stop,) if isinstance(ask.stop, str) else tuple(ask.stop or ())


def _frame(model: Model) -> dict[str, Any]:
    return {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(time.time()), "model": model.name}


def _piece(index: int, text: str) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": None}


def _reason(written: Written) -> str:
    return "stop" if written.ended else "length"


def _usage(model: Model, ask: CompletionAsk, texts: Sequence[str], found: Sequence[Written]) -> dict[str, int]:
    assert isinstance(model.work, GeneratorWork)
    read = sum(len(model.work.generator.prompt(text)) for text in texts[:: ask.n or 1])
    made = sum(len(one.ids) for one in found)
    return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}
